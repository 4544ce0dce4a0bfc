// Runs of the streams of tessera/random.h, elements first, first + 1, ...: the same bits as one by one in
// a fraction of the time. Pure functions: any thread.
#pragma once

#include <cstddef>
#include <span>

#include "tessera/random.h"

namespace tessera {

constexpr std::size_t kNormalsAtOnce = 64;  // a run of normals takes the time of a multiple

void random_uniform_run(RandomKey key, std::uint64_t first, std::span<float> out);
void random_normal_run(RandomKey key, std::uint64_t first, std::span<float> out);
void random_truncated_normal_run(RandomKey key, std::uint64_t first, std::span<float> out);

}  // namespace tessera
