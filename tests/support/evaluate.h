// The oracle: runs a graph node by node on one rank with the records' reference kernels.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "support/array.h"
#include "tessera/graph.h"
#include "tessera/op.h"

namespace tessera::testing {

struct EvaluateOptions {
  std::map<std::string, Array> feeds;      // by input name
  std::map<std::string, Array> variables;  // by name; absent ones are drawn by their initialisers
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  bool wide = false;  // every floating type of the graph becomes f64 (feeds and variables are converted)
};

// Values of the targets; an assignment's value is what it assigns. Computes only what the targets need.
std::vector<Array> evaluate(const std::vector<Tensor>& targets, const EvaluateOptions& options = {});

// The value that a variable has before the first step.
Array initial_array(const Variable& variable, const Type& type, std::uint64_t seed);

// One op on whole tensors. `seed`, `step` and `key` matter for random ops only.
struct RandomState {
  std::uint64_t seed = 7;
  std::int64_t step = 3;
  std::string key = "op";
};
std::vector<Array> run_op(const Call& call, const std::vector<Array>& inputs, const RandomState& random = {});

// Types and type attributes with f64 for every floating type; the outputs inferred anew.
Call widened(const Call& call);

}  // namespace tessera::testing
