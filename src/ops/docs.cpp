// Prints what each record says of itself: meaning, types, gradient, and what splitting each dimension of its
// first samples means.
#include "ops/docs.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lang/text.h"
#include "tessera/error.h"
#include "tessera/ops.h"

namespace tessera {
namespace {

constexpr const char* kIntroduction = R"(# Ops

Written from the op records by `ops_markdown()` (src/ops/docs.cpp); a test compares. Builders: `tessera/ops.h`.

What splitting a dimension over a mesh axis means is shown on sample calls:

- *map*: every rank computes its part of the output.
- *sum*, *max*, *min*: every rank holds a partial result; it is reduced when a consumer needs it.
- *exchanged*: data movement; each rank receives exactly the elements of its part.
- *joint*: parts are computed at the same time and tell each other what they must know; their results are summed as with *sum*.
- *in parts*: a fused op that is lowered through primitives or partial ops instead of gathering the dimension.
- *whole*: the dimension is gathered first.

*Exact* ops give the same bits on every layout on small whole numbers; the others state by how many units in the last
place layouts may differ on values of order one.
)";

const char* role_text(const Call& call, int input, const std::string& dim) {
  switch (role_of(call, input, dim)) {
    case Role::Map:
      return "map";
    case Role::Sum:
      return "sum";
    case Role::Max:
      return "max";
    case Role::Min:
      return "min";
    case Role::Joint:
      return "joint";
    case Role::Whole:
      break;
  }
  if (call.op->moves) return "exchanged";
  return call.op->expand ? "in parts" : "whole";
}

Call call_of_sample(const Op& op, const Sample& sample) {
  Call call{&op, {}, {}, sample.attrs, op.name};
  for (const std::string& text : sample.in) call.in.push_back(TextReader(text, op.name).type());
  call.out = op.infer(call);
  return call;
}

// Types of the first input with which some sample is accepted.
std::string types_text(const Op& op) {
  std::string text;
  for (DType dtype : {DType::F32, DType::BF16, DType::F64, DType::I32, DType::Bool}) {
    bool accepted = false;
    for (const Sample& sample : op.samples()) {
      Call call = call_of_sample(op, sample);
      if (call.in.empty()) return "";
      const DType first = call.in[0].dtype;
      for (Type& type : call.in) type.dtype = type.dtype == first ? dtype : type.dtype;
      try {
        op.infer(call);
        accepted = true;
      } catch (const UserError&) {  // not this type
      }
    }
    if (accepted) text += std::string(text.empty() ? "" : ", ") + to_string(dtype);
  }
  return text;
}

std::string gradient_text(const Op& op) {
  if (op.grad) return "yes";
  if (!op.expand) return "none";
  for (const Sample& sample : op.samples()) {
    if (is_floating(call_of_sample(op, sample).out[0].dtype)) return "through its primitives";
  }
  return "none";
}

std::string sample_text(const Op& op, const Sample& sample) {
  const Call call = call_of_sample(op, sample);
  std::string text = "- `" + std::string(op.name) + "(";
  for (std::size_t i = 0; i < call.in.size(); ++i) text += (i ? ", " : "") + to_string(call.in[i]);
  text += ")";
  for (const auto& [name, value] : call.attrs) text += fmt::format(" {}={}", name, to_string(value));
  text += " ->";
  for (const Type& type : call.out) text += " " + to_string(type);
  text += "`";
  std::vector<std::string> roles;
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    for (const Dim& dim : call.in[i].shape) {
      const std::string role =
          fmt::format("`{}` {}", dim.name, role_text(call, static_cast<int>(i), dim.name));
      if (std::find(roles.begin(), roles.end(), role) == roles.end()) roles.push_back(role);
    }
  }
  return text + (roles.empty() ? "\n" : fmt::format(": {}\n", fmt::join(roles, ", ")));
}

std::string op_text(const Op& op) {
  std::string text = fmt::format("\n## {}\n\n{}\n\n", op.name, op.doc);
  const std::string types = types_text(op);
  if (!types.empty()) text += fmt::format("Types: {}. ", types);
  text += fmt::format("Gradient: {}. ", gradient_text(op));
  text += op.exact ? "Exact." : fmt::format("Within {} units.", op.ulps);
  if (op.random) text += " Random: depends on seed, name, step and global index only.";
  text += "\n\n";
  int shown = 0;
  for (const Sample& sample : op.samples()) {
    if (shown++ < 2) text += sample_text(op, sample);
  }
  return text;
}

}  // namespace

std::string ops_markdown() {
  std::string text = kIntroduction;
  for (const Op* op : all_ops()) text += op_text(*op);
  return text;
}

}  // namespace tessera
