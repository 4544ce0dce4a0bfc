// Scalar code as a list of block instructions over registers: the part of a fused loop that does not know the
// loop.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "exec/cpu/fused_code.h"

namespace tessera {

// Where a register lives. A uniform one has equal elements and is computed once per run.
struct FusedRegister {
  Lane lane = Lane::F32;
  bool uniform = false;
  int slot = -1;   // scratch slot of a uniform register, or of a block
  int input = -1;  // its values may be read straight from this input's memory
};

struct FusedInstr {
  BlockInstruction run = nullptr;
  int result = -1;
  std::array<int, 3> operand = {-1, -1, -1};
};

class FusedProgram {
 public:
  FusedProgram(const ScalarCode& source, const std::vector<DType>& in, const std::vector<DType>& out,
               const std::vector<bool>& uniform_input);

  // Gives slots to the registers: uniform ones keep theirs, the others share by lifetime. Returns the number
  // of blocks.
  int assign_slots();

  std::vector<FusedRegister> registers;
  std::vector<FusedInstr> code;
  std::vector<int> results;
  std::vector<std::pair<int, double>> constants;  // register, value

 private:
  int add(const FusedRegister& reg);
  Lane lane(int reg) const { return registers[static_cast<std::size_t>(reg)].lane; }
  bool uniform(int reg) const { return reg < 0 || registers[static_cast<std::size_t>(reg)].uniform; }
  int push(BlockInstruction run, Lane result, std::array<int, 3> operand);
  int cast(int reg, DType type);
  int as(Lane wanted, int reg);
  int emit(const Instruction& i);

  std::vector<int> names_;  // register of the scalar code -> register here
};

}  // namespace tessera
