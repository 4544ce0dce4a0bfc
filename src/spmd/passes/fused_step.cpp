#include "spmd/passes/fused_step.h"

#include <map>

#include "spmd/steps.h"

namespace tessera {
namespace {

// Appends a step's code; returns the register of its result, rounded to the step's type.
int append(ScalarCode& code, const Step& from, const std::vector<int>& inputs) {
  const ScalarCode piece = from.call.op->scalar(from.call);
  const int base = code.inputs + static_cast<int>(code.code.size());
  const auto renamed = [&](int r) {
    return r < 0 ? r : r < piece.inputs ? inputs[static_cast<std::size_t>(r)] : base + r - piece.inputs;
  };
  for (Instruction i : piece.code) {
    i.a = renamed(i.a), i.b = renamed(i.b), i.c = renamed(i.c);
    code.code.push_back(i);
  }
  int result = renamed(piece.results[0]);
  const DType type = from.call.out[0].dtype;
  const bool rounded =
      !piece.code.empty() && piece.code.back().op == Scalar::Cast && piece.code.back().type == type;
  if (type == DType::BF16 && !rounded) {
    code.code.push_back({Scalar::Cast, result, -1, -1, 0, type});
    result = code.inputs + static_cast<int>(code.code.size()) - 1;
  }
  return result;
}

}  // namespace

Step fused_step(const Program& program, const std::vector<int>& members, const std::vector<int>& sums,
                const std::set<int>& kept) {
  const auto step = [&](int s) -> const Step& { return program.steps[static_cast<std::size_t>(s)]; };
  const auto base = [&](int id) { return base_of(program, id); };
  Step result = step(members.back());
  result.kind = Step::Kind::Fused;
  result.call = {};
  result.in.clear();
  result.out.clear();
  result.loop = step(members.front()).out[0];
  std::set<int> makes;
  for (int s : members) makes.insert(base(step(s).out[0]));
  std::map<int, int> inputs;  // value -> number of the input
  for (int s : members) {
    for (int id : step(s).in) {
      const bool outside = makes.count(base(id)) == 0;
      if (outside && inputs.emplace(id, static_cast<int>(result.in.size())).second) result.in.push_back(id);
    }
  }
  ScalarCode& code = result.code;
  code.inputs = static_cast<int>(result.in.size());
  std::map<int, int> made;  // base value -> register
  for (int s : members) {
    std::vector<int> registers;
    for (int id : step(s).in) {
      const auto it = made.find(base(id));
      registers.push_back(it != made.end() ? it->second : inputs.at(id));
    }
    made[base(step(s).out[0])] = append(code, step(s), registers);
  }
  for (int s : members) {
    const int id = step(s).out[0];
    if (kept.count(base(id)) == 0) continue;
    result.out.push_back(id);
    code.results.push_back(made.at(base(id)));
  }
  if (!sums.empty()) result.sums.assign(result.out.size(), 0.0);
  for (int s : sums) {
    result.out.push_back(step(s).out[0]);
    code.results.push_back(made.at(base(step(s).in[0])));
    result.sums.push_back(step(s).call.op->sum_divisor(step(s).call));
  }
  return result;
}

}  // namespace tessera
