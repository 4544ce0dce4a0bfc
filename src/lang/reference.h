// The reference executor: runs one op on one shard from its record alone, slowly and plainly. It is the
// oracle of every fast kernel and the fallback of the executor.
#pragma once

#include <span>
#include <vector>

#include "tessera/box.h"
#include "tessera/op.h"

namespace tessera {

// Element `offset` (in elements) of a buffer as double, and back. Storing rounds once to the type (bf16
// through float, i32 truncates and saturates, NaN becomes 0, bool is value != 0). i32 and bool are exact.
double load(const void* data, DType type, std::int64_t offset);
void store(void* data, DType type, std::int64_t offset, double value);
inline double load(const View& view, std::int64_t offset) {
  return load(view.data, view.dtype, offset);
}
inline void store(const View& view, std::int64_t offset, double value) {
  store(view.data, view.dtype, offset, value);
}
double round_to(DType type, double value);  // what store and load would give back

// Offset in elements of a local multi-index.
std::int64_t offset_of(const View& view, std::span<const std::int64_t> index);

// Row-major views over a buffer: the whole tensor, or the shard `box` of one with the sizes of `global`.
View make_view(void* data, const Type& type);
View make_view(void* data, const Type& global, const Box& box);

// Calls body(index) for every multi-index of the sizes, row-major; never when a size is 0, once for a scalar.
template <class Body>
void for_each_index(std::span<const std::int64_t> sizes, Body body) {
  for (std::int64_t s : sizes) {
    if (s == 0) return;
  }
  std::vector<std::int64_t> index(sizes.size(), 0);
  while (true) {
    body(std::span<const std::int64_t>(index));
    std::size_t d = sizes.size();
    while (d > 0 && ++index[d - 1] == sizes[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}
std::vector<std::int64_t> sizes_of(const Shape& shape);

// Element `index` (global, row-major) of a variable before the first step; the key is random_key(seed, name,
// 0). The caller rounds it to the variable's type.
double initial_value(const Initializer& init, RandomKey key, std::uint64_t index);
// Elements first, first + 1, ...: the same bits.
void initial_values(const Initializer& init, RandomKey key, std::uint64_t first, std::span<double> out);

// Runs the op on the shards of the context: `kernel` if the record has one, else `scalar` (inputs broadcast
// by name, double arithmetic, results rounded once), else `moves` (fill, then the copies that fall into both
// local boxes). REQUIRES shards cut as the roles allow: an output element whose source lies on another rank
// keeps `fill`.
void run_reference(const Op& op, KernelContext& context);
void run_scalar(const ScalarCode& code, std::span<const View> in, std::span<const View> out);
void run_moves(std::span<const Move> moves, double fill, std::span<const View> in, std::span<const View> out);

}  // namespace tessera
