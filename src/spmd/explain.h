// What an explanation of a program consists of, for its text and its JSON form.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "tessera/program.h"

namespace tessera {

const char* to_string(Region region);  // "forward", ...

struct ExplainedCollective {
  std::string region, kind, reduce, dim, axes, name, where, reason;
  std::int64_t bytes = 0;
  std::vector<ExplainedCollective> parts = {};  // of a bucket; without kind and axes, which are its own
};
std::vector<ExplainedCollective> explained_collectives(const Program& program);

// Bytes of a variable in a process that holds all ranks: what is complete is there once, partial sums are
// kept apart.
std::int64_t process_bytes(const Mesh& mesh, const ProgramValue& variable);

// What memory is taken by.
enum class MemoryClass : std::uint8_t {
  Parameters,
  Slots,        // of the optimizer
  Gradients,    // of parameters, from the step that makes them to the update; sums over micro-batches
  Activations,  // what the forward and backward passes compute, and gradients of that
  Buffers,  // fed values, state, gathered and cast parameters, workspaces, intermediate results of updates
  Unused,   // bytes of the arena where nothing lies at the peak
};
constexpr std::size_t kMemoryClasses = 6;
const char* to_string(MemoryClass c);  // "parameters", ...
std::vector<MemoryClass> value_classes(const Program& program);

// Bytes at the plan's peak: of the rank with the largest parts, and of a process that holds all ranks, which
// share what they replicate of variables.
struct ClassBytes {
  std::int64_t rank = 0, process = 0;
};
using MemoryByClass = std::array<ClassBytes, kMemoryClasses>;
MemoryByClass memory_by_class(const Program& program, const MemoryPlan& plan);

// A buffer at the peak: the value that lies there, and the step that made it.
struct ExplainedValue {
  std::string name, type, placement, where;
  MemoryClass memory_class = MemoryClass::Buffers;
  std::int64_t bytes = 0;
};
std::vector<ExplainedValue> peak_values(const Program& program, const MemoryPlan& plan);  // largest first

}  // namespace tessera
