// Initial values of variables, drawn by global element index: every mesh and layout starts from the same
// bits.
#include <algorithm>

#include "base/check.h"
#include "exec/store_impl.h"
#include "lang/reference.h"
#include "tessera/random.h"

namespace tessera {
namespace {

// What a member of a pending sum other than the first starts with, so that the whole has the initial value.
double identity_of(Reduction reduction, double value) {
  return reduction == Reduction::Sum ? 0 : value;  // max and min of equal values are that value
}

}  // namespace

void initialise(StoredVariable& stored, StoredShard& shard, std::uint64_t seed, std::int64_t begin,
                std::int64_t end) {
  const RandomKey key = random_key(seed, stored.variable.name, 0);
  const std::vector<Dim>& dims = stored.type.shape.dims();
  const bool first = std::all_of(shard.pending.begin(), shard.pending.end(), [](int c) { return c == 0; });
  Reduction reduction = Reduction::None;
  for (Reduction r : stored.placement.pending)
    if (r != Reduction::None) reduction = r;
  for (std::int64_t local = begin; local < end; ++local) {
    std::int64_t rest = local, stride = 1;
    std::uint64_t index = 0;
    for (std::size_t d = dims.size(); d-- > 0;) {
      index += static_cast<std::uint64_t>((shard.box.start[d] + rest % shard.box.size[d]) * stride);
      rest /= shard.box.size[d];
      stride *= dims[d].size;
    }
    double value = initial_value(stored.variable.init, key, index);
    if (!first) value = identity_of(reduction, value);
    store(shard.data.data(), stored.type.dtype, local, value);
  }
}

}  // namespace tessera
