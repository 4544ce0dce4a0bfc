// Typed access to shards and the generic executors of records.
#include "lang/reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/random_runs.h"

namespace tessera {
namespace {

std::int32_t to_i32(double value) {
  if (std::isnan(value)) return 0;
  constexpr double kLow = std::numeric_limits<std::int32_t>::min(),
                   kHigh = std::numeric_limits<std::int32_t>::max();
  return static_cast<std::int32_t>(std::clamp(value, kLow, kHigh));
}

std::vector<std::int64_t> row_major(const Shape& shape) {
  std::vector<std::int64_t> stride(shape.count());
  std::int64_t step = 1;
  for (std::size_t d = shape.count(); d-- > 0;) {
    stride[d] = step;
    step *= shape[d].size;
  }
  return stride;
}

// Strides of `view` along the dimensions of `over`, 0 where it is broadcast.
std::vector<std::int64_t> strides_along(const View& view, const Shape& over) {
  std::vector<std::int64_t> stride(over.count(), 0);
  for (std::size_t d = 0; d < view.shape.count(); ++d) {
    const int at = over.find(view.shape[d].name);
    TESSERA_ASSERT(at >= 0 && over[static_cast<std::size_t>(at)].size == view.shape[d].size,
                   "component-wise op: [{}] does not broadcast to [{}]", to_string(view.shape),
                   to_string(over));
    stride[static_cast<std::size_t>(at)] = view.stride[d];
  }
  return stride;
}

std::int64_t dot(std::span<const std::int64_t> a, std::span<const std::int64_t> b) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

std::int64_t index_at(const Affine& affine, std::span<const std::int64_t> refined) {
  std::int64_t index = affine.offset;
  for (const Affine::Part& part : affine.parts)
    index += part.stride * refined[static_cast<std::size_t>(part.refined)];
  return index;
}

// Offset of the element with global index affine(refined), or -1 when the shard does not hold it.
std::int64_t local_offset(const View& view, const std::vector<Affine>& affine,
                          std::span<const std::int64_t> refined) {
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < affine.size(); ++d) {
    const std::int64_t local = index_at(affine[d], refined) - view.start[d];
    if (local < 0 || local >= view.shape[d].size) return -1;
    offset += local * view.stride[d];
  }
  return offset;
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a > 0 ? (a + b - 1) / b : -(-a / b);
}

// Narrows the loops to what the shard can hold, for every index that is made of one refined dimension with a
// positive stride; the check per element does the rest.
void narrow(const View& view, const std::vector<Affine>& affine, std::vector<std::int64_t>& begin,
            std::vector<std::int64_t>& end) {
  for (std::size_t d = 0; d < affine.size(); ++d) {
    if (affine[d].parts.size() != 1 || affine[d].parts[0].stride <= 0) continue;
    const auto& [refined, stride] = affine[d].parts[0];
    const auto r = static_cast<std::size_t>(refined);
    const std::int64_t low = view.start[d] - affine[d].offset;
    begin[r] = std::max(begin[r], ceil_div(low, stride));
    end[r] = std::min(end[r], ceil_div(low + view.shape[d].size, stride));
  }
}

void fill_view(const View& view, double value) {
  for_each_index(sizes_of(view.shape), [&](auto index) { store(view, offset_of(view, index), value); });
}

void run_move(const Move& move, const View& in, const View& out) {
  std::vector<std::int64_t> begin(move.extent.size(), 0), end = move.extent, size(move.extent.size());
  narrow(in, move.in, begin, end);
  narrow(out, move.out, begin, end);
  for (std::size_t r = 0; r < size.size(); ++r) size[r] = std::max<std::int64_t>(0, end[r] - begin[r]);
  const std::size_t bytes = size_of(out.dtype);
  std::vector<std::int64_t> refined(size.size());
  for_each_index(size, [&](auto index) {
    for (std::size_t r = 0; r < size.size(); ++r) refined[r] = begin[r] + index[r];
    const std::int64_t from = local_offset(in, move.in, refined), to = local_offset(out, move.out, refined);
    if (from < 0 || to < 0) return;
    std::memcpy(out.as<char>() + to * static_cast<std::int64_t>(bytes),
                in.as<char>() + from * static_cast<std::int64_t>(bytes), bytes);
  });
}

}  // namespace

double load(const void* data, DType type, std::int64_t offset) {
  switch (type) {
    case DType::F32:
      return static_cast<const float*>(data)[offset];
    case DType::BF16:
      return static_cast<double>(static_cast<const bf16*>(data)[offset]);
    case DType::F64:
      return static_cast<const double*>(data)[offset];
    case DType::I32:
      return static_cast<const std::int32_t*>(data)[offset];
    case DType::Bool:
      return static_cast<const std::uint8_t*>(data)[offset] != 0;
  }
  TESSERA_ASSERT(false, "unknown type");
}

void store(void* data, DType type, std::int64_t offset, double value) {
  switch (type) {
    case DType::F32:
      static_cast<float*>(data)[offset] = static_cast<float>(value);
      return;
    case DType::BF16:
      static_cast<bf16*>(data)[offset] = bf16(static_cast<float>(value));
      return;
    case DType::F64:
      static_cast<double*>(data)[offset] = value;
      return;
    case DType::I32:
      static_cast<std::int32_t*>(data)[offset] = to_i32(value);
      return;
    case DType::Bool:
      static_cast<std::uint8_t*>(data)[offset] = value != 0;
      return;
  }
  TESSERA_ASSERT(false, "unknown type");
}

double round_to(DType type, double value) {
  double bits = 0;
  store(&bits, type, 0, value);
  return load(&bits, type, 0);
}

std::int64_t offset_of(const View& view, std::span<const std::int64_t> index) {
  return dot(view.stride, index);
}

std::vector<std::int64_t> sizes_of(const Shape& shape) {
  std::vector<std::int64_t> sizes;
  for (const Dim& d : shape) sizes.push_back(d.size);
  return sizes;
}

View make_view(void* data, const Type& type) {
  return {data,
          type.dtype,
          type.shape,
          row_major(type.shape),
          std::vector<std::int64_t>(type.shape.count(), 0),
          sizes_of(type.shape)};
}

View make_view(void* data, const Type& global, const Box& box) {
  std::vector<Dim> dims = global.shape.dims();
  for (std::size_t d = 0; d < dims.size(); ++d) dims[d].size = box.size[d];
  Shape local(std::move(dims));
  std::vector<std::int64_t> stride = row_major(local);
  return {data, global.dtype, std::move(local), std::move(stride), box.start, sizes_of(global.shape)};
}

namespace {

double scaled(const Initializer& init, float drawn) {
  const auto x = static_cast<double>(drawn);
  return init.kind == Initializer::Kind::Uniform ? init.a + (init.b - init.a) * x : init.a * x;
}

}  // namespace

double initial_value(const Initializer& init, RandomKey key, std::uint64_t index) {
  switch (init.kind) {
    case Initializer::Kind::Zeros:
      return 0;
    case Initializer::Kind::Constant:
      return init.a;
    case Initializer::Kind::Normal:
      return scaled(init, random_normal_at(key, index));
    case Initializer::Kind::TruncatedNormal:
      return scaled(init, random_truncated_normal_at(key, index));
    case Initializer::Kind::Uniform:
      return scaled(init, random_uniform_at(key, index));
  }
  TESSERA_ASSERT(false, "unknown initialiser");
}

void initial_values(const Initializer& init, RandomKey key, std::uint64_t first, std::span<double> out) {
  using Kind = Initializer::Kind;
  if (init.kind == Kind::Zeros || init.kind == Kind::Constant) {
    std::fill(out.begin(), out.end(), initial_value(init, key, first));
    return;
  }
  const auto draw = init.kind == Kind::Normal            ? random_normal_run
                    : init.kind == Kind::TruncatedNormal ? random_truncated_normal_run
                                                         : random_uniform_run;
  std::array<float, 256> drawn;
  for (std::size_t at = 0; at < out.size(); at += drawn.size()) {
    const std::size_t n = std::min(drawn.size(), out.size() - at);
    draw(key, first + at, {drawn.data(), n});
    for (std::size_t i = 0; i < n; ++i) out[at + i] = scaled(init, drawn[i]);
  }
}

void run_scalar(const ScalarCode& code, std::span<const View> in, std::span<const View> out) {
  const Shape& over = out[0].shape;
  std::vector<std::vector<std::int64_t>> in_strides, out_strides;
  for (const View& view : in) in_strides.push_back(strides_along(view, over));
  for (const View& view : out) out_strides.push_back(strides_along(view, over));
  std::vector<double> values(in.size());
  for_each_index(sizes_of(over), [&](auto index) {
    for (std::size_t i = 0; i < in.size(); ++i) values[i] = load(in[i], dot(in_strides[i], index));
    const std::vector<double> results = interpret(code, values);
    for (std::size_t o = 0; o < out.size(); ++o) store(out[o], dot(out_strides[o], index), results[o]);
  });
}

void run_moves(std::span<const Move> moves, double fill, std::span<const View> in,
               std::span<const View> out) {
  for (const View& view : out) fill_view(view, fill);
  for (const Move& move : moves)
    run_move(move, in[static_cast<std::size_t>(move.input)], out[static_cast<std::size_t>(move.output)]);
}

void run_reference(const Op& op, KernelContext& context) {
  if (op.kernel) return op.kernel(context);
  if (op.scalar) return run_scalar(op.scalar(context.call), context.in, context.out);
  TESSERA_ASSERT(op.moves, "op '{}' has neither kernel, scalar code nor moves", op.name);
  run_moves(op.moves(context.call), op.fill, context.in, context.out);
}

}  // namespace tessera
