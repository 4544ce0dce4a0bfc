// One rank's view of a program: the box and the local type of every value.
#include "base/check.h"
#include "tessera/program.h"

namespace tessera {

BoundProgram bind(const Program& program, int rank) {
  TESSERA_CHECK(rank >= 0 && rank < program.mesh.ranks(), "bind: the mesh {} has no rank {}",
                to_string(program.mesh), rank);
  BoundProgram bound;
  bound.rank = rank;
  bound.boxes.reserve(program.values.size());
  bound.local.reserve(program.values.size());
  for (const ProgramValue& value : program.values) {
    Box box = box_of(program.mesh, value.type.shape, value.placement, rank);
    std::vector<Dim> dims = value.type.shape.dims();
    for (std::size_t d = 0; d < dims.size(); ++d) dims[d].size = box.size[d];
    bound.local.push_back({Shape(std::move(dims)), value.type.dtype});
    bound.boxes.push_back(std::move(box));
  }
  return bound;
}

}  // namespace tessera
