// Runs a fused loop, piece by piece.
#include "exec/cpu/fused.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "exec/cpu/fused_plan.h"
#include "exec/team.h"

namespace tessera {
namespace {

constexpr std::int64_t kWorthThreads = 32 * 1024;  // elements

// Asks for what the next block will read, some of it before each instruction of this one: an instruction
// reads a few kilobytes at a time, too little for the hardware to see the streams.
template <std::size_t kMaxInputs>
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

DType type_of(Lane lane) {
  return lane == Lane::F32 ? DType::F32 : lane == Lane::F64 ? DType::F64 : DType::I32;
}

}  // namespace

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
  Prefetch<kMaxInputs> next(code_.size());
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
