// A fused loop made ready: registers have places in the first-level cache, and the loop nest is a list of
// pieces, each a run of consecutive elements of the output.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "exec/cpu/fused.h"
#include "exec/cpu/fused_code.h"
#include "exec/cpu/fused_program.h"
#include "exec/cpu/fused_sum.h"

namespace tessera {

struct FusedLoop::Impl {
  explicit Impl(const FusedSpec& spec);

  void run(void* const* in, void* const* out, double* scratch) const;

 private:
  // Registers of one thread: half of the first-level cache, the other half is for what streams through.
  static constexpr std::size_t kBlockBytes = 16 * 1024, kUniformBytes = 32 * 1024;
  static constexpr std::size_t kMaxBlock = 2048;  // elements
  static constexpr std::size_t kGroupBytes = kLaneGroup * 8;
  static constexpr std::size_t kMaxInputs = 64;
  static constexpr std::int64_t kShortRow = 192;  // shorter rows are put together into one piece

  struct Loop {
    std::int64_t extent = 1;
    std::vector<std::int64_t> stride;  // per operand: inputs, then outputs
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

  // A piece: consecutive elements from `row`, `at` on; in short-row mode several whole rows.
  struct Piece {
    std::int64_t row = 0, rows = 1, at = 0;
    std::size_t n = 0;
  };

  // How the loop is cut (fused_plan.cpp).
  static std::vector<Loop> collapse(const FusedSpec& spec);
  static Operand operand_of(const FusedProgram& program, std::size_t reg,
                            const std::vector<std::uint32_t>& at);
  void cut_rows();
  std::vector<bool> uniform_inputs(std::size_t inputs) const;
  Stream stream(std::size_t operand, DType type) const;
  void place(FusedProgram& program, const FusedSpec& spec);
  void place_outputs(const FusedProgram& program, const FusedSpec& spec,
                     const std::vector<std::uint32_t>& at);
  void place_sums(const FusedSpec& spec);

  // One run of it (fused.cpp).
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

}  // namespace tessera
