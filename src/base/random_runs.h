// Runs of the streams of tessera/random.h, elements first, first + 1, ...: the same bits as one by one in
// less than half the time. Pure functions: any thread.
#pragma once

#include <span>

#include "tessera/random.h"

namespace tessera {

void random_uniform_run(RandomKey key, std::uint64_t first, std::span<float> out);
void random_normal_run(RandomKey key, std::uint64_t first, std::span<float> out);
void random_truncated_normal_run(RandomKey key, std::uint64_t first, std::span<float> out);

}  // namespace tessera
