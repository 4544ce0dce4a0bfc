// Optimizers as graph builders, and learning-rate schedules as functions of the step. Layer nn.
//
//   Tensor rate = g.input("learning_rate", {}), step = g.input("step", {}, DType::I32);
//   Tensors params = trainable_parameters(g, config);
//   Updates u = build_updates(g, params, gradients({loss.sum}, params), config, {rate, step, loss.weight});
//   session.compile({u.assignments..., u.gradient_norm, u.finite});
//
// All update nodes lie in Region::Update. Slots are variables of kind Slot named PARAMETER/SLOT, with
// dimensions of the parameter, zeros at first. Steps count from 0. Rates, sums and slots are f32 (f64 for f64
// parameters); gradients of any floating type are cast first.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ops.h"

namespace tessera {

// w: parameter, g: gradient (divided by the weight, clipped), lr: rate of its group, t = step + 1, wd: weight
// decay. Every kind decays decoupled from the gradient: w -= lr * wd * w, with the value before the update.
enum class OptimizerKind : std::uint8_t {
  // w -= lr g
  Sgd,
  // v = momentum v + g;  w -= lr v   (the new v; a change of rate acts on the whole velocity at once)
  Momentum,
  // m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
  // w -= lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
  // Without bias_correction both divisors 1 - beta^t are 1.
  Adam,
  // AdafactorOptions below.
  Adafactor,
};

// Adafactor, with s = g^2 + epsilon1 and a decay d that is 0 at step 0:
//   pow   d = 1 - t^-decay_exponent
//   adam  d = beta2 (1 - beta2^(t-1)) / (1 - beta2^t)
// A parameter is factored when its two largest dimensions (the first ones on ties), a >= b, reach
// min_factored_size:
//   r = d r + (1 - d) mean_a(s);  c = d c + (1 - d) mean_b(s);  x = g rsqrt(r / mean_b(r)) rsqrt(c)
// else
//   v = d v + (1 - d) s;  x = g rsqrt(v)
// Then
//   x /= max(1, rms(x) / clipping_threshold)
//   u = lr x max(rms(w), epsilon2)                without parameter_scale: u = lr x
//   m = beta1 m + (1 - beta1) u;  u = m           with beta1
//   w -= u
// All means are over the whole tensor, wherever its parts lie.
struct AdafactorOptions {
  enum class Decay : std::uint8_t { Pow, Adam };
  Decay decay = Decay::Pow;
  double decay_exponent = 0.8;    // Pow
  double decay_beta2 = 0.999;     // Adam
  double beta1 = 0;               // 0: no slot m
  double clipping_threshold = 1;  // 0: off
  bool factored = true;
  bool parameter_scale = true;
  double epsilon1 = 1e-30, epsilon2 = 1e-3;
  std::int64_t min_factored_size = 128;
  bool operator==(const AdafactorOptions&) const = default;
};

// Settings of the parameters whose name matches a glob ('*', '?'); the last matching group that sets a field
// decides it.
struct ParameterGroup {
  std::string pattern;
  std::optional<double> weight_decay;
  std::optional<double> rate;           // factor on the learning rate
  std::optional<bool> frozen;           // no gradient, no slots, no update
  std::optional<bool> parameter_scale;  // Adafactor
  bool operator==(const ParameterGroup&) const = default;
};

enum class NanPolicy : std::uint8_t {
  Stop,  // update at once; the caller stops when `finite` is false
  Skip,  // when the gradients' norm is not finite, parameters and slots keep their values
};

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::Adam;
  double weight_decay = 0;
  double momentum = 0.9;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  bool bias_correction = true;  // Adam; Mesh-TensorFlow has none (and epsilon 1e-6)
  AdafactorOptions adafactor;
  double clip_norm = 0;  // global norm of all gradients; 0: off
  NanPolicy nan = NanPolicy::Stop;
  std::optional<DType> slot_dtype;  // of slots with a dimension; default f32 (f64 for f64 parameters)
  std::vector<ParameterGroup> groups;
  bool operator==(const OptimizerConfig&) const = default;
};

struct GroupSettings {
  double weight_decay = 0, rate = 1;
  bool frozen = false, parameter_scale = true;
};
GroupSettings settings_of(const OptimizerConfig& config, std::string_view parameter);

// The parameters of the graph that are not frozen, in order of creation. Throws UserError when a group's
// pattern matches no parameter.
Tensors trainable_parameters(Graph& graph, const OptimizerConfig& config);

struct UpdateInputs {
  Tensor learning_rate;  // floating scalar, fed at each step
  Tensor step;           // i32 scalar, fed; 0 at the first update
  Tensor weight;         // optional floating scalar: gradients are divided by it (0 counts as 1)
};

struct Updates {
  Tensors assignments;   // of parameters and slots (and accumulators): targets to compile
  Tensor gradient_norm;  // scalar: global norm after the division, before clipping; each element counts once
  Tensor finite;         // bool scalar: the norm is finite
  Strings without_gradient;  // parameters that no path joins to the loss: not updated
};

// One update of `parameters` by `gradients` (same order; an empty Tensor where there is no path). Call it
// outside any scope.
Updates build_updates(Graph& graph, const Tensors& parameters, const Tensors& gradients,
                      const OptimizerConfig& config, const UpdateInputs& inputs,
                      Where where = Where::current());

// --- micro-batches: a program that accumulates, run once a micro-batch, and one that applies ------

// Adds gradients to variables PARAMETER/accumulator, and each scalar of `sums` (name, value; loss and weight
// say) to a variable accumulated/NAME. Returns the assignments.
Tensors build_accumulation(Graph& graph, const Tensors& parameters, const Tensors& gradients,
                           const std::vector<std::pair<std::string, Tensor>>& sums,
                           Where where = Where::current());

// Values of the sums before they were set back to zero, as tensors to fetch.
struct ApplyOutputs {
  Updates updates;
  std::vector<std::pair<std::string, Tensor>> sums;
};
// Fills the empty graph `apply` with the update of all parameters for which `accumulate` has accumulators,
// from the accumulated gradients divided by accumulated/`weight_name`, and sets accumulators and sums back to
// zero. Its inputs are learning_rate (f32; f64 for f64 parameters) and step (i32).
ApplyOutputs build_apply(const Graph& accumulate, Graph& apply, const OptimizerConfig& config,
                         const std::string& weight_name, Where where = Where::current());

// --- schedules ------------------------------------------------------------------------------------

// A product of factors, for example "0.002 * linear_warmup(400) * linear_decay(1.0)". With t the step and T
// the total:
//   NUMBER, constant(value=1)                    value
//   linear_warmup(steps=10000)                   min(1, t / w); a number <= 1 is a fraction of T, also below
//   linear_decay(steps=0.1)                      min(1, (T - t) / d), not below 0
//   truncated_rsqrt(warmup=10000)                1 / sqrt(max(t, w))
//   noam(warmup=10000, decay=0.1, multiplier=1)  multiplier / sqrt(max(t, w)) * min(1, (T - t) / (decay T));
//                                                decay 0: no second factor
//   slanted_triangular(cut=0.1, ratio=32, max=0.01)   Howard and Ruder 2018
//   cosine(final=0)                              from 1 at step 0 to `final` at T, half a cosine
//   inverse_sqrt(warmup=4000)                    min((t + 1) / w, sqrt(w / (t + 1)))
//   warmup_linear(warmup=4000)                   (t + 1) / w up to 1, then straight to 0 at T
//   exponential(rate=0.3, every=20000)           rate ^ floor(t / every)
//   adafactor()                                  min(0.01, 1 / sqrt(t + 1))
//   offset(steps)                                no factor: t and T of all others count from it
// Arguments are positional or `name=value`. Prints to text and parses back.
class Schedule {
 public:
  struct Factor {
    std::string name;
    std::vector<double> values;  // of all arguments, defaults filled in
    bool operator==(const Factor&) const = default;
  };

  Schedule() = default;  // 1
  static Schedule parse(
      std::string_view text);  // throws UserError that names the factor and lists the known ones
  static Schedule constant(double value);
  double at(double step, double total) const;
  const std::vector<Factor>& factors() const { return factors_; }
  bool operator==(const Schedule&) const = default;

 private:
  std::vector<Factor> factors_;
};
std::string to_string(const Schedule& schedule);

const char* to_string(OptimizerKind kind);                  // "sgd", "momentum", "adam", "adafactor"
OptimizerKind parse_optimizer_kind(std::string_view text);  // throws UserError with the names
const char* to_string(NanPolicy policy);                    // "stop", "skip"
NanPolicy parse_nan_policy(std::string_view text);

}  // namespace tessera
