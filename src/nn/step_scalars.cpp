// Scalars of one optimizer step.
#include <cmath>

#include "nn/optimizer.h"
#include "tessera/nn.h"

namespace tessera {

template <class Build>
Tensor StepScalars::cached(const std::string& name, DType dtype, Build build) {
  Tensor& entry = cache_[{name, dtype}];
  if (!entry.valid()) entry = cast(build(), dtype);
  return entry;
}

Tensor StepScalars::count() {
  return cached("count", DType::F64, [&] { return offset(cast(inputs_.step, DType::F64), 1); });
}

Tensor StepScalars::rate(DType dtype) {
  return cached("rate", dtype, [&] { return inputs_.learning_rate; });
}

Tensor StepScalars::inverse_weight(DType dtype) {
  if (!inputs_.weight.valid()) return {};
  return cached("weight", dtype, [&] {
    const Tensor w = cast(inputs_.weight, dtype);
    return reciprocal(select(equal(w, zeros_like(w)), ones_like(w), w));
  });
}

Tensor StepScalars::bias_correction(double beta, DType dtype) {
  return cached("beta " + std::to_string(beta), dtype, [&] {
    if (beta == 0) return ones_like(count());
    return reciprocal(1.0 - exp(scale(count(), std::log(beta))));
  });
}

Tensor StepScalars::adafactor_decay(DType dtype) {
  const AdafactorOptions& options = config_.adafactor;
  return cached("decay", dtype, [&] {
    const Tensor t = count();
    if (options.decay == AdafactorOptions::Decay::Pow) return 1.0 - pow(t, -options.decay_exponent);
    const double log_beta = std::log(options.decay_beta2);
    const Tensor before = 1.0 - exp(scale(offset(t, -1), log_beta));
    return div(scale(before, options.decay_beta2), 1.0 - exp(scale(t, log_beta)));
  });
}

}  // namespace tessera
