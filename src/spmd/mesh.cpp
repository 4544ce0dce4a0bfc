// Meshes: row-major numbering of ranks and their groups along axes.
#include "base/check.h"
#include "tessera/layout.h"

namespace tessera {
namespace {

// Names, their uniqueness and the text form follow the rules of dimensions; a message says that it is about a
// mesh.
template <class Make>
Shape axes_of(const Make& make) {
  try {
    return make();
  } catch (const UserError& e) {
    throw UserError(fmt::format("mesh: axes are written like dimensions, rows:2;cols:4: {}", e.what()));
  }
}

}  // namespace

Mesh::Mesh(std::vector<Dim> axes) : axes_(std::move(axes)) {
  std::int64_t ranks = 1;
  Shape checked = axes_of([&] { return Shape(axes_); });
  for (const Dim& axis : axes_) {
    TESSERA_CHECK(axis.size >= 1,
                  "mesh: axis '{}' has size {}; an axis has at least one rank, so write 1 or more", axis.name,
                  axis.size);
    ranks *= axis.size;
    TESSERA_CHECK(ranks <= (1 << 20), "mesh: {} has more than 2^20 ranks; make an axis smaller",
                  to_string(checked));
  }
}

Mesh Mesh::parse(std::string_view text) {
  return Mesh(axes_of([&] { return parse_shape(text); }).dims());
}

std::string to_string(const Mesh& mesh) {
  return to_string(Shape(mesh.axes()));
}

int Mesh::find(std::string_view name) const {
  for (int a = 0; a < axis_count(); ++a) {
    if (axis_name(a) == name) return a;
  }
  return -1;
}

int Mesh::ranks() const {
  int n = 1;
  for (int a = 0; a < axis_count(); ++a) n *= axis_size(a);
  return n;
}

std::vector<int> Mesh::coordinates(int rank) const {
  std::vector<int> result(axes_.size());
  for (int a = axis_count() - 1; a >= 0; --a) {
    result[static_cast<std::size_t>(a)] = rank % axis_size(a);
    rank /= axis_size(a);
  }
  return result;
}

int Mesh::rank_of(const std::vector<int>& coordinates) const {
  int rank = 0;
  for (int a = 0; a < axis_count(); ++a)
    rank = rank * axis_size(a) + coordinates[static_cast<std::size_t>(a)];
  return rank;
}

int Mesh::flat(const std::vector<int>& axes, int rank) const {
  int position = 0;
  for (int a : axes) {
    int inner = 1;
    for (int b = a + 1; b < axis_count(); ++b) inner *= axis_size(b);
    position = position * axis_size(a) + rank / inner % axis_size(a);
  }
  return position;
}

int Mesh::flat_size(const std::vector<int>& axes) const {
  int n = 1;
  for (int a : axes) n *= axis_size(a);
  return n;
}

std::vector<int> Mesh::group(const std::vector<int>& axes, int rank) const {
  int n = flat_size(axes);
  std::vector<int> at = coordinates(rank);
  std::vector<int> members(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) {
    int rest = i;
    for (std::size_t k = axes.size(); k-- > 0;) {
      at[static_cast<std::size_t>(axes[k])] = rest % axis_size(axes[k]);
      rest /= axis_size(axes[k]);
    }
    members[static_cast<std::size_t>(i)] = rank_of(at);
  }
  return members;
}

}  // namespace tessera
