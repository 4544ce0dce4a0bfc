#include "support/cutting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "support/peers.h"

namespace tessera::testing {
namespace {

bool lists(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The dimension of output `o` that continues `dim` of an input, or "".
std::string continued_as(const Call& call, const Dim& dim, std::size_t o) {
  const Shape& out = call.out[o].shape;
  if (call.op->renames) {
    for (const auto& [from, to] : call.op->renames(call)) {
      if (from == dim.name && out.has(to)) return to;
    }
    for (const auto& [from, to] : call.op->renames(call)) {
      if (from == dim.name || to == dim.name) return "";
    }
  }
  if (!out.has(dim.name)) return "";
  const bool resized = call.op->resized && lists(call.op->resized(call), dim.name);
  return resized && out.size(dim.name) != dim.size ? "" : dim.name;
}

// Scales boundaries of the input dimension (size `from`) to the output dimension (size `to`).
std::int64_t scaled(std::int64_t cut, std::int64_t from, std::int64_t to, std::size_t part,
                    std::size_t parts) {
  if (from == to) return cut;
  if (to == static_cast<std::int64_t>(parts)) return static_cast<std::int64_t>(part);  // one element per part
  if (from != 0 && to % from == 0) return cut * (to / from);
  if (to != 0 && from % to == 0) return cut / (from / to);
  throw std::invalid_argument(fmt::format("a cut of {} elements does not map to {}", from, to));
}

Box part_box(const Shape& shape, const std::string& dim, std::int64_t begin, std::int64_t end) {
  Box box = whole_box(shape);
  const auto d = static_cast<std::size_t>(shape.find(dim));
  box.start[d] = begin;
  box.size[d] = end - begin;
  return box;
}

double combined(Role role, double a, double b) {
  if (role == Role::Sum || role == Role::Joint) return a + b;
  return role == Role::Max ? std::max(a, b) : std::min(a, b);
}

void combine_into(Role role, bool first, Array& into, const Array& part) {
  for (std::int64_t i = 0; i < into.elements(); ++i) {
    into.set(i, first ? part.get(i) : combined(role, into.get(i), part.get(i)));
  }
}

// One part: slices the inputs, runs the record's reference, returns outputs with their boxes.
struct Part {
  std::vector<Array> outputs;
  std::vector<Box> boxes;
};

Part run_part(const Call& call, const std::vector<Array>& inputs, const CutPlan& plan,
              const std::vector<std::int64_t>& cuts, std::size_t p, const RandomState& random,
              Peers* peers = nullptr) {
  const std::size_t parts = cuts.size() - 1;
  std::vector<Array> local;
  std::vector<View> in, out;
  std::vector<Box> in_boxes;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Shape& shape = call.in[i].shape;
    in_boxes.push_back(plan.cut_input[i] ? part_box(shape, plan.dim, cuts[p], cuts[p + 1])
                                         : whole_box(shape));
    local.push_back(part_of(inputs[i], in_boxes.back()));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (plan.forbidden) local[i].data.resize(inputs[i].data.size());
    in.push_back(make_view(local[i].data.data(), call.in[i], in_boxes[i]));
  }
  Part part;
  for (std::size_t o = 0; o < call.out.size(); ++o) {
    const Shape& shape = call.out[o].shape;
    Box box = whole_box(shape);
    if (const std::string& name = plan.output_dim[o]; !name.empty()) {
      const std::int64_t size = shape.size(name);
      box = part_box(shape, name, scaled(cuts[p], plan.size, size, p, parts),
                     scaled(cuts[p + 1], plan.size, size, p + 1, parts));
    }
    std::vector<Dim> dims = shape.dims();
    for (std::size_t d = 0; d < dims.size(); ++d) dims[d].size = box.size[d];
    part.outputs.emplace_back(Type{Shape(std::move(dims)), call.out[o].dtype});
    std::vector<std::byte>& bytes = part.outputs.back().data;
    if (plan.forbidden) bytes.resize(static_cast<std::size_t>(call.out[o].bytes()));
    std::fill(bytes.begin(), bytes.end(), std::byte{0x5a});  // stale memory
    part.boxes.push_back(box);
  }
  for (std::size_t o = 0; o < call.out.size(); ++o) {
    out.push_back(make_view(part.outputs[o].data.data(), call.out[o], part.boxes[o]));
  }
  KernelContext context{call, in, out, random.seed, random.step, &random.key, peers};
  run_reference(*call.op, context);
  for (Array& output : part.outputs) output.data.resize(static_cast<std::size_t>(output.type.bytes()));
  return part;
}

}  // namespace

std::optional<CutPlan> plan_of(const Call& call, const Dim& dim) {
  CutPlan plan{dim.name, dim.size, std::vector<bool>(call.in.size(), false), Role::Whole, {}, false};
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    const Shape& shape = call.in[i].shape;
    if (!shape.has(dim.name) || shape.size(dim.name) != dim.size) continue;
    const Role role = role_of(call, static_cast<int>(i), dim.name);
    if (role == Role::Whole) continue;
    if (plan.combine != Role::Whole && plan.combine != role) {
      throw std::invalid_argument(fmt::format("'{}' has two roles in different inputs", dim.name));
    }
    plan.combine = role;
    plan.cut_input[i] = true;
  }
  if (plan.combine == Role::Whole) return std::nullopt;
  for (std::size_t o = 0; o < call.out.size(); ++o) {
    plan.output_dim.push_back(continued_as(call, dim, o));
    if (plan.combine == Role::Map && plan.output_dim.back().empty()) {
      throw std::invalid_argument(
          fmt::format("'{}' is Map but output {} has no dimension that continues it", dim.name, o));
    }
  }
  const bool reduced = plan.combine != Role::Map;
  if (reduced && std::count(plan.output_dim.begin(), plan.output_dim.end(), "") == 0) {
    throw std::invalid_argument(fmt::format("'{}' is reduced but every output still has it", dim.name));
  }
  return plan;
}

std::vector<Dim> made_dims(const Call& call) {
  std::vector<Dim> made;
  for (std::size_t o = 0; o < call.out.size(); ++o) {
    for (const Dim& dim : call.out[o].shape) {
      bool continues = false;
      for (const Type& in : call.in) {
        for (const Dim& d : in.shape) continues = continues || continued_as(call, d, o) == dim.name;
      }
      if (!continues && std::find(made.begin(), made.end(), dim) == made.end()) made.push_back(dim);
    }
  }
  return made;
}

std::optional<CutPlan> plan_of_made(const Call& call, const Dim& dim) {
  CutPlan plan{dim.name, dim.size, std::vector<bool>(call.in.size(), false), Role::Map, {}, false};
  for (std::size_t o = 0; o < call.out.size(); ++o) {
    const Shape& shape = call.out[o].shape;
    const bool has = shape.has(dim.name) && shape.size(dim.name) == dim.size;
    if (has && call.op->made && call.op->made(call, static_cast<int>(o), dim.name) == Role::Whole)
      return std::nullopt;
    plan.output_dim.push_back(has ? dim.name : "");
  }
  return plan;
}

std::vector<std::int64_t> aligned_cuts(const Call& call, const CutPlan& plan,
                                       std::vector<std::int64_t> cuts) {
  for (std::size_t o = 0; o < call.out.size(); ++o) {
    if (plan.output_dim[o].empty()) continue;
    const std::int64_t size = call.out[o].shape.size(plan.output_dim[o]);
    if (size == 0 || size >= plan.size || plan.size % size != 0) continue;
    const std::int64_t grain = plan.size / size;
    for (std::size_t k = 0; k + 1 < cuts.size(); ++k) cuts[k] = cuts[k] / grain * grain;
  }
  return cuts;
}

std::vector<Array> run_in_parts(const Call& call, const std::vector<Array>& inputs, const CutPlan& plan,
                                const std::vector<std::int64_t>& cuts, const RandomState& random) {
  std::vector<Array> outputs;
  for (const Type& type : call.out) outputs.emplace_back(type);
  std::vector<Part> parts(cuts.size() - 1);
  if (plan.combine == Role::Joint) {
    run_together(static_cast<int>(parts.size()), call.op->exchange(call).bytes, [&](int p, Peers* peers) {
      const auto at = static_cast<std::size_t>(p);
      parts[at] = run_part(call, inputs, plan, cuts, at, random, peers);
    });
  }
  for (std::size_t p = 0; p < parts.size(); ++p) {
    if (plan.combine != Role::Joint) parts[p] = run_part(call, inputs, plan, cuts, p, random);
    const Part& part = parts[p];
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      if (plan.combine == Role::Map || !plan.output_dim[o].empty()) {
        put_part(outputs[o], part.outputs[o], part.boxes[o]);
      } else {
        combine_into(plan.combine, p == 0, outputs[o], part.outputs[o]);
      }
    }
  }
  return outputs;
}

}  // namespace tessera::testing
