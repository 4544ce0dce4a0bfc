// Plans and runs a fused loop: registers get places in the first-level cache, and the loop nest becomes a
// list of pieces, each a run of consecutive elements of the output.
#include "exec/cpu/fused.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "exec/cpu/fused_code.h"
#include "exec/cpu/fused_program.h"
#include "exec/cpu/fused_sum.h"
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
  explicit Prefetch(std::size_t turns) : turns_(turns) {}

  void add(const void* block, std::size_t bytes) {
    if (turns_ <= 1) return;  // one instruction after another on the same streams
    next_[count_++] = static_cast<const char*>(block) + bytes;
    bytes_ = bytes;
    turn_ = (bytes / turns_ / kLine + 1) * kLine;
  }
  void some() {
    const std::size_t end = std::min(bytes_, done_ + turn_);
    for (; done_ < end; done_ += kLine) {
      for (std::size_t i = 0; i < count_; ++i) __builtin_prefetch(next_[i] + done_);
    }
  }

 private:
  static constexpr std::size_t kLine = 64;
  std::array<const char*, kMaxInputs> next_;
  std::size_t turns_, turn_ = 0, count_ = 0, bytes_ = 0, done_ = 0;
};

// What a run needs to know, worked out once and kept close together: a loop over few elements costs little
// more than the memory that describes it. `at` is an offset in the scratch memory.
struct Operand {
  std::int16_t input = -1;  // its block, wherever load_input found it
  bool uniform = false;
  std::uint32_t at = 0;
};
struct Code {
  BlockInstruction run = nullptr;
  std::uint32_t result_at = 0;
  std::uint32_t operands = 0;
  std::array<Operand, 3> operand;
};
struct Stream {
  DType type = DType::F32;
  bool dense = false;                  // row r begins at r * length
  bool as_lane = false;                // memory holds what a register holds
  std::uint8_t element = 4, wide = 4;  // bytes in memory and in a register
  std::int64_t step = 1;               // along a row
};
struct Input : Stream {
  bool uniform = false;
  std::uint32_t at = 0;
};
struct Output : Stream {
  Operand from;
  bool direct = false;  // the last instruction may write it itself
  int sum = -1;         // its number among the sums
};
struct Constant {
  Lane lane = Lane::F32;
  std::uint32_t at = 0;
  double value = 0;
};

DType type_of(Lane lane) {
  return lane == Lane::F32 ? DType::F32 : lane == Lane::F64 ? DType::F64 : DType::I32;
}

// A register as an instruction finds it; `at` has the places of all registers.
Operand operand_of(const FusedProgram& program, std::size_t reg, const std::vector<std::uint32_t>& at) {
  const FusedRegister& r = program.registers[reg];
  return {static_cast<std::int16_t>(r.uniform ? -1 : r.input), r.uniform, at[reg]};
}

}  // namespace

struct FusedLoop::Impl {
  explicit Impl(const FusedSpec& spec);

  void run(void* const* in, void* const* out, double* scratch) const;

 private:
  // A piece: consecutive elements from `row`, `at` on; in short-row mode several whole rows.
  struct Piece {
    std::int64_t row = 0, rows = 1, at = 0;
    std::size_t n = 0;
  };

  void cut_rows();
  std::vector<bool> uniform_inputs(std::size_t inputs) const;
  Stream stream(std::size_t operand, DType type) const;
  void place(FusedProgram& program, const FusedSpec& spec);
  void place_outputs(const FusedProgram& program, const FusedSpec& spec,
                     const std::vector<std::uint32_t>& at);
  void place_sums(const FusedSpec& spec);
  void run_range(void* const* in, void* const* out, double* sums, std::int64_t begin, std::int64_t end) const;
  void run_sums(void* const* in, void* const* out, double* scratch, bool alone) const;
  void run_uniform(void* const* in, std::byte* scratch) const;
  void run_piece(const Piece& piece, void* const* in, void* const* out, double* sums,
                 std::byte* scratch) const;
  static void execute(const Code& code, std::byte* scratch, const BlockOperand* inputs, void* result,
                      std::size_t n);
  BlockOperand load_input(std::size_t i, const Piece& piece, void* const* in, std::byte* scratch,
                          std::size_t padded) const;
  void store_output(std::size_t o, const Piece& piece, void* const* out, const std::byte* from) const;
  void add_output(std::size_t o, const Piece& piece, double* sums, const std::byte* from) const;
  std::byte* output_at(std::size_t o, const Piece& piece, void* const* out) const;
  std::int64_t offset(const Stream& stream, std::size_t operand, std::int64_t row) const;
  Piece piece(std::int64_t index) const;

  std::vector<Input> inputs_;
  std::vector<Code> code_;
  std::vector<Output> outputs_;
  std::int64_t rows_ = 1, length_ = 1, pieces_per_row_ = 1, rows_per_piece_ = 1, pieces_ = 1;
  std::size_t block_ = 0;
  FusedSums sums_;
  int threads_ = 1;
  bool uniforms_ = false, direct_ = false;
  std::vector<Code> uniform_code_;
  std::vector<Constant> constants_;
  std::vector<Loop> loops_;  // the last one is the row
};

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

Stream FusedLoop::Impl::stream(std::size_t operand, DType type) const {
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

std::int64_t FusedLoop::Impl::offset(const Stream& stream, std::size_t operand, std::int64_t row) const {
  if (stream.dense) return row * length_;
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

void FusedLoop::Impl::execute(const Code& code, std::byte* scratch, const BlockOperand* inputs, void* result,
                              std::size_t n) {
  BlockOperand operands[3];
  for (std::uint32_t k = 0; k < code.operands; ++k) {
    const Operand& from = code.operand[k];
    operands[k] = from.input >= 0
                      ? inputs[from.input]
                      : BlockOperand{scratch + from.at, from.uniform ? kLaneGroup - 1 : ~std::size_t{0}};
  }
  code.run(operands, result, n);
}

void FusedLoop::Impl::run_uniform(void* const* in, std::byte* scratch) const {
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].uniform) load_block(inputs_[i].type, in[i], 0, scratch + inputs_[i].at, kLaneGroup);
  for (const Constant& constant : constants_) {
    const auto f = static_cast<float>(constant.value);
    const auto i = static_cast<std::int32_t>(std::clamp(constant.value, -2147483648.0, 2147483647.0));
    const void* from = constant.lane == Lane::F32   ? static_cast<const void*>(&f)
                       : constant.lane == Lane::F64 ? &constant.value
                                                    : static_cast<const void*>(&i);
    load_block(type_of(constant.lane), from, 0, scratch + constant.at, kLaneGroup);
  }
  for (const Code& code : uniform_code_)
    execute(code, scratch, nullptr, scratch + code.result_at, kLaneGroup);
}

BlockOperand FusedLoop::Impl::load_input(std::size_t i, const Piece& piece, void* const* in,
                                         std::byte* scratch, std::size_t padded) const {
  const Input& input = inputs_[i];
  const auto* data = static_cast<const std::byte*>(in[i]);
  const auto at = [&](std::int64_t index) { return data + index * input.element; };
  const bool straight = (piece.rows == 1 && input.step == 1) || input.dense;
  const std::byte* first = at(offset(input, i, piece.row) + piece.at * input.step);
  if (straight && input.as_lane && padded == piece.n) return {first, ~std::size_t{0}};
  std::byte* to = scratch + input.at;
  if (straight || piece.rows == 1) {
    load_block(input.type, first, straight ? 1 : input.step, to, piece.n);
  } else {
    const auto length = static_cast<std::size_t>(length_);
    for (std::int64_t r = 0; r < piece.rows; ++r) {
      load_block(input.type, at(offset(input, i, piece.row + r)), input.step,
                 to + static_cast<std::size_t>(r) * length * input.wide, length);
    }
  }
  std::memset(to + piece.n * input.wide, 0, (padded - piece.n) * input.wide);
  return {to, ~std::size_t{0}};
}

std::byte* FusedLoop::Impl::output_at(std::size_t o, const Piece& piece, void* const* out) const {
  const Output& output = outputs_[o];
  return static_cast<std::byte*>(out[o]) +
         (offset(output, inputs_.size() + o, piece.row) + piece.at * output.step) * output.element;
}

void FusedLoop::Impl::store_output(std::size_t o, const Piece& piece, void* const* out,
                                   const std::byte* from) const {
  const Output& output = outputs_[o];
  if (piece.rows == 1 || output.dense)
    return store_block(output.type, from, output_at(o, piece, out), output.step, piece.n);
  const auto length = static_cast<std::size_t>(length_);
  for (std::int64_t r = 0; r < piece.rows; ++r) {
    store_block(output.type, from + static_cast<std::size_t>(r) * length * output.wide,
                output_at(o, {piece.row + r, 1, piece.at, length}, out), output.step, length);
  }
}

// A sum over the loop's last dimension has no step along it.
void FusedLoop::Impl::add_output(std::size_t o, const Piece& piece, double* sums,
                                 const std::byte* from) const {
  const Output& output = outputs_[o];
  const std::size_t n = piece.rows == 1 ? piece.n : static_cast<std::size_t>(length_);
  for (std::int64_t r = 0; r < piece.rows; ++r, from += n * output.wide) {
    const std::int64_t at = offset(output, inputs_.size() + o, piece.row + r) + piece.at * output.step;
    sums_.add_block(static_cast<std::size_t>(output.sum), from, n, sums, at, output.step);
  }
}

void FusedLoop::Impl::run_piece(const Piece& piece, void* const* in, void* const* out, double* sums,
                                std::byte* scratch) const {
  const std::size_t padded = (piece.n + kLaneGroup - 1) / kLaneGroup * kLaneGroup;
  std::array<BlockOperand, kMaxInputs> inputs;
  Prefetch next(code_.size());
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].uniform) continue;
    inputs[i] = load_input(i, piece, in, scratch, padded);
    if (inputs[i].data != scratch + inputs_[i].at) next.add(inputs[i].data, padded * inputs_[i].wide);
  }
  const Output* direct = nullptr;
  void* direct_to = nullptr;
  for (std::size_t o = 0; direct_ && padded == piece.n && o < outputs_.size(); ++o) {
    const Output& output = outputs_[o];
    if (!output.direct || !(output.dense || (piece.rows == 1 && output.step == 1))) continue;
    direct = &output;
    direct_to = output_at(o, piece, out);
  }
  for (std::size_t i = 0; i < code_.size(); ++i) {
    next.some();
    const bool straight = direct != nullptr && i + 1 == code_.size();
    execute(code_[i], scratch, inputs.data(), straight ? direct_to : scratch + code_[i].result_at, padded);
  }
  for (std::size_t o = 0; o < outputs_.size(); ++o) {
    const Output& output = outputs_[o];
    if (&output == direct) continue;
    alignas(64) std::byte block[kMaxBlock * 8];
    const void* from = output.from.input >= 0 ? inputs[static_cast<std::size_t>(output.from.input)].data
                                              : scratch + output.from.at;
    if (output.from.uniform) {  // one value for all elements: spread it over a block first
      load_block(type_of(lane_of(output.type)), scratch + output.from.at, 0, block, piece.n);
      from = block;
    }
    if (output.sum >= 0) {
      add_output(o, piece, sums, static_cast<const std::byte*>(from));
    } else {
      store_output(o, piece, out, static_cast<const std::byte*>(from));
    }
  }
}

void FusedLoop::Impl::run_range(void* const* in, void* const* out, double* sums, std::int64_t begin,
                                std::int64_t end) const {
  alignas(64) static thread_local std::byte scratch[kUniformBytes + kBlockBytes];
  if (uniforms_) run_uniform(in, scratch);
  for (std::int64_t p = begin; p < end; ++p) run_piece(piece(p), in, out, sums, scratch);
}

void FusedLoop::Impl::run_sums(void* const* in, void* const* out, double* scratch, bool alone) const {
  const std::int64_t parts = std::min(FusedSums::kMaxParts, pieces_);
  const int threads = alone ? 1 : threads_;
  for_each_part(threads, [&](int t) {
    for (std::int64_t part = parts * t / threads; part < parts * (t + 1) / threads; ++part) {
      double* sums = sums_.of_part(scratch, part);
      sums_.clear(sums);
      run_range(in, out, sums, pieces_ * part / parts, pieces_ * (part + 1) / parts);
    }
  });
  for_each_part(threads, [&](int t) {
    for (std::size_t o = 0; o < outputs_.size(); ++o)
      if (outputs_[o].sum >= 0)
        sums_.finish(static_cast<std::size_t>(outputs_[o].sum), scratch, parts, out[o], t, threads);
  });
}

void FusedLoop::Impl::run(void* const* in, void* const* out, double* scratch) const {
  const bool alone = threads_ == 1 || rows_ * length_ < kWorthThreads;
  if (!sums_.empty()) return run_sums(in, out, scratch, alone);
  if (alone) return run_range(in, out, nullptr, 0, pieces_);
  for_each_part(threads_, [&](int t) {
    run_range(in, out, nullptr, pieces_ * t / threads_, pieces_ * (t + 1) / threads_);
  });
}

FusedLoop::FusedLoop(const FusedSpec& spec) : impl_(std::make_unique<Impl>(spec)) {}
FusedLoop::~FusedLoop() = default;
FusedLoop::FusedLoop(FusedLoop&&) noexcept = default;
FusedLoop& FusedLoop::operator=(FusedLoop&&) noexcept = default;

void FusedLoop::run(void* const* in, void* const* out, void* scratch) const {
  impl_->run(in, out, static_cast<double*>(scratch));
}

}  // namespace tessera
