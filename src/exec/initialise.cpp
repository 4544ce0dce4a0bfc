// Initial values of variables, drawn by global element index: every mesh and layout starts from the same
// bits.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>

#include "base/check.h"
#include "exec/store_impl.h"
#include "lang/reference.h"
#include "tessera/random.h"

namespace tessera {
namespace {

// Where runs of a shard's elements lie in the whole tensor: `length` elements that follow each other here do
// so there.
class Runs {
 public:
  Runs(const Shape& shape, const Box& box) : shape_(shape), box_(box) {
    for (std::size_t d = shape.count(); d-- > 0;) {
      length_ *= box.size[d];
      if (box.size[d] != shape[d].size) break;
    }
  }

  std::int64_t length() const { return length_; }

  // The global index of local element `local`.
  std::uint64_t index(std::int64_t local) const {
    std::int64_t stride = 1;
    std::uint64_t index = 0;
    for (std::size_t d = shape_.count(); d-- > 0;) {
      index += static_cast<std::uint64_t>((box_.start[d] + local % box_.size[d]) * stride);
      local /= box_.size[d];
      stride *= shape_[d].size;
    }
    return index;
  }

 private:
  const Shape& shape_;
  const Box& box_;
  std::int64_t length_ = 1;
};

void store_all(void* data, DType type, std::int64_t at, std::span<const double> values) {
  if (type == DType::F32) {
    auto* to = static_cast<float*>(data) + at;
    for (std::size_t i = 0; i < values.size(); ++i) to[i] = static_cast<float>(values[i]);
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i)
    store(data, type, at + static_cast<std::int64_t>(i), values[i]);
}

// What all elements have, if they are not drawn. Members of a pending sum other than the first hold zeros, so
// that the whole has the initial value; members of a maximum hold the same values: that is theirs too.
std::optional<double> constant_of(const StoredVariable& stored, const StoredShard& shard) {
  const bool first = std::all_of(shard.pending.begin(), shard.pending.end(), [](int c) { return c == 0; });
  const std::vector<Reduction>& pending = stored.placement.pending;
  if (!first && std::find(pending.begin(), pending.end(), Reduction::Sum) != pending.end()) return 0;
  const Initializer& init = stored.variable.init;
  if (init.kind == Initializer::Kind::Zeros) return 0;
  if (init.kind == Initializer::Kind::Constant) return init.a;
  return std::nullopt;
}

}  // namespace

void initialise(StoredVariable& stored, StoredShard& shard, std::uint64_t seed, std::int64_t begin,
                std::int64_t end) {
  if (begin == end) return;
  const DType type = stored.type.dtype;
  const std::optional<double> constant = constant_of(stored, shard);
  if (constant == 0.0 && !std::signbit(*constant)) {
    const auto element = static_cast<std::int64_t>(size_of(type));
    std::memset(shard.data.data() + begin * element, 0, static_cast<std::size_t>((end - begin) * element));
    return;
  }
  const RandomKey key = random_key(seed, stored.variable.name, 0);
  const Runs runs(stored.type.shape, shard.box);
  std::array<double, 1024> values;
  for (std::int64_t local = begin; local < end;) {
    const std::int64_t left = std::min(end - local, runs.length() - local % runs.length());
    const std::size_t n = std::min(values.size(), static_cast<std::size_t>(left));
    const std::span<double> some(values.data(), n);
    if (constant) {
      std::fill(some.begin(), some.end(), *constant);
    } else {
      initial_values(stored.variable.init, key, runs.index(local), some);
    }
    store_all(shard.data.data(), type, local, some);
    local += static_cast<std::int64_t>(n);
  }
}

}  // namespace tessera
