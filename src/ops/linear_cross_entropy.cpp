// An output projection and its cross-entropy in one op, so that a kernel can work on some rows at a time and
// the logits need not exist whole. Training uses linear_cross_entropy_sum: the loss of a step is a weighted
// sum, so its gradients are known up to one factor as soon as a row's logits are, and nothing is computed
// twice. Where the classes are split, the shards of a row tell each other its largest logit and its sum once
// a block of rows, and every output but the table's gradient is a sum over them.
#include <numeric>

#include "lang/row_part.h"
#include "ops/build.h"
#include "ops/loops.h"
#include "ops/records.h"

namespace tessera {
namespace {

struct Linear {
  explicit Linear(const Call& call)
      : classes(call.attrs.text("dim")),
        width(call.in[1].shape.without(classes)[0].name),
        rows(call.in[0].shape.without(width)),
        smoothing(call.attrs.number("label_smoothing")),
        z_loss(call.attrs.number("z_loss")) {}

  Type statistic(const Call& call) const { return {rows, wide_type(call.in[0].dtype)}; }

  std::string classes, width;  // dimensions of the table
  Shape rows;                  // those of x but the width
  double smoothing, z_loss;
};

void check_linear(const Call& call, std::size_t inputs) {
  check_count(call, inputs);
  check_floating(call, 0);
  check_dtype(call, 1, call.in[0].dtype);
  check_i32(call, 2, "targets");
  check_has(call, 1, call.attrs.text("dim"));
  const Shape &x = call.in[0].shape, &table = call.in[1].shape;
  TESSERA_CHECK(table.count() == 2, "{}: the table is [{}]; it needs the dimension '{}' and one more",
                call.op->name, to_string(table), call.attrs.text("dim"));
  const Linear linear(call);
  check_has(call, 0, linear.width);
  TESSERA_CHECK(!x.has(linear.classes), "{}: x is [{}] and has the classes' dimension '{}'; rename one",
                call.op->name, to_string(x), linear.classes);
  for (std::size_t i = 2; i < inputs; ++i) {
    TESSERA_CHECK(same_dims(call.in[i].shape, linear.rows),
                  "{}: {} are [{}] but x without '{}' is [{}]; rename or reduce until they agree",
                  call.op->name, i == 2 ? "targets" : "weights", to_string(call.in[i].shape), linear.width,
                  to_string(linear.rows));
  }
  TESSERA_CHECK(linear.smoothing >= 0 && linear.smoothing <= 1,
                "{}: label smoothing is {}; it must lie in [0, 1]", call.op->name, linear.smoothing);
  TESSERA_CHECK(linear.z_loss >= 0, "{}: z_loss is {}; it must not be negative", call.op->name,
                linear.z_loss);
}

std::vector<Type> infer_linear(const Call& call) {
  check_linear(call, 3);
  const Linear linear(call);
  return {linear.statistic(call), {linear.rows, DType::I32}};
}

std::vector<Type> infer_linear_sum(const Call& call) {
  check_linear(call, 4);
  const Type statistic = Linear(call).statistic(call);
  check_dtype(call, 3, statistic.dtype);
  return {{Shape(), statistic.dtype}, statistic, call.in[0], call.in[1]};
}

Role role_linear(const Call& call, int, const std::string& dim) {
  if (dim == call.attrs.text("dim")) return Role::Joint;
  return call.in[1].shape.has(dim) ? Role::Whole : Role::Map;
}

// The total and the table's gradient are sums over the rows; the rest keeps them.
Role role_linear_sum(const Call& call, int input, const std::string& dim) {
  const Role role = role_linear(call, input, dim);
  return role == Role::Map ? Role::Sum : role;
}

Exchange exchange_linear(const Call& call) {
  const Linear linear(call);
  const std::int64_t rows = linear.rows.elements();
  return linear.statistic(call).dtype == DType::F64 ? exchange_of_rows<double>(rows)
                                                    : exchange_of_rows<float>(rows);
}

// --- the reference kernels
// -----------------------------------------------------------------------------------

// One row: the shard's logits, and from them its part of the loss.
template <class T>
struct Row {
  explicit Row(const KernelContext& c)
      : linear(c.call),
        from(c.in[0], linear.width),
        weights(c.in[1], linear.width),
        class_stride(stride_of(c.in[1], linear.classes)),
        width(c.in[1].shape.size(linear.width)),
        first(c.in[1].start[static_cast<std::size_t>(c.in[1].shape.find(linear.classes))]),
        all_classes(c.call.in[1].shape.size(linear.classes)),
        leads(c.peers == nullptr || c.peers->index() == 0),
        logits(static_cast<std::size_t>(c.in[1].shape.size(linear.classes))) {}

  void read(std::int64_t at) {
    for (std::size_t v = 0; v < logits.size(); ++v) {
      const std::int64_t row = static_cast<std::int64_t>(v) * class_stride;
      logits[v] = sum_over(width, [&](std::int64_t i) { return from.at(at, i) * weights.at(row, i); });
    }
  }

  template <class P>
  RowPart<P> part() const {
    RowPart<P> part;
    for (std::size_t v = 0; v < logits.size(); ++v) {
      const auto value = static_cast<P>(logits[v]);
      const bool larger = v == 0 || value > part.max || std::isnan(value);
      if (!larger || std::isnan(part.max)) continue;
      part.best = static_cast<std::int32_t>(first + static_cast<std::int64_t>(v));
      part.max = std::isnan(value) ? value : std::max(value, std::numeric_limits<P>::lowest());
    }
    double sum = 0;
    for (const double value : logits) sum += std::exp(value - static_cast<double>(part.max));
    part.sum = static_cast<P>(sum);
    return part;
  }

  void complete(const WholeRow& whole) {
    log_z = whole.log_z();
    best = whole.best;
  }

  bool is_class(std::int64_t target) const { return target >= 0 && target < all_classes; }
  bool is_here(std::int64_t target) const {
    return target >= first && target < first + static_cast<std::int64_t>(logits.size());
  }
  bool live() const { return log_z != -INFINITY; }
  double off() const { return linear.smoothing / static_cast<double>(all_classes); }

  double loss(std::int64_t target) const {
    if (!live()) return 0;
    double result = leads ? linear.z_loss * log_z * log_z : 0;
    if (!is_class(target)) return result;
    if (leads) result += log_z;
    if (is_here(target)) result -= (1 - linear.smoothing) * logits[static_cast<std::size_t>(target - first)];
    return result - off() * std::accumulate(logits.begin(), logits.end(), 0.0);
  }

  // Of the loss to the shard's logit v.
  double slope(std::int64_t target, std::size_t v) const {
    if (!live()) return 0;
    const bool counted = is_class(target);
    const double p = logits[v] == -INFINITY ? 0 : std::exp(logits[v] - log_z);
    double slope = p * (counted + 2 * linear.z_loss * log_z);
    const bool hit = first + static_cast<std::int64_t>(v) == target;
    if (counted) slope -= off() + (hit ? 1 - linear.smoothing : 0);
    return slope;
  }

  const Linear linear;
  const Line<T> from, weights;
  std::int64_t class_stride, width;
  std::int64_t first, all_classes;  // of the shard's classes; of all shards'
  bool leads;                       // adds what belongs to the whole row
  std::vector<double> logits;
  double log_z = 0;
  std::int32_t best = 0;
};

// Calls f(offsets) for every row, complete; shards of split rows meet once a block.
template <class T, class F, class... Views>
void for_each_row(const KernelContext& c, Row<T>& row, F f, const Views&... views) {
  using Part = RowPart<Stat<T>>;
  std::vector<std::array<std::int64_t, sizeof...(Views) + 1>> lines;
  for_each_line(
      c.in[0].shape, row.linear.width, [&](auto at) { lines.push_back(at); }, c.in[0], views...);
  const RowBlocks blocks(static_cast<std::int64_t>(lines.size()));
  std::vector<Part> told(static_cast<std::size_t>(blocks.largest()));
  auto line = lines.begin();
  for (std::int64_t block = 0; block < blocks.count; ++block) {
    const Part* all = nullptr;
    if (c.peers != nullptr) {
      for (std::int64_t r = 0; r < blocks.rows_of(block); ++r) {
        row.read(line[r][0]);
        told[static_cast<std::size_t>(r)] = row.template part<Stat<T>>();
      }
      all = static_cast<const Part*>(c.peers->all_gather(told.data()));
    }
    for (std::int64_t r = 0; r < blocks.rows_of(block); ++r, ++line) {
      row.read((*line)[0]);
      const auto mine = row.template part<double>();
      row.complete(all == nullptr ? whole_row(&mine, 1, 0)
                                  : whole_row(all + r, c.peers->count(), blocks.largest()));
      f(*line);
    }
  }
}

void kernel_linear(KernelContext& c) {
  with_floating(c.in[0].dtype, [&]<class T>() {
    Row<T> row(c);
    for_each_row(
        c, row,
        [&](const auto& at) {
          c.out[0].as<Stat<T>>()[at[2]] = static_cast<Stat<T>>(row.loss(c.in[2].as<std::int32_t>()[at[1]]));
          c.out[1].as<std::int32_t>()[at[3]] = row.is_here(row.best) ? row.best : 0;
        },
        c.in[2], c.out[0], c.out[1]);
  });
}

void kernel_linear_sum(KernelContext& c) {
  with_floating(c.in[0].dtype, [&]<class T>() {
    Row<T> row(c);
    const Line<T> dx(c.out[2], row.linear.width), dtable(c.out[3], row.linear.width);
    const std::int64_t class_stride = stride_of(c.out[3], row.linear.classes);
    const auto width = static_cast<std::size_t>(row.width), classes = row.logits.size();
    std::vector<double> sums(classes * width, 0.0), mine(width);
    double total = 0;
    for_each_row(
        c, row,
        [&](const auto& at) {
          const std::int64_t target = c.in[2].as<std::int32_t>()[at[1]];
          const double weight = c.in[3].as<Stat<T>>()[at[2]], loss = row.loss(target);
          total += weight * loss;
          c.out[1].as<Stat<T>>()[at[3]] = static_cast<Stat<T>>(loss);
          std::fill(mine.begin(), mine.end(), 0.0);
          for (std::size_t v = 0; v < classes; ++v) {
            const double slope = weight * row.slope(target, v);
            for (std::size_t i = 0; i < width; ++i) {
              const auto k = static_cast<std::int64_t>(i);
              mine[i] += slope * row.weights.at(static_cast<std::int64_t>(v) * row.class_stride, k);
              sums[v * width + i] += slope * row.from.at(at[0], k);
            }
          }
          for (std::size_t i = 0; i < width; ++i) dx.set(at[4], static_cast<std::int64_t>(i), mine[i]);
        },
        c.in[2], c.in[3], c.out[1], c.out[2]);
    for (std::size_t v = 0; v < classes; ++v)
      for (std::size_t i = 0; i < width; ++i)
        dtable.set(static_cast<std::int64_t>(v) * class_stride, static_cast<std::int64_t>(i),
                   sums[v * width + i]);
    *c.out[0].as<Stat<T>>() = static_cast<Stat<T>>(total);
  });
}

// --- the same from other ops
// ---------------------------------------------------------------------------------

Tensor logits_of(ExpandContext& c, const Linear& linear) {
  return einsum({c.inputs[0], c.inputs[1]}, linear.rows.with(c.inputs[1].dim(linear.classes)));
}

std::vector<Tensor> expand_linear(ExpandContext& c) {
  const Linear linear(c.call);
  const Tensor logits = logits_of(c, linear);
  return {cross_entropy(logits, c.inputs[2], linear.classes, {linear.smoothing, linear.z_loss}),
          argmax(logits, linear.classes)};
}

std::vector<Tensor> expand_linear_sum(ExpandContext& c) {
  const Linear linear(c.call);
  const Tensor logits = logits_of(c, linear), weights = c.inputs[3];
  const std::vector<Tensor> forward =
      c.graph.add(kCrossEntropy, {logits, c.inputs[2]}, c.call.attrs, c.where);
  const Tensor dlogits = make(kCrossEntropyGrad, {logits, c.inputs[2], forward[1], weights}, c.call.attrs);
  return {reduce_sum(mul(forward[0], weights)), forward[0],
          einsum({dlogits, c.inputs[1]}, c.inputs[0].shape()),
          einsum({dlogits, c.inputs[0]}, c.inputs[1].shape())};
}

// --- the record's other parts
// --------------------------------------------------------------------------------

bool is_constant_one(const Tensor& x) {
  const Node& node = x.graph().node(x.node());
  return node.op == &kConstant && node.attrs.has("value") && node.attrs.number("value") == 1;
}

void grad_linear_sum(GradContext& c) {
  if (c.dy(1).valid() || c.dy(2).valid() || c.dy(3).valid()) {
    c.through_expansion = true;
    return;
  }
  const Tensor factor = c.dy(0);
  const auto scaled = [&](const Tensor& x) {
    return is_constant_one(factor) ? x : mul(x, cast(factor, x.dtype()));
  };
  c.set(0, scaled(c.out(2)));
  c.set(1, scaled(c.out(3)));
  c.set(3, ordered_like(scaled(c.out(1)), c.in(3).shape()));
}

Product projection(const Call& call) {
  const Linear linear(call);
  return {.dtype = call.in[0].dtype,
          .m = linear.rows.elements(),
          .n = call.in[1].shape.size(linear.classes),
          .k = call.in[1].shape.size(linear.width)};
}

std::vector<Product> products_linear(const Call& call) {
  return {projection(call)};
}

std::vector<Product> products_linear_sum(const Call& call) {
  const Product p = projection(call);
  Product dx = p, dtable = p;
  std::swap(dx.n, dx.k);
  dtable.m = p.n, dtable.n = p.k, dtable.k = p.m;
  return {p, dx, dtable};
}

double flops_linear(const Call& call) {
  const Product p = projection(call);
  return (2.0 * static_cast<double>(p.k) + 6) * static_cast<double>(p.m * p.n);
}

double flops_linear_sum(const Call& call) {
  const Product p = projection(call);
  return (6.0 * static_cast<double>(p.k) + 12) * static_cast<double>(p.m * p.n);
}

// Targets run past both ends of the classes.
std::vector<Sample> linear_samples(bool weighted) {
  const auto one = [&](const char* x, const char* table, const char* rows, double smoothing, double z_loss) {
    Sample sample{
        .in = {x, table, fmt::format("i32{}", rows)},
        .attrs = {{"dim", std::string("vocab")}, {"label_smoothing", smoothing}, {"z_loss", z_loss}}};
    if (weighted) sample.in.push_back(fmt::format("f32{}", rows));
    sample.index_high = 6;
    sample.index_low = -1;
    return sample;
  };
  return {one("f32[batch:3;length:2;width:4]", "f32[vocab:5;width:4]", "[batch:3;length:2]", 0, 0),
          one("f32[width:3;batch:4]", "f32[width:3;vocab:5]", "[batch:4]", 0.1, 0.01),
          one("bf16[batch:3;width:4]", "bf16[vocab:4;width:4]", "[batch:3]", 0.1, 0)};
}

}  // namespace

constinit const Op kLinearCrossEntropy{
    .name = "linear_cross_entropy",
    .doc =
        "cross_entropy of the logits x . table without the logits. Inputs: x, table [`dim`, width], targets. "
        "Outputs: loss of each row, in f32 (f64 for f64); its best class, as argmax gives it.",
    .infer = infer_linear,
    .role = role_linear,
    .exchange = exchange_linear,
    .kernel = kernel_linear,
    .expand = expand_linear,
    .flops = flops_linear,
    .products = products_linear,
    .exact = false,
    .ulps = 64,
    .step_class = StepClass::Loss,
    .samples = [] { return linear_samples(false); },
};

constinit const Op kLinearCrossEntropySum{
    .name = "linear_cross_entropy_sum",
    .doc =
        "The weighted sum of linear_cross_entropy and its gradients, which are known up to one factor as "
        "soon as the logits are. Inputs: x, table [`dim`, width], targets, weights. Outputs: the sum; loss "
        "of each "
        "row; gradients of the sum to x and to the table.",
    .infer = infer_linear_sum,
    .role = role_linear_sum,
    .exchange = exchange_linear,
    .grad = grad_linear_sum,
    .kernel = kernel_linear_sum,
    .expand = expand_linear_sum,
    .flops = flops_linear_sum,
    .products = products_linear_sum,
    .exact = false,
    .ulps = 64,
    .step_class = StepClass::Loss,
    .samples = [] { return linear_samples(true); },
};

LinearCrossEntropy linear_cross_entropy(Arg x, Arg table, Arg targets, const std::string& dim,
                                        CrossEntropy options) {
  const std::vector<Tensor> out =
      graph_of(x, "linear_cross_entropy")
          .add(kLinearCrossEntropy, {x.tensor, table.tensor, targets.tensor},
               {{"dim", dim}, {"label_smoothing", options.label_smoothing}, {"z_loss", options.z_loss}},
               x.where);
  return {out[0], out[1]};
}

LinearCrossEntropySum linear_cross_entropy_sum(Arg x, Arg table, Arg targets, Arg weights,
                                               const std::string& dim, CrossEntropy options) {
  const std::vector<Tensor> out =
      graph_of(x, "linear_cross_entropy_sum")
          .add(kLinearCrossEntropySum, {x.tensor, table.tensor, targets.tensor, weights.tensor},
               {{"dim", dim}, {"label_smoothing", options.label_smoothing}, {"z_loss", options.z_loss}},
               x.where);
  return {out[0], out[1]};
}

}  // namespace tessera
