// Runs a call in parts along one dimension, as its record's roles allow, and puts the parts together again.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "support/samples.h"

namespace tessera::testing {

// How a call is cut along one dimension: which inputs, what becomes of each output.
struct CutPlan {
  std::string dim;
  std::int64_t size = 0;
  std::vector<bool> cut_input;          // per input
  Role combine = Role::Map;             // of outputs without output_dim: Sum, Max, Min, Joint
  std::vector<std::string> output_dim;  // the output dimension that is cut; "" where the output has none
  bool forbidden = false;  // the record wants it whole: buffers have room for what the kernel then touches
};

// What the record says about cutting all inputs along (dim, size); nullopt when it must stay whole. Throws
// std::invalid_argument when the record contradicts itself.
std::optional<CutPlan> plan_of(const Call& call, const Dim& dim);

// Cutting a dimension that only outputs have, or nullopt when the record wants it made whole.
std::optional<CutPlan> plan_of_made(const Call& call, const Dim& dim);
std::vector<Dim> made_dims(const Call& call);

// Boundaries for `plan` from `cuts` of the input dimension, moved where the output can only be cut in groups.
std::vector<std::int64_t> aligned_cuts(const Call& call, const CutPlan& plan, std::vector<std::int64_t> cuts);

std::vector<Array> run_in_parts(const Call& call, const std::vector<Array>& inputs, const CutPlan& plan,
                                const std::vector<std::int64_t>& cuts, const RandomState& random = {});

}  // namespace tessera::testing
