// Cross-entropy of integer targets, with label smoothing and z-loss. The forward pass keeps log(Z), so that
// the backward pass is component-wise and needs no communication when the classes are split.
#include "ops/build.h"
#include "ops/loops.h"
#include "ops/records.h"

namespace tessera {
namespace {

struct Options {
  explicit Options(const Call& call)
      : dim(call.attrs.text("dim")),
        classes(call.in[0].shape.size(dim)),
        smoothing(call.attrs.number("label_smoothing")),
        z_loss(call.attrs.number("z_loss")) {}

  double on() const { return 1 - smoothing; }
  double off() const { return smoothing / static_cast<double>(classes); }

  std::string dim;
  std::int64_t classes;
  double smoothing, z_loss;
};

Type statistic(const Call& call) {
  return {call.in[0].shape.without(call.attrs.text("dim")), wide_type(call.in[0].dtype)};
}

std::string names_missing(const Shape& from, const Shape& in) {
  std::string names;
  for (const Dim& dim : from) {
    if (!in.has(dim.name)) names += (names.empty() ? "" : ", ") + dim.name;
  }
  return names.empty() ? "none" : names;
}

void check_inputs(const Call& call) {
  check_floating(call, 0);
  check_i32(call, 1, "targets");
  check_has(call, 0, call.attrs.text("dim"));
  const Shape &rows = statistic(call).shape, &targets = call.in[1].shape;
  TESSERA_CHECK(
      same_dims(rows, targets),
      "{}: targets are [{}] but logits without '{}' are [{}] (missing from targets: {}; not in logits: {}); "
      "rename or reduce until they agree",
      call.op->name, to_string(targets), call.attrs.text("dim"), to_string(rows),
      names_missing(rows, targets), names_missing(targets, rows));
  const double smoothing = call.attrs.number("label_smoothing"), z_loss = call.attrs.number("z_loss");
  TESSERA_CHECK(smoothing >= 0 && smoothing <= 1, "{}: label smoothing is {}; it must lie in [0, 1]",
                call.op->name, smoothing);
  TESSERA_CHECK(z_loss >= 0, "{}: z_loss is {}; it must not be negative", call.op->name, z_loss);
}

std::vector<Type> infer_forward(const Call& call) {
  check_count(call, 2);
  check_inputs(call);
  return {statistic(call), statistic(call)};
}

std::vector<Type> infer_grad(const Call& call) {
  check_count(call, 4);
  check_inputs(call);
  for (std::size_t i : {2, 3}) {
    TESSERA_CHECK(call.in[i] == statistic(call), "cross_entropy_grad: input {} must be {} but is {}", i,
                  to_string(statistic(call)), to_string(call.in[i]));
  }
  return {call.in[0]};
}

Role role_forward(const Call& call, int, const std::string& dim) {
  return dim == call.attrs.text("dim") ? Role::Whole : Role::Map;
}

template <class T>
double log_sum_exp_of(const Line<T>& x, std::int64_t at, std::int64_t count) {
  double max = lowest_of(DType::F64);
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = x.at(at, i);
    if (std::isnan(value) || value > max) max = value;
  }
  return std::log(sum_over(count, [&](std::int64_t i) { return std::exp(x.at(at, i) - max); })) + max;
}

void kernel_forward(KernelContext& c) {
  const Options options(c.call);
  with_floating(c.in[0].dtype, [&]<class T>() {
    const Line<T> x(c.in[0], options.dim);
    for_each_line(
        c.in[0].shape, options.dim,
        [&](auto at) {
          const std::int64_t target = c.in[1].as<std::int32_t>()[at[1]];
          const double log_z = log_sum_exp_of(x, at[0], options.classes);
          double loss = 0;
          if (target >= 0 && target < options.classes) loss = log_z - options.on() * x.at(at[0], target);
          if (target >= 0 && target < options.classes && options.smoothing > 0) {
            loss -= options.off() * sum_over(options.classes, [&](std::int64_t i) { return x.at(at[0], i); });
          }
          if (options.z_loss > 0) loss += options.z_loss * log_z * log_z;
          c.out[0].as<Stat<T>>()[at[2]] = static_cast<Stat<T>>(log_z == -INFINITY ? 0 : loss);
          c.out[1].as<Stat<T>>()[at[3]] = static_cast<Stat<T>>(log_z);
        },
        c.in[0], c.in[1], c.out[0], c.out[1]);
  });
}

void kernel_grad(KernelContext& c) {
  const Options options(c.call);
  const std::int64_t start = start_of(c.in[0], options.dim), count = c.in[0].shape.size(options.dim);
  with_floating(c.in[0].dtype, [&]<class T>() {
    const Line<T> x(c.in[0], options.dim), dx(c.out[0], options.dim);
    for_each_line(
        c.in[0].shape, options.dim,
        [&](auto at) {
          const std::int64_t target = c.in[1].as<std::int32_t>()[at[1]];
          const double log_z = c.in[2].as<Stat<T>>()[at[2]], dloss = c.in[3].as<Stat<T>>()[at[3]];
          const bool valid = target >= 0 && target < options.classes, live = log_z != -INFINITY;
          const double slope = live ? dloss * (valid + 2 * options.z_loss * log_z) : 0;
          const double off = live && valid ? dloss * options.off() : 0,
                       on = live && valid ? dloss * options.on() : 0;
          for (std::int64_t i = 0; i < count; ++i) {
            const double value = x.at(at[0], i);
            const double p = value == -INFINITY ? 0 : std::exp(value - log_z);
            dx.set(at[4], i, slope * p - off - (start + i == target ? on : 0));
          }
        },
        c.in[0], c.in[1], c.in[2], c.in[3], c.out[0]);
  });
}

// The parts that both expansions need.
struct Rows {
  Rows(ExpandContext& c, const Options& options)
      : x(widened(c.inputs[0])),
        zero(scalar_like(x, 0)),
        hit(equal(c.inputs[1], range(c.graph, x.dim(options.dim)))),
        valid(
            logical_and(greater_equal(c.inputs[1], scalar_like(c.inputs[1], 0)),
                        less(c.inputs[1], scalar_like(c.inputs[1], static_cast<double>(options.classes))))) {}
  Tensor live(const Tensor& log_z) const { return greater(log_z, scalar_like(x, -INFINITY)); }

  Tensor x, zero;
  Tensor hit;    // the class is the target
  Tensor valid;  // the target is a class
};

std::vector<Tensor> expand_forward(ExpandContext& c) {
  const Options options(c.call);
  const Rows rows(c, options);
  Tensor wanted = select(rows.hit, scale(rows.x, options.on()), rows.zero);
  if (options.smoothing > 0) wanted = wanted + scale(rows.x, options.off());
  const Tensor log_z = stable_log_sum_exp(rows.x, options.dim);
  Tensor loss = select(rows.valid, log_z - reduce_sum(wanted, {options.dim}), rows.zero);
  if (options.z_loss > 0) loss = loss + scale(square(log_z), options.z_loss);
  return {select(rows.live(log_z), loss, rows.zero), log_z};
}

std::vector<Tensor> expand_grad(ExpandContext& c) {
  const Options options(c.call);
  const Rows rows(c, options);
  const Tensor log_z = c.inputs[2], dloss = c.inputs[3];
  const Tensor counted = select(logical_and(rows.live(log_z), rows.valid), dloss, rows.zero);
  Tensor slope = counted;
  if (options.z_loss > 0) slope = slope + dloss * scale(log_z, 2 * options.z_loss);
  Tensor wanted = select(rows.hit, scale(counted, options.on()), rows.zero);
  if (options.smoothing > 0) wanted = wanted + scale(counted, options.off());
  const Tensor dx = make(kLogSumExpGrad, {rows.x, log_z, slope}) - wanted;
  return {cast(dx, c.inputs[0].dtype())};
}

void grad_forward(GradContext& c) {
  const Tensor logits = c.in(0), log_z = c.out(1);
  Tensor dx;
  if (c.dy().valid()) dx = make(kCrossEntropyGrad, {logits, c.in(1), log_z, c.dy()}, c.node.attrs);
  if (c.dy(1).valid()) {
    const Tensor more = cast(make(kLogSumExpGrad, {widened(logits), log_z, c.dy(1)}), logits.dtype());
    dx = dx.valid() ? dx + more : more;
  }
  c.set(0, dx);
}

double flops_rows(const Call& call) {
  return 6.0 * static_cast<double>(call.in[0].shape.elements());
}

Attrs options_of(const char* dim, double smoothing, double z_loss) {
  return {{"dim", std::string(dim)}, {"label_smoothing", smoothing}, {"z_loss", z_loss}};
}

// Targets run past both ends of the classes.
std::vector<Sample> with_more(const Strings& wide, const Strings& half) {
  std::vector<Sample> samples;
  for (const auto& attrs : {options_of("vocab", 0, 0), options_of("vocab", 0.1, 0.01)}) {
    Sample sample{.in = {"f32[batch:3;length:2;vocab:5]", "i32[batch:3;length:2]"}, .attrs = attrs};
    sample.in.insert(sample.in.end(), wide.begin(), wide.end());
    sample.index_high = 6;
    sample.index_low = -1;
    samples.push_back(sample);
  }
  Sample sample{.in = {"bf16[vocab:4;batch:3]", "i32[batch:3]"}, .attrs = options_of("vocab", 0.1, 0)};
  sample.in.insert(sample.in.end(), half.begin(), half.end());
  samples.push_back(sample);
  return samples;
}
std::vector<Sample> forward_samples() {
  return with_more({}, {});
}
std::vector<Sample> loss_grad_samples() {
  return with_more({"f32[batch:3;length:2]", "f32[batch:3;length:2]"}, {"f32[batch:3]", "f32[batch:3]"});
}

}  // namespace

constinit const Op kCrossEntropy{
    .name = "cross_entropy",
    .doc =
        "The loss of each row of logits along `dim`: -sum(q log p) + z_loss * log(Z)^2, q = (1 - s) "
        "onehot(target) + s / "
        "classes, s = label_smoothing. A target that is no class gives z_loss * log(Z)^2; a row of -inf "
        "gives 0. "
        "Inputs: logits, targets. Outputs: loss, log(Z), in f32 (f64 for f64).",
    .infer = infer_forward,
    .role = role_forward,
    .grad = grad_forward,
    .kernel = kernel_forward,
    .expand = expand_forward,
    .flops = flops_rows,
    .exact = false,
    .ulps = 32,
    .step_class = StepClass::Loss,
    .samples = forward_samples,
};

constinit const Op kCrossEntropyGrad{
    .name = "cross_entropy_grad",
    .doc =
        "The gradient of cross_entropy to the logits. Inputs: logits, targets, log(Z), gradient of the loss.",
    .infer = infer_grad,
    .linear = linear_last,
    .kernel = kernel_grad,
    .expand = expand_grad,
    .flops = flops_rows,
    .exact = false,
    .ulps = 32,
    .step_class = StepClass::Loss,
    .samples = loss_grad_samples,
};

Tensor cross_entropy(Arg logits, Arg targets, const std::string& dim, CrossEntropy options) {
  return make(kCrossEntropy, {logits, targets},
              {{"dim", dim}, {"label_smoothing", options.label_smoothing}, {"z_loss", options.z_loss}});
}

}  // namespace tessera
