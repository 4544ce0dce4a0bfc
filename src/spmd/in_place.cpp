// Which collectives may leave their results where their inputs are, as far as boxes decide it.
#include "spmd/in_place.h"

#include <vector>

namespace tessera {
namespace {

const ProgramValue& at(const Program& program, int id) {
  return program.values[static_cast<std::size_t>(id)];
}

}  // namespace

bool same_part(const Program& program, int a, int b) {
  const ProgramValue &one = at(program, a), &other = at(program, b);
  const Shape &shape = one.type.shape, &named = other.type.shape;
  bool sizes = shape.count() == named.count() && one.type.dtype == other.type.dtype;
  for (std::size_t d = 0; sizes && d < shape.count(); ++d) sizes = shape[d].size == named[d].size;
  Placement summed = one.placement;
  summed.pending = other.placement.pending;
  return sizes && same_placement(program.mesh, shape, summed, other.placement);
}

bool lies_in_gathered(const Program& program, int in, int out) {
  const Shape& shape = at(program, in).type.shape;
  auto bytes = static_cast<std::int64_t>(size_of(at(program, in).type.dtype));
  std::size_t d = shape.count();  // the dimension that is gathered
  while (d-- > 0) {
    const Cut &part = at(program, in).placement.cuts[d], &whole = at(program, out).placement.cuts[d];
    const std::int64_t size = shape[d].size, parts = program.mesh.flat_size(part.axes);
    if (part != whole) break;
    if (size % (parts * part.grain) != 0) return false;
    bytes *= size / parts;
  }
  const Cut& cut = at(program, in).placement.cuts[d];
  const std::int64_t parts = program.mesh.flat_size(cut.axes);
  for (std::int64_t i = 1; i < parts; ++i)
    if (cut_at(shape[d].size, cut.grain, parts, i) * bytes % kArenaAlignment != 0) return false;
  while (d-- > 0)
    if (largest_part(program.mesh, at(program, out).placement.cuts[d], shape[d].size) > 1) return false;
  return true;
}

// True where, of the two dimensions that exchange a cut into equal parts, the outer one has an element a part
// and nothing is outside of either.
bool parts_are_mirrored(const Program& program, int in, int out) {
  const Shape& shape = at(program, in).type.shape;
  const std::vector<Cut>&before = at(program, in).placement.cuts, &after = at(program, out).placement.cuts;
  std::vector<std::size_t> moved;
  for (std::size_t d = 0; d < shape.count() && moved.size() < 2; ++d) {
    if (before[d] != after[d]) {
      moved.push_back(d);
    } else if (largest_part(program.mesh, before[d], shape[d].size) > 1) {
      return false;
    }
  }
  const std::size_t outer = moved.at(0), inner = moved.at(1);
  const Cut &first = before[outer].whole() ? after[outer] : before[outer],
            &second = before[outer].whole() ? before[inner] : after[inner],
            &rest = before[outer].whole() ? after[inner] : before[inner];
  const std::int64_t parts = program.mesh.flat_size(first.axes);
  return rest.whole() && first.axes == second.axes && first.grain == 1 && shape[outer].size == parts &&
         shape[inner].size % (parts * second.grain) == 0;
}

}  // namespace tessera
