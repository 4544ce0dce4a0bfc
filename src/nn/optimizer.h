// What the optimizers share: scalars of the step, computed once, and one parameter with its slots.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/optimizer.h"

namespace tessera {

// Scalars that every parameter's update uses, in each type it may need; powers of decay rates are taken in
// f64, where 1 - beta^t keeps its digits. Factors rather than divisors: a division costs ten multiplications.
class StepScalars {
 public:
  StepScalars(Graph& graph, const OptimizerConfig& config, const UpdateInputs& inputs)
      : graph_(graph), config_(config), inputs_(inputs) {}

  Tensor rate(DType dtype);            // learning rate
  Tensor inverse_weight(DType dtype);  // factor of gradients, 1 for weight 0; invalid without weight
  Tensor bias_correction(double beta, DType dtype);  // factor of a mean, 1 / (1 - beta^t)
  Tensor adafactor_decay(DType dtype);

 private:
  Tensor count();  // t = step + 1 in f64
  template <class Build>
  Tensor cached(const std::string& name, DType dtype, Build build);

  Graph& graph_;
  const OptimizerConfig& config_;
  const UpdateInputs& inputs_;
  std::map<std::pair<std::string, DType>, Tensor> cache_;
};

struct SlotSpec {
  std::string name;  // without the parameter's
  Shape shape;
};

// The slots that `config` gives a parameter of this shape.
std::vector<SlotSpec> slots_of(const OptimizerConfig& config, const Shape& shape);

// Positions of the largest and second largest dimension, or {-1, -1} when the statistics are not factored.
std::pair<int, int> factored_dims(const AdafactorOptions& options, const Shape& shape);

// One parameter in the wide type, its gradient (ready: divided, clipped), and its slots in the wide type.
struct UpdateCase {
  Tensor parameter, gradient, rate;
  GroupSettings settings;
  std::map<std::string, Tensor> slots;
};

struct UpdateResult {
  Tensor delta;                         // to be subtracted from the parameter
  std::map<std::string, Tensor> slots;  // new values
};

UpdateResult update_adafactor(const UpdateCase& item, const OptimizerConfig& config, StepScalars& scalars);

}  // namespace tessera
