// The passes that run after lowering. Each is a free function; results never depend on them.
#pragma once

#include "tessera/program.h"

namespace tessera {

// Joins neighbouring component-wise steps over the same shape and placement into one loop each
// (Step::Kind::Fused).
Program fuse(Program program);

// Leaves out steps whose results nobody reads.
void drop_unread(Program& program);

// Adds a Free after the last use of every temporary value.
void insert_frees(Program& program);

}  // namespace tessera
