// Adafactor (Shazeer and Stern 2018), with the choices of Mesh-TensorFlow's implementation.
#include <algorithm>
#include <numeric>

#include "nn/optimizer.h"

namespace tessera {

std::pair<int, int> factored_dims(const AdafactorOptions& options, const Shape& shape) {
  if (!options.factored || shape.count() < 2) return {-1, -1};
  std::vector<int> order(shape.count());
  std::iota(order.begin(), order.end(), 0);
  const auto size = [&](int i) { return shape[static_cast<std::size_t>(i)].size; };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return size(a) > size(b); });
  if (size(order[1]) < options.min_factored_size) return {-1, -1};
  return {order[0], order[1]};
}

namespace {

// d * old + (1 - d) * fresh
Tensor decayed(const Tensor& decay, const Tensor& old, const Tensor& fresh) {
  return add(mul(old, decay), mul(fresh, 1.0 - decay));
}

Tensor root_mean_square(const Tensor& x) {
  return sqrt(reduce_mean(square(x)));
}

}  // namespace

UpdateResult update_adafactor(const UpdateCase& item, const OptimizerConfig& config, StepScalars& scalars) {
  const AdafactorOptions& options = config.adafactor;
  const Tensor& g = item.gradient;
  const Tensor decay = scalars.adafactor_decay(g.dtype());
  const Tensor s = offset(square(g), options.epsilon1);
  const auto [largest, second] = factored_dims(options, g.shape());
  UpdateResult result;
  Tensor x;
  if (largest >= 0) {
    const std::string& a = g.shape()[static_cast<std::size_t>(largest)].name;
    const std::string& b = g.shape()[static_cast<std::size_t>(second)].name;
    const Tensor r = decayed(decay, item.slots.at("adafactor_r"), reduce_mean(s, {a}));
    const Tensor c = decayed(decay, item.slots.at("adafactor_c"), reduce_mean(s, {b}));
    x = mul(mul(g, rsqrt(div(r, reduce_mean(r, {b})))), rsqrt(c));
    result.slots = {{"adafactor_r", r}, {"adafactor_c", c}};
  } else {
    const Tensor v = decayed(decay, item.slots.at("adafactor_v"), s);
    x = mul(g, rsqrt(v));
    result.slots = {{"adafactor_v", v}};
  }
  if (options.clipping_threshold > 0) {
    const Tensor excess = scale(root_mean_square(x), 1 / options.clipping_threshold);
    x = div(x, maximum(excess, ones_like(excess)));
  }
  Tensor rate = item.rate;
  if (item.settings.parameter_scale) {
    const Tensor size = root_mean_square(item.parameter);
    rate = mul(rate, maximum(size, scale(ones_like(size), options.epsilon2)));
  }
  result.delta = mul(x, rate);
  if (options.beta1 > 0) {
    result.delta =
        add(scale(item.slots.at("adafactor_m"), options.beta1), scale(result.delta, 1 - options.beta1));
    result.slots["adafactor_m"] = result.delta;
  }
  return result;
}

}  // namespace tessera
