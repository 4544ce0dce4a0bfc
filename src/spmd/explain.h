// What an explanation of a program consists of, for its text and its JSON form.
#pragma once

#include <string>
#include <vector>

#include "tessera/program.h"

namespace tessera {

struct ExplainedCollective {
  std::string region, kind, reduce, dim, axes, name, where, reason;
  std::int64_t bytes = 0;
};
std::vector<ExplainedCollective> explained_collectives(const Program& program);

struct ExplainedValue {
  std::string name, type, placement;
  std::int64_t bytes = 0;
};
std::vector<ExplainedValue> peak_values(const Program& program, const MemoryPlan& plan);  // largest first

// Of the rank with the largest parts. A slot is a variable named after another one: PARAMETER/SLOT.
struct StoredBytes {
  std::int64_t variables = 0, slots = 0;
};
StoredBytes stored_bytes(const Program& program);

}  // namespace tessera
