// The passes that run after lowering. Each is a free function; results never depend on them.
#pragma once

#include "tessera/program.h"

namespace tessera {

// Joins neighbouring component-wise steps over the same shape and placement, and sums of what they make, into
// one loop each (Step::Kind::Fused).
Program fuse(Program program);

// Leaves out steps whose results nobody reads.
void drop_unread(Program& program);

// Computes values again after the peak, instead of keeping them over it, until the memory plan's arena takes
// no more than `arena_bytes`, or as near as it comes. REQUIRES no Free steps.
Program recompute(Program program, const Target& target, std::int64_t arena_bytes);

// Makes one collective of several small reductions over the same group, where the target says that what each
// costs by itself is more than what waiting for the others costs. REQUIRES no Free steps.
Program buckets(Program program, const Target& target);

// Puts other work between the start of a collective and its wait, as long as the target says that it is under
// way. REQUIRES no Free steps.
Program overlap(Program program, const Target& target);

// Adds a Free after the last use of every temporary value.
void insert_frees(Program& program);

}  // namespace tessera
