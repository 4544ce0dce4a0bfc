// Plans and runs a fused loop: scalar code becomes a list of block instructions over registers in the
// first-level cache, and the loop nest becomes a list of pieces, each a run of consecutive elements of the
// output.
#include "exec/cpu/fused.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "exec/cpu/fused_code.h"
#include "exec/team.h"

namespace tessera {
namespace {

// Registers of one thread: half of the first-level cache, the other half is for what streams through.
constexpr std::size_t kBlockBytes = 16 * 1024, kUniformBytes = 32 * 1024;
constexpr std::size_t kMaxBlock = 2048;  // elements
constexpr std::size_t kGroupBytes = kLaneGroup * 8;
constexpr std::size_t kMaxInputs = 64;
constexpr std::int64_t kShortRow = 192;            // shorter rows are put together into one piece
constexpr std::int64_t kWorthThreads = 32 * 1024;  // elements

// Where a register lives. A uniform one has equal elements and is computed once per run.
struct Register {
  Lane lane = Lane::F32;
  bool uniform = false;
  int slot = -1;   // scratch slot of a uniform register, or of a block
  int input = -1;  // its values may be read straight from this input's memory
};

struct Instr {
  BlockInstruction run = nullptr;
  int result = -1;
  std::array<int, 3> operand = {-1, -1, -1};
};

// --- scalar code to block instructions
// -----------------------------------------------------------------------------------

class Compiler {
 public:
  Compiler(const ScalarCode& source, const std::vector<DType>& in, const std::vector<DType>& out,
           const std::vector<bool>& uniform_input) {
    for (std::size_t i = 0; i < in.size(); ++i) {
      Register reg{lane_of(in[i]), uniform_input[i], -1, static_cast<int>(i)};
      names_.push_back(add(reg));
    }
    for (const Instruction& instruction : source.code) names_.push_back(emit(instruction));
    for (std::size_t o = 0; o < out.size(); ++o) {
      const int reg = names_[static_cast<std::size_t>(source.results[o])];
      results.push_back(lane(reg) == lane_of(out[o]) ? reg : cast(reg, out[o]));
    }
  }

  std::vector<Register> registers;
  std::vector<Instr> code;
  std::vector<int> results;
  std::vector<std::pair<int, double>> constants;  // register, value

 private:
  int add(const Register& reg) {
    registers.push_back(reg);
    return static_cast<int>(registers.size()) - 1;
  }
  Lane lane(int reg) const { return registers[static_cast<std::size_t>(reg)].lane; }
  bool uniform(int reg) const { return reg < 0 || registers[static_cast<std::size_t>(reg)].uniform; }

  int push(BlockInstruction run, Lane result, std::array<int, 3> operand) {
    const bool same = uniform(operand[0]) && uniform(operand[1]) && uniform(operand[2]);
    const int reg = add({result, same, -1, -1});
    code.push_back({run, reg, operand});
    return reg;
  }
  int cast(int reg, DType type) { return push(block_cast(lane(reg), type), lane_of(type), {reg, -1, -1}); }
  int as(Lane wanted, int reg) {
    if (reg < 0 || lane(reg) == wanted) return reg;
    return cast(reg, wanted == Lane::F32 ? DType::F32 : wanted == Lane::F64 ? DType::F64 : DType::Bool);
  }

  int emit(const Instruction& i) {
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
    const bool compares = i.op == Scalar::Less || i.op == Scalar::LessEqual || i.op == Scalar::Equal ||
                          i.op == Scalar::NotEqual;
    TESSERA_ASSERT(b < 0 || i.op == Scalar::Select || lane(b) == operands, "scalar code mixes element types");
    const BlockInstruction run = block_instruction(i.op, operands);
    TESSERA_ASSERT(run != nullptr, "no instruction {} on lanes {}", static_cast<int>(i.op),
                   static_cast<int>(operands));
    return push(run, compares ? Lane::I32 : operands, {a, b, c});
  }

  std::vector<int> names_;  // register of the scalar code -> register here
};

// Gives slots to the registers: uniform ones keep theirs, the others share by lifetime. Returns the number of
// blocks.
int assign_slots(Compiler& program) {
  std::vector<int> last(program.registers.size(), -1);
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    for (int r : program.code[i].operand) {
      if (r >= 0) last[static_cast<std::size_t>(r)] = static_cast<int>(i);
    }
  }
  for (int r : program.results) last[static_cast<std::size_t>(r)] = static_cast<int>(program.code.size());
  int blocks = 0, uniforms = 0;
  std::vector<int> free;
  const auto take = [&](Register& reg) {
    if (reg.uniform) {
      reg.slot = uniforms++;
    } else if (free.empty()) {
      reg.slot = blocks++;
    } else {
      reg.slot = free.back();
      free.pop_back();
    }
  };
  for (Register& reg : program.registers) {
    if (reg.input >= 0 || reg.uniform) take(reg);
  }
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    Register& result = program.registers[static_cast<std::size_t>(program.code[i].result)];
    if (!result.uniform) take(result);
    // Registers read for the last time here become free; a register that nobody reads does so at once.
    for (std::size_t r = 0; r < last.size(); ++r) {
      const Register& reg = program.registers[r];
      const bool dead_result = static_cast<int>(r) == program.code[i].result && last[r] < 0;
      if (!reg.uniform && reg.slot >= 0 && (last[r] == static_cast<int>(i) || dead_result))
        free.push_back(reg.slot);
    }
  }
  return blocks;
}

// --- the loop nest
// -------------------------------------------------------------------------------------------------------

struct Loop {
  std::int64_t extent = 1;
  std::vector<std::int64_t> stride;  // per operand: inputs, then outputs
};

std::vector<Loop> collapse(const FusedSpec& spec) {
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

// Asks for what the next block will read, some of it before each instruction of this one: an instruction
// reads a few kilobytes at a time, too little for the hardware to see the streams.
class Prefetch {
 public:
  explicit Prefetch(std::size_t turns) : turns_(std::max<std::size_t>(turns, 1)) {}

  void add(const void* block, std::size_t bytes) {
    if (turns_ == 1) return;  // one instruction after another on the same streams
    next_[count_++] = static_cast<const char*>(block) + bytes;
    bytes_ = bytes;
  }
  void some() {
    const std::size_t end = std::min(bytes_, done_ + (bytes_ / turns_ / kLine + 1) * kLine);
    for (; done_ < end; done_ += kLine) {
      for (std::size_t i = 0; i < count_; ++i) __builtin_prefetch(next_[i] + done_);
    }
  }

 private:
  static constexpr std::size_t kLine = 64;
  std::array<const char*, kMaxInputs> next_;
  std::size_t turns_, count_ = 0, bytes_ = 0, done_ = 0;
};

}  // namespace

struct FusedLoop::Impl {
  explicit Impl(const FusedSpec& spec);

  void run(void* const* in, void* const* out) const;
  void run_range(void* const* in, void* const* out, std::int64_t begin, std::int64_t end) const;

 private:
  // A piece: consecutive elements from `row`, `at` on; in short-row mode several whole rows.
  struct Piece {
    std::int64_t row = 0, rows = 1, at = 0;
    std::size_t n = 0;
  };

  std::byte* slot(std::byte* scratch, const Register& reg) const {
    return reg.uniform ? scratch + static_cast<std::size_t>(reg.slot) * kGroupBytes
                       : scratch + block_at_ + static_cast<std::size_t>(reg.slot) * block_ * block_element_;
  }
  void run_uniform(void* const* in, std::byte* scratch) const;
  void run_piece(const Piece& piece, void* const* in, void* const* out, std::byte* scratch) const;
  void execute(const Instr& instr, std::byte* scratch, const BlockOperand* inputs, void* result,
               std::size_t n) const;
  BlockOperand load_input(std::size_t i, const Piece& piece, void* const* in, std::byte* scratch,
                          std::size_t padded) const;
  void store_output(std::size_t o, const Piece& piece, void* const* out, const std::byte* from) const;
  std::int64_t offset(std::size_t operand, std::int64_t row) const;
  Piece piece(std::int64_t index) const;

  std::vector<DType> in_types_, out_types_;
  std::vector<Register> registers_;
  std::vector<Instr> uniform_code_, code_;
  std::vector<int> results_;
  std::vector<std::pair<int, double>> constants_;
  std::vector<Loop> loops_;  // the last one is the row
  std::vector<bool> dense_;  // per operand: row r begins at r * length
  std::int64_t rows_ = 1, length_ = 1, pieces_per_row_ = 1, rows_per_piece_ = 1, pieces_ = 1;
  std::size_t block_ = 0, block_at_ = 0, block_element_ = 4;
  int direct_output_ = -1;  // the output that the last instruction may write itself
  int threads_ = 1;
};

FusedLoop::Impl::Impl(const FusedSpec& spec)
    : in_types_(spec.in_types), out_types_(spec.out_types), loops_(collapse(spec)), threads_(spec.threads) {
  const std::size_t inputs = in_types_.size(), operands = inputs + out_types_.size();
  TESSERA_ASSERT(inputs <= kMaxInputs, "fused loop of {} inputs", inputs);
  std::vector<bool> uniform(inputs);
  for (std::size_t i = 0; i < inputs; ++i) {
    uniform[i] =
        std::all_of(loops_.begin(), loops_.end(), [&](const Loop& loop) { return loop.stride[i] == 0; });
  }
  length_ = loops_.back().extent;
  for (std::size_t l = 0; l + 1 < loops_.size(); ++l) rows_ *= loops_[l].extent;
  for (std::size_t i = 0; i < operands; ++i) {
    bool dense = length_ == 1 || loops_.back().stride[i] == 1;
    std::int64_t step = length_;
    for (std::size_t l = loops_.size() - 1; l-- > 0; step *= loops_[l].extent)
      dense = dense && loops_[l].stride[i] == step;
    dense_.push_back(dense);
  }

  Compiler program(spec.code, in_types_, out_types_, uniform);
  const int blocks = assign_slots(program);
  registers_ = std::move(program.registers);
  results_ = std::move(program.results);
  constants_ = std::move(program.constants);
  std::size_t uniforms = 0;
  for (const Register& reg : registers_) {
    if (reg.uniform) ++uniforms;
    if (!reg.uniform) block_element_ = std::max(block_element_, bytes_of(reg.lane));
  }
  for (const Instr& instr : program.code) {
    (registers_[static_cast<std::size_t>(instr.result)].uniform ? uniform_code_ : code_).push_back(instr);
  }
  block_at_ = uniforms * kGroupBytes;
  TESSERA_ASSERT(block_at_ <= kUniformBytes, "fused loop of {} constants", uniforms);
  block_ =
      std::min(kMaxBlock, kBlockBytes / (block_element_ * static_cast<std::size_t>(std::max(blocks, 1))) /
                              kLaneGroup * kLaneGroup);
  TESSERA_ASSERT(block_ > 0, "fused loop of {} registers", blocks);

  const auto block = static_cast<std::int64_t>(block_);
  if (length_ < kShortRow && length_ <= block) {
    rows_per_piece_ = block / length_;
    pieces_ = (rows_ + rows_per_piece_ - 1) / rows_per_piece_;
  } else {
    pieces_per_row_ = (length_ + block - 1) / block;
    pieces_ = rows_ * pieces_per_row_;
  }
  // Not when a result is an input as it stands: it may share the memory of the output.
  const bool copies = std::any_of(results_.begin(), results_.end(),
                                  [&](int r) { return registers_[static_cast<std::size_t>(r)].input >= 0; });
  for (std::size_t o = 0; o < out_types_.size() && !code_.empty() && !copies; ++o) {
    const bool plain = out_types_[o] != DType::BF16 && out_types_[o] != DType::Bool;
    if (plain && results_[o] == code_.back().result) direct_output_ = static_cast<int>(o);
  }
}

std::int64_t FusedLoop::Impl::offset(std::size_t operand, std::int64_t row) const {
  if (dense_[operand]) return row * length_;
  std::int64_t offset = 0;
  for (std::size_t l = loops_.size() - 1; l-- > 0;) {
    offset += row % loops_[l].extent * loops_[l].stride[operand];
    row /= loops_[l].extent;
  }
  return offset;
}

FusedLoop::Impl::Piece FusedLoop::Impl::piece(std::int64_t index) const {
  if (rows_per_piece_ > 1 || length_ < kShortRow) {
    const std::int64_t row = index * rows_per_piece_, rows = std::min(rows_per_piece_, rows_ - row);
    return {row, rows, 0, static_cast<std::size_t>(rows * length_)};
  }
  const std::int64_t row = index / pieces_per_row_,
                     at = index % pieces_per_row_ * static_cast<std::int64_t>(block_);
  return {row, 1, at,
          static_cast<std::size_t>(std::min<std::int64_t>(static_cast<std::int64_t>(block_), length_ - at))};
}

void FusedLoop::Impl::execute(const Instr& instr, std::byte* scratch, const BlockOperand* inputs,
                              void* result, std::size_t n) const {
  BlockOperand operands[3];
  for (std::size_t k = 0; k < 3 && instr.operand[k] >= 0; ++k) {
    const Register& reg = registers_[static_cast<std::size_t>(instr.operand[k])];
    if (reg.input >= 0 && !reg.uniform) {
      operands[k] = inputs[reg.input];
    } else {
      operands[k] = {slot(scratch, reg), reg.uniform ? kLaneGroup - 1 : ~std::size_t{0}};
    }
  }
  instr.run(operands, result, n);
}

void FusedLoop::Impl::run_uniform(void* const* in, std::byte* scratch) const {
  for (const Register& reg : registers_) {
    if (reg.uniform && reg.input >= 0) {
      load_block(in_types_[static_cast<std::size_t>(reg.input)], in[reg.input], 0, slot(scratch, reg),
                 kLaneGroup);
    }
  }
  for (const auto& [reg, value] : constants_) {
    const Register& constant = registers_[static_cast<std::size_t>(reg)];
    const DType type = constant.lane == Lane::F32   ? DType::F32
                       : constant.lane == Lane::F64 ? DType::F64
                                                    : DType::I32;
    const float f = static_cast<float>(value);
    const auto i = static_cast<std::int32_t>(std::clamp(value, -2147483648.0, 2147483647.0));
    const void* from = type == DType::F32   ? static_cast<const void*>(&f)
                       : type == DType::F64 ? &value
                                            : static_cast<const void*>(&i);
    load_block(type, from, 0, slot(scratch, constant), kLaneGroup);
  }
  for (const Instr& instr : uniform_code_) {
    execute(instr, scratch, nullptr, slot(scratch, registers_[static_cast<std::size_t>(instr.result)]),
            kLaneGroup);
  }
}

BlockOperand FusedLoop::Impl::load_input(std::size_t i, const Piece& piece, void* const* in,
                                         std::byte* scratch, std::size_t padded) const {
  const DType type = in_types_[i];
  const std::size_t element = size_of(type);
  const auto* data = static_cast<const std::byte*>(in[i]);
  const auto at = [&](std::int64_t index) { return data + index * static_cast<std::int64_t>(element); };
  const std::int64_t step = length_ == 1 ? 1 : loops_.back().stride[i];
  const Register& reg = registers_[i];
  const bool straight = (piece.rows == 1 && step == 1) || dense_[i];
  const std::byte* first = at(offset(i, piece.row) + piece.at * step);
  if (straight && element == bytes_of(reg.lane) && padded == piece.n) return {first, ~std::size_t{0}};
  std::byte* to = slot(scratch, reg);
  const std::size_t wide = bytes_of(reg.lane);
  if (straight || piece.rows == 1) {
    load_block(type, first, straight ? 1 : step, to, piece.n);
  } else {
    const auto length = static_cast<std::size_t>(length_);
    for (std::int64_t r = 0; r < piece.rows; ++r) {
      load_block(type, at(offset(i, piece.row + r)), step, to + static_cast<std::size_t>(r) * length * wide,
                 length);
    }
  }
  std::memset(to + piece.n * wide, 0, (padded - piece.n) * wide);
  return {to, ~std::size_t{0}};
}

void FusedLoop::Impl::store_output(std::size_t o, const Piece& piece, void* const* out,
                                   const std::byte* from) const {
  const DType type = out_types_[o];
  const std::size_t operand = in_types_.size() + o, wide = bytes_of(lane_of(type));
  auto* data = static_cast<std::byte*>(out[o]);
  const auto at = [&](std::int64_t index) { return data + index * static_cast<std::int64_t>(size_of(type)); };
  const std::int64_t step = length_ == 1 ? 1 : loops_.back().stride[operand];
  if (piece.rows == 1 || dense_[operand]) {
    store_block(type, from, at(offset(operand, piece.row) + piece.at * step), step, piece.n);
    return;
  }
  const auto length = static_cast<std::size_t>(length_);
  for (std::int64_t r = 0; r < piece.rows; ++r) {
    store_block(type, from + static_cast<std::size_t>(r) * length * wide, at(offset(operand, piece.row + r)),
                step, length);
  }
}

void FusedLoop::Impl::run_piece(const Piece& piece, void* const* in, void* const* out,
                                std::byte* scratch) const {
  const std::size_t padded = (piece.n + kLaneGroup - 1) / kLaneGroup * kLaneGroup;
  std::array<BlockOperand, kMaxInputs> inputs;
  for (std::size_t i = 0; i < in_types_.size(); ++i) {
    if (!registers_[i].uniform) inputs[i] = load_input(i, piece, in, scratch, padded);
  }
  Prefetch next(code_.size());
  for (std::size_t i = 0; i < in_types_.size(); ++i) {
    if (!registers_[i].uniform && inputs[i].data != slot(scratch, registers_[i])) {
      next.add(inputs[i].data, padded * bytes_of(registers_[i].lane));
    }
  }
  bool direct = false;
  if (direct_output_ >= 0 && padded == piece.n) {
    const std::size_t operand = in_types_.size() + static_cast<std::size_t>(direct_output_);
    direct = dense_[operand] || (piece.rows == 1 && loops_.back().stride[operand] == 1);
  }
  for (std::size_t i = 0; i < code_.size(); ++i) {
    const Register& result = registers_[static_cast<std::size_t>(code_[i].result)];
    void* to = slot(scratch, result);
    if (direct && i + 1 == code_.size()) {
      const std::size_t o = static_cast<std::size_t>(direct_output_), operand = in_types_.size() + o;
      to = static_cast<std::byte*>(out[o]) +
           (offset(operand, piece.row) + piece.at) * static_cast<std::int64_t>(size_of(out_types_[o]));
    }
    next.some();
    execute(code_[i], scratch, inputs.data(), to, padded);
  }
  for (std::size_t o = 0; o < out_types_.size(); ++o) {
    if (direct && static_cast<int>(o) == direct_output_) continue;
    const Register& reg = registers_[static_cast<std::size_t>(results_[o])];
    if (reg.uniform) {
      // One value for all elements: spread it over a block first.
      alignas(64) std::byte block[kMaxBlock * 8];
      const DType type = reg.lane == Lane::F32 ? DType::F32 : reg.lane == Lane::F64 ? DType::F64 : DType::I32;
      load_block(type, slot(scratch, reg), 0, block, piece.n);
      store_output(o, piece, out, block);
    } else {
      const void* from =
          reg.input >= 0 ? inputs[static_cast<std::size_t>(reg.input)].data : slot(scratch, reg);
      store_output(o, piece, out, static_cast<const std::byte*>(from));
    }
  }
}

void FusedLoop::Impl::run_range(void* const* in, void* const* out, std::int64_t begin,
                                std::int64_t end) const {
  alignas(64) static thread_local std::byte scratch[kUniformBytes + kBlockBytes];
  run_uniform(in, scratch);
  for (std::int64_t p = begin; p < end; ++p) run_piece(piece(p), in, out, scratch);
}

void FusedLoop::Impl::run(void* const* in, void* const* out) const {
  if (threads_ == 1 || rows_ * length_ < kWorthThreads) return run_range(in, out, 0, pieces_);
  for_each_part(threads_,
                [&](int t) { run_range(in, out, pieces_ * t / threads_, pieces_ * (t + 1) / threads_); });
}

FusedLoop::FusedLoop(const FusedSpec& spec) : impl_(std::make_unique<Impl>(spec)) {}
FusedLoop::~FusedLoop() = default;
FusedLoop::FusedLoop(FusedLoop&&) noexcept = default;
FusedLoop& FusedLoop::operator=(FusedLoop&&) noexcept = default;

void FusedLoop::run(void* const* in, void* const* out) const {
  impl_->run(in, out);
}

}  // namespace tessera
