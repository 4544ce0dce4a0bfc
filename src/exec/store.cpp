// Variables by name, in shards.
#include <algorithm>
#include <cstring>
#include <functional>

#include "base/check.h"
#include "exec/store_impl.h"
#include "lang/reference.h"

namespace tessera {
namespace {

bool complete(const StoredVariable& v) {
  return v.placement.complete();
}

bool first_member(const StoredShard& shard) {
  return std::all_of(shard.pending.begin(), shard.pending.end(), [](int c) { return c == 0; });
}

Reduction reduction_of(const StoredVariable& v) {
  for (Reduction r : v.placement.pending)
    if (r != Reduction::None) return r;
  return Reduction::None;
}

double combined(Reduction reduction, double a, double b) {
  switch (reduction) {
    case Reduction::Max:
      return std::max(a, b);
    case Reduction::Min:
      return std::min(a, b);
    default:
      return a + b;
  }
}

void check_box(const StoredVariable& v, const Box& box) {
  const Shape& shape = v.type.shape;
  bool fits = box.start.size() == shape.count() && box.size.size() == shape.count();
  for (std::size_t d = 0; fits && d < shape.count(); ++d)
    fits = box.start[d] >= 0 && box.size[d] >= 0 && box.end(d) <= shape[d].size;
  TESSERA_CHECK(fits, "variable '{}': the box {} does not lie in {}", v.variable.name, to_string(box),
                to_string(v.type));
}

Box whole(const Shape& shape) {
  return {std::vector<std::int64_t>(shape.count(), 0), sizes_of(shape)};
}

// Adds a shard's part to `out`, which holds what members before it gave (nothing for the first).
void add_part(const StoredVariable& v, const StoredShard& shard, const Box& box, void* out) {
  const Box part = intersect(shard.box, box);
  const std::size_t element = size_of(v.type.dtype);
  if (part.empty()) return;
  if (first_member(shard)) return copy_box(shard.data.data(), shard.box, out, box, part, element);
  std::vector<std::byte> more(static_cast<std::size_t>(part.elements()) * element), sum = more;
  copy_box(shard.data.data(), shard.box, more.data(), part, part, element);
  copy_box(out, box, sum.data(), part, part, element);
  for (std::int64_t i = 0; i < part.elements(); ++i) {
    const double a = load(sum.data(), v.type.dtype, i), b = load(more.data(), v.type.dtype, i);
    store(sum.data(), v.type.dtype, i, combined(reduction_of(v), a, b));
  }
  copy_box(sum.data(), part, out, box, part, element);
}

}  // namespace

StoredVariable lay_out(const Mesh& mesh, const Variable& variable, const Type& type,
                       const Placement& placement) {
  StoredVariable stored{type, variable, placement, {}, {}};
  const std::vector<int> pending_axes = placement.pending_axes();
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const Box box = box_of(mesh, type.shape, placement, rank);
    std::vector<int> pending;
    for (int axis : pending_axes) pending.push_back(mesh.coordinates(rank)[static_cast<std::size_t>(axis)]);
    auto at = std::find_if(stored.shards.begin(), stored.shards.end(),
                           [&](const StoredShard& s) { return s.box == box && s.pending == pending; });
    if (at == stored.shards.end()) {
      stored.shards.push_back({box, pending, {}, {}});
      at = std::prev(stored.shards.end());
    }
    at->ranks.push_back(rank);
    stored.shard_of_rank.push_back(static_cast<int>(at - stored.shards.begin()));
  }
  return stored;
}

std::int64_t bytes_of(const StoredVariable& stored) {
  std::int64_t total = 0;
  for (const StoredShard& shard : stored.shards) total += static_cast<std::int64_t>(stored.bytes(shard));
  return total;
}

StoredVariable& Store::Impl::add(StoredVariable stored) {
  for (StoredShard& shard : stored.shards) shard.data = AlignedBuffer(stored.bytes(shard));
  const std::string name = stored.variable.name;
  return variables[name] = std::move(stored);
}

StoredVariable& Store::Impl::get(const std::string& name) {
  auto it = variables.find(name);
  if (it != variables.end()) return it->second;
  std::vector<std::string> names;
  for (const auto& [known, stored] : variables) names.push_back(known);
  const std::string near = nearest_name(name, names);
  throw UserError(fmt::format("the store has no variable '{}'{}", name,
                              near.empty() ? std::string() : fmt::format("; did you mean '{}'?", near)));
}

Store::Store() : impl_(std::make_unique<Impl>()) {}
Store::~Store() = default;

std::vector<std::string> Store::names() const {
  std::vector<std::string> names;
  for (const auto& [name, stored] : impl_->variables)
    if (stored.variable.kind != VariableKind::Copy) names.push_back(name);
  return names;
}

bool Store::has(const std::string& name) const {
  return impl_->variables.count(name) != 0;
}

Type Store::type(const std::string& name) const {
  return impl_->get(name).type;
}

VariableKind Store::kind(const std::string& name) const {
  return impl_->get(name).variable.kind;
}

Array Store::read(const std::string& name) const {
  Array array(type(name));
  read(name, whole(array.type.shape), array.data.data());
  return array;
}

void Store::read(const std::string& name, const Box& box, void* out) const {
  StoredVariable& v = impl_->get(name);
  check_box(v, box);
  for (const StoredShard& shard : v.shards) add_part(v, shard, box, out);
}

void Store::write(const std::string& name, const Array& value) {
  const StoredVariable& v = impl_->get(name);
  TESSERA_CHECK(value.type == v.type, "variable '{}' is {}, but the value is {}", name, to_string(v.type),
                to_string(value.type));
  write(name, whole(v.type.shape), value.data.data());
}

void Store::write(const std::string& name, const Box& box, const void* data) {
  StoredVariable& v = impl_->get(name);
  check_box(v, box);
  ++v.version;
  const std::size_t element = size_of(v.type.dtype);
  for (StoredShard& shard : v.shards) {
    const Box part = intersect(shard.box, box);
    if (part.empty()) continue;
    if (first_member(shard) || reduction_of(v) != Reduction::Sum) {
      copy_box(data, box, shard.data.data(), shard.box, part, element);
    } else {
      const std::vector<std::byte> zeros(static_cast<std::size_t>(part.elements()) * element);
      copy_box(zeros.data(), part, shard.data.data(), shard.box, part, element);
    }
  }
}

void Store::shards(const std::string& name, const std::function<void(const Box&, const void*)>& visit) const {
  StoredVariable& v = impl_->get(name);
  for (const StoredShard& shard : v.shards) {
    if (complete(v)) {
      visit(shard.box, shard.data.data());
    } else if (first_member(shard)) {
      std::vector<std::byte> sum(shard.data.size());
      read(name, shard.box, sum.data());
      visit(shard.box, sum.data());
    }
  }
}

std::int64_t Store::bytes() const {
  std::int64_t total = 0;
  for (const auto& [name, v] : impl_->variables) total += bytes_of(v);
  return total;
}

std::int64_t Store::bytes_of_rank(int rank) const {
  std::int64_t total = 0;
  for (auto& [name, v] : impl_->variables) total += static_cast<std::int64_t>(v.shard(rank).data.size());
  return total;
}

bool Store::torn() const {
  return impl_->torn.load();
}

}  // namespace tessera
