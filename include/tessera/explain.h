// Programs explained to people: what is communicated, why, and what everything costs. Layer spmd.
//
//   std::puts(explain(session.program(id), session.plan(id)).c_str());
#pragma once

#include <string>

#include "tessera/program.h"

namespace tessera {

struct ExplainOptions {
  int largest_values = 8;  // so many values alive at the peak are listed
  bool remarks = true;
};

// Tables: every collective with op, source line, dimension, axis, bytes and the reason; totals per kind and
// per axis; memory at the peak by class (parameters, slots, gradients, activations, buffers), of a rank and
// of a process with all ranks, and the largest values there; floating-point operations of a rank; remarks.
std::string explain(const Program& program, const MemoryPlan& plan, const ExplainOptions& options = {});

// The same as JSON: {"mesh", "layout", "collectives": [...], "totals": {...}, "memory": {...}, "remarks":
// [...]}.
std::string explain_json(const Program& program, const MemoryPlan& plan);

}  // namespace tessera
