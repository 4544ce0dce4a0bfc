// Scalar code made ready for blocks of elements: every instruction becomes one vectorised loop over a block.
// The loops are chosen once, when a FusedLoop is built.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/op.h"

namespace tessera {

// What a block's registers hold: f32 and bf16 as f32; i32 and bool as i32.
enum class Lane : std::uint8_t { F32, F64, I32 };

inline Lane lane_of(DType type) {
  return type == DType::F64 ? Lane::F64 : type == DType::I32 || type == DType::Bool ? Lane::I32 : Lane::F32;
}
inline std::size_t bytes_of(Lane lane) {
  return lane == Lane::F64 ? 8 : 4;
}

// Blocks have a multiple of this many elements, so that no loop has a scalar tail. A register whose elements
// are all equal holds just one such group.
constexpr std::size_t kLaneGroup = 16;

// `mask` is all ones for a register with one value per element, kLaneGroup - 1 for one that repeats.
// Without initialisers: arrays of them are filled as far as they are used.
struct BlockOperand {
  const void* data;
  std::size_t mask;
};

using BlockInstruction = void (*)(const BlockOperand* operands, void* result, std::size_t n);

// `lane` is what the operands hold (Select: its second and third; the first is i32). Comparisons and logic
// give i32. Const and Cast are not instructions of blocks. nullptr: no such instruction on this lane.
BlockInstruction block_instruction(Scalar op, Lane lane);

// Change of type in registers; `type` is the result's. bf16 is rounded and stays in f32; bool is "not zero".
BlockInstruction block_cast(Lane from, DType type);

// Memory to register (stride in elements; 0 repeats one element) and back. Neither touches memory beyond n
// elements.
void load_block(DType type, const void* from, std::int64_t stride, void* to, std::size_t n);
void store_block(DType type, const void* from, void* to, std::int64_t stride, std::size_t n);

}  // namespace tessera
