// Plans a fused loop: where its registers are, and how it is cut.
#include "exec/cpu/fused_plan.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tessera {
std::vector<FusedLoop::Impl::Loop> FusedLoop::Impl::collapse(const FusedSpec& spec) {
  std::vector<Loop> loops;
  for (std::size_t d = 0; d < spec.extent.size(); ++d) {
    if (spec.extent[d] == 1) continue;
    Loop loop{spec.extent[d], {}};
    for (const auto& stride : spec.in_strides) loop.stride.push_back(stride[d]);
    for (const auto& stride : spec.out_strides) loop.stride.push_back(stride[d]);
    bool joins = !loops.empty();
    for (std::size_t i = 0; joins && i < loop.stride.size(); ++i) {
      joins = loops.back().stride[i] == loop.stride[i] * loop.extent;
    }
    if (joins) {
      loops.back() = {loops.back().extent * loop.extent, loop.stride};
    } else {
      loops.push_back(std::move(loop));
    }
  }
  if (loops.empty())
    loops.push_back({1, std::vector<std::int64_t>(spec.in_strides.size() + spec.out_strides.size(), 0)});
  return loops;
}

// A register as an instruction finds it; `at` has the places of all registers.
FusedLoop::Impl::Operand FusedLoop::Impl::operand_of(const FusedProgram& program, std::size_t reg,
                                                     const std::vector<std::uint32_t>& at) {
  const FusedRegister& r = program.registers[reg];
  return {static_cast<std::int16_t>(r.uniform ? -1 : r.input), r.uniform, at[reg]};
}

FusedLoop::Impl::Impl(const FusedSpec& spec) : threads_(spec.threads), loops_(collapse(spec)) {
  const std::size_t inputs = spec.in_types.size();
  TESSERA_ASSERT(inputs <= kMaxInputs, "fused loop of {} inputs", inputs);
  length_ = loops_.back().extent;
  for (std::size_t l = 0; l + 1 < loops_.size(); ++l) rows_ *= loops_[l].extent;
  FusedProgram program(spec.code, spec.in_types, spec.out_types, uniform_inputs(inputs));
  place(program, spec);
  cut_rows();
  place_sums(spec);
}

// An input of equal elements.
std::vector<bool> FusedLoop::Impl::uniform_inputs(std::size_t inputs) const {
  std::vector<bool> uniform(inputs);
  for (std::size_t i = 0; i < inputs; ++i) {
    uniform[i] =
        std::all_of(loops_.begin(), loops_.end(), [&](const Loop& loop) { return loop.stride[i] == 0; });
  }
  return uniform;
}

void FusedLoop::Impl::cut_rows() {
  const auto block = static_cast<std::int64_t>(block_);
  if (length_ < kShortRow && length_ <= block) {
    rows_per_piece_ = block / length_;
    pieces_ = (rows_ + rows_per_piece_ - 1) / rows_per_piece_;
  } else {
    pieces_per_row_ = (length_ + block - 1) / block;
    pieces_ = rows_ * pieces_per_row_;
  }
}

FusedLoop::Impl::Stream FusedLoop::Impl::stream(std::size_t operand, DType type) const {
  Stream s;
  s.type = type;
  s.element = static_cast<std::uint8_t>(size_of(type));
  s.wide = static_cast<std::uint8_t>(bytes_of(lane_of(type)));
  s.as_lane = s.element == s.wide;
  s.step = length_ == 1 ? 1 : loops_.back().stride[operand];
  s.dense = s.step == 1;
  std::int64_t step = length_;
  for (std::size_t l = loops_.size() - 1; l-- > 0; step *= loops_[l].extent)
    s.dense = s.dense && loops_[l].stride[operand] == step;
  return s;
}

// Gives registers their places in the scratch memory and writes down what run() does.
void FusedLoop::Impl::place(FusedProgram& program, const FusedSpec& spec) {
  const int blocks = program.assign_slots();
  std::size_t uniforms = 0, widest = 4;
  for (const FusedRegister& reg : program.registers) {
    if (reg.uniform) ++uniforms;
    if (!reg.uniform) widest = std::max(widest, bytes_of(reg.lane));
  }
  const std::size_t block_at = uniforms * kGroupBytes;
  TESSERA_ASSERT(block_at <= kUniformBytes, "fused loop of {} constants", uniforms);
  block_ = std::min(kMaxBlock, kBlockBytes / (widest * static_cast<std::size_t>(std::max(blocks, 1))) /
                                   kLaneGroup * kLaneGroup);
  TESSERA_ASSERT(block_ > 0, "fused loop of {} registers", blocks);
  std::vector<std::uint32_t> at;
  for (const FusedRegister& reg : program.registers) {
    const auto slot = static_cast<std::size_t>(reg.slot);
    at.push_back(
        static_cast<std::uint32_t>(reg.uniform ? slot * kGroupBytes : block_at + slot * block_ * widest));
  }
  uniforms_ = uniforms > 0;
  for (std::size_t i = 0; i < spec.in_types.size(); ++i)
    inputs_.push_back({stream(i, spec.in_types[i]), program.registers[i].uniform, at[i]});
  for (const auto& [reg, value] : program.constants) {
    const auto r = static_cast<std::size_t>(reg);
    constants_.push_back({program.registers[r].lane, at[r], value});
  }
  for (const FusedInstr& instr : program.code) {
    const auto result = static_cast<std::size_t>(instr.result);
    Code code{instr.run, at[result], 0, {}};
    for (; code.operands < 3 && instr.operand[code.operands] >= 0; ++code.operands)
      code.operand[code.operands] =
          operand_of(program, static_cast<std::size_t>(instr.operand[code.operands]), at);
    (program.registers[result].uniform ? uniform_code_ : code_).push_back(code);
  }
  place_outputs(program, spec, at);
}

void FusedLoop::Impl::place_outputs(const FusedProgram& program, const FusedSpec& spec,
                                    const std::vector<std::uint32_t>& at) {
  // Not when a result is an input as it stands: it may share the memory of the output.
  const bool copies = std::any_of(program.results.begin(), program.results.end(), [&](int r) {
    return program.registers[static_cast<std::size_t>(r)].input >= 0;
  });
  int last = -1;  // the result of the last instruction that is no uniform one
  for (const FusedInstr& instr : program.code)
    if (!program.registers[static_cast<std::size_t>(instr.result)].uniform) last = instr.result;
  int direct = -1;
  for (std::size_t o = 0; o < spec.out_types.size(); ++o) {
    const auto reg = static_cast<std::size_t>(program.results[o]);
    outputs_.push_back({stream(spec.in_types.size() + o, spec.out_types[o]), operand_of(program, reg, at)});
    const bool is_sum = !spec.sums.empty() && spec.sums[o] != 0;
    if (!copies && !is_sum && outputs_[o].as_lane && program.results[o] == last) direct = static_cast<int>(o);
  }
  // Nor when another output wants the same register.
  if (std::count(program.results.begin(), program.results.end(), last) > 1) direct = -1;
  if (direct >= 0) outputs_[static_cast<std::size_t>(direct)].direct = direct_ = true;
}

void FusedLoop::Impl::place_sums(const FusedSpec& spec) {
  int count = 0;
  for (std::size_t o = 0; o < spec.sums.size(); ++o) {
    if (spec.sums[o] == 0) continue;
    std::int64_t elements = 1;
    for (const Loop& loop : loops_)
      if (loop.stride[inputs_.size() + o] != 0) elements *= loop.extent;
    sums_.add(spec.out_types[o], elements, spec.sums[o]);
    outputs_[o].sum = count++;
  }
}

}  // namespace tessera
