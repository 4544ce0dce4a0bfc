// What all that look at or change the steps of a program need.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tessera/program.h"

namespace tessera {

// A name with the user's line, as far as it is known: "ffn/wi (model.cc:88)".
std::string origin(const std::string& name, const std::string& where);

// The value whose bytes `id` views, itself if none.
int base_of(const Program& program, int id);

// True where the step's work is that of its call's op.
inline bool runs_op(const Step& step) {
  return step.kind == Step::Kind::Run || step.contracts();
}

// What `reader` takes of input `i` of `member` in a Contract (its Start or Wait): a box of global indices.
Box contract_box(const Program& program, const Step& step, std::size_t i, int member, int reader);

// What moves between input `i` of a Start or Wait and its output.
Move move_of(const Program& program, const Step& step, std::size_t i);

// Who comes after whom: a step after those that wrote what it reads or writes, and after those that read what
// it writes.
struct Dependencies {
  std::vector<std::vector<std::size_t>> needs, followers;  // by step, ascending
};
Dependencies dependencies(const Program& program);

// Keeps the steps with these indices, in this order. REQUIRES a Start before each Wait.
void arrange(Program& program, const std::vector<std::size_t>& order);

}  // namespace tessera
