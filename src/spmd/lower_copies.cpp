// Working copies: a parameter that is read in a narrower type is kept in that type as well, beside itself.
// The step that updates the parameter writes both, and every program of a Session reads the copy: nothing is
// cast again for a backward pass, a micro-batch, an evaluation or a token, and replicas share one copy.
#include <algorithm>

#include "base/check.h"
#include "spmd/lower.h"

namespace tessera {
namespace {

// Smaller ones are cast in the loops that read them.
constexpr std::int64_t kSmallest = 16384;  // elements

bool is_cast(const Call& call) {
  if (call.op->scalar == nullptr || call.in.size() != 1) return false;
  const std::vector<Instruction> code = call.op->scalar(call).code;
  return std::all_of(code.begin(), code.end(), [](const Instruction& i) { return i.op == Scalar::Cast; });
}

}  // namespace

std::optional<int> Lowering::kept_copy(const Call& call, const std::vector<int>& inputs) {
  if (!options_.shared_variables || options_.pin_all || !enabled("copies") || !is_cast(call))
    return std::nullopt;
  const ProgramValue& from = value(inputs[0]);
  const bool narrower = from.type.dtype == DType::F32 && call.out[0].dtype == DType::BF16;
  const bool parameter =
      from.kind == ProgramValue::Kind::Variable && from.variable_kind == VariableKind::Parameter;
  if (!parameter || !narrower || from.type.shape.elements() < kSmallest) return std::nullopt;
  const std::string name = from.variable;
  options_.copies[name] = call;
  return copy_of(name);
}

int Lowering::copy_of(const std::string& parameter) {
  const Call& call = options_.copies.at(parameter);
  const std::string name = fmt::format("{}@{}", parameter, to_string(call.out[0].dtype));
  if (const auto known = variables_.find(name); known != variables_.end()) return known->second;
  ProgramValue copy{.name = name,
                    .type = call.out[0],
                    .placement = value(variables_.at(parameter)).placement,
                    .kind = ProgramValue::Kind::Variable,
                    .variable = name,
                    .variable_kind = VariableKind::Copy,
                    .copy_of = parameter};
  return variables_[name] = new_value(std::move(copy));
}

// The copy gets what the parameter gets, `source`: the same bits as a cast when it is read.
void Lowering::assign_copy(const std::string& parameter, int source) {
  const auto kept = options_.copies.find(parameter);
  if (kept == options_.copies.end() || !options_.shared_variables || options_.pin_all) return;
  Call call = kept->second;
  const Placement placement = value(source).placement;
  const int copy = copy_of(parameter);
  call.name = value(copy).name;
  const int cast = emit_run(call, {source}, {placement})[0];
  assigns_.push_back({cast, reshard(copy, placement, ""), origin_, base_of(variables_.at(parameter))});
}

}  // namespace tessera
