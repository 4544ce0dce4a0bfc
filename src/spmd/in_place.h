// Which collectives may leave their results where their inputs are, as far as boxes decide it. Pure functions
// of two values of a program; any thread.
#pragma once

#include "base/aligned_buffer.h"
#include "tessera/program.h"

namespace tessera {

constexpr std::int64_t kArenaAlignment = AlignedBuffer::kAlignment;  // bytes: a cache line

// Every rank holds the same elements of both, be they pending or under other names.
bool same_part(const Program& program, int a, int b);

// Of an all-gather: every rank's part of `in` is contiguous in its part of `out` and begins with a cache line
// there.
bool lies_in_gathered(const Program& program, int in, int out);

// Of an all-to-all: the part that a rank takes of another lies where the other takes its part from, each of
// them contiguous.
bool parts_are_mirrored(const Program& program, int in, int out);

}  // namespace tessera
