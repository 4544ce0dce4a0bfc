// Compiling scalar code, and giving its registers places.
#include "exec/cpu/fused_program.h"

#include "base/check.h"

namespace tessera {

FusedProgram::FusedProgram(const ScalarCode& source, const std::vector<DType>& in,
                           const std::vector<DType>& out, const std::vector<bool>& uniform_input) {
  for (std::size_t i = 0; i < in.size(); ++i) {
    FusedRegister reg{lane_of(in[i]), uniform_input[i], -1, static_cast<int>(i)};
    names_.push_back(add(reg));
  }
  for (const Instruction& instruction : source.code) names_.push_back(emit(instruction));
  for (std::size_t o = 0; o < out.size(); ++o) {
    const int reg = names_[static_cast<std::size_t>(source.results[o])];
    results.push_back(lane(reg) == lane_of(out[o]) ? reg : cast(reg, out[o]));
  }
}

int FusedProgram::add(const FusedRegister& reg) {
  registers.push_back(reg);
  return static_cast<int>(registers.size()) - 1;
}

int FusedProgram::push(BlockInstruction run, Lane result, std::array<int, 3> operand) {
  const bool same = uniform(operand[0]) && uniform(operand[1]) && uniform(operand[2]);
  const int reg = add({result, same, -1, -1});
  code.push_back({run, reg, operand});
  return reg;
}

int FusedProgram::cast(int reg, DType type) {
  return push(block_cast(lane(reg), type), lane_of(type), {reg, -1, -1});
}

int FusedProgram::as(Lane wanted, int reg) {
  if (reg < 0 || lane(reg) == wanted) return reg;
  return cast(reg, wanted == Lane::F32 ? DType::F32 : wanted == Lane::F64 ? DType::F64 : DType::Bool);
}

int FusedProgram::emit(const Instruction& i) {
  const auto name = [&](int r) { return r < 0 ? -1 : names_[static_cast<std::size_t>(r)]; };
  int a = name(i.a), b = name(i.b), c = name(i.c);
  if (i.op == Scalar::Const) {
    const int reg = add({lane_of(i.type), true, -1, -1});
    constants.emplace_back(reg, i.value);
    return reg;
  }
  if (i.op == Scalar::Cast) return cast(a, i.type);
  Lane operands = lane(a), result = lane_of(i.type);
  if (i.op == Scalar::Select) {
    a = as(Lane::I32, a);
    operands = result;
    b = as(result, b), c = as(result, c);
  } else if (i.op == Scalar::Not || i.op == Scalar::And || i.op == Scalar::Or) {
    operands = Lane::I32;
    a = as(Lane::I32, a), b = as(Lane::I32, b);
  }
  const bool compares =
      i.op == Scalar::Less || i.op == Scalar::LessEqual || i.op == Scalar::Equal || i.op == Scalar::NotEqual;
  TESSERA_ASSERT(b < 0 || i.op == Scalar::Select || lane(b) == operands, "scalar code mixes element types");
  const BlockInstruction run = block_instruction(i.op, operands);
  TESSERA_ASSERT(run != nullptr, "no instruction {} on lanes {}", static_cast<int>(i.op),
                 static_cast<int>(operands));
  return push(run, compares ? Lane::I32 : operands, {a, b, c});
}

int FusedProgram::assign_slots() {
  std::vector<int> last(registers.size(), -1);
  for (std::size_t i = 0; i < code.size(); ++i) {
    for (int r : code[i].operand) {
      if (r >= 0) last[static_cast<std::size_t>(r)] = static_cast<int>(i);
    }
  }
  for (int r : results) last[static_cast<std::size_t>(r)] = static_cast<int>(code.size());
  int blocks = 0, uniforms = 0;
  std::vector<int> free;
  const auto take = [&](FusedRegister& reg) {
    if (reg.uniform) {
      reg.slot = uniforms++;
    } else if (free.empty()) {
      reg.slot = blocks++;
    } else {
      reg.slot = free.back();
      free.pop_back();
    }
  };
  for (FusedRegister& reg : registers) {
    if (reg.input >= 0 || reg.uniform) take(reg);
  }
  for (std::size_t i = 0; i < code.size(); ++i) {
    FusedRegister& result = registers[static_cast<std::size_t>(code[i].result)];
    if (!result.uniform) take(result);
    // Registers read for the last time here become free; a register that nobody reads does so at once.
    for (std::size_t r = 0; r < last.size(); ++r) {
      const FusedRegister& reg = registers[r];
      const bool dead_result = static_cast<int>(r) == code[i].result && last[r] < 0;
      if (!reg.uniform && reg.slot >= 0 && (last[r] == static_cast<int>(i) || dead_result))
        free.push_back(reg.slot);
    }
  }
  return blocks;
}

}  // namespace tessera
