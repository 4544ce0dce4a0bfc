// The programs of training steps: one per batch shape, or with micro-batches one per part size and one that
// applies.
#pragma once

#include "tessera/train.h"
#include "train/step_graph.h"

namespace tessera {

struct StepOutcome {
  double loss_sum = 0, weight = 0;
  double gradient_norm = 0;
  bool finite = true;
};

class StepPrograms {
 public:
  // `config` is the model's, but for the policy on NaN: with `keep_parameters` a step that is not finite
  // changes nothing.
  StepPrograms(Model& model, const Dataset& data, bool keep_parameters);

  StepOutcome run(const Batch& batch, double learning_rate, std::int64_t step);
  // The op of this step that makes the first NaN or infinity, "" when there is none.
  std::string first_nonfinite(const Batch& batch, double learning_rate, std::int64_t step);
  // The program for a shape of the data (with micro-batches the largest part's), compiled if need be.
  int program(std::size_t shape);
  // All programs that a step of this shape runs, in order.
  std::vector<int> programs(std::size_t shape);

 private:
  struct Part {
    int program = -1;
    Interval rows;
  };
  // How one shape is run.
  struct Plan {
    std::vector<Part> parts;
    int apply = -1;  // micro-batches only
  };
  const Plan& plan(std::size_t shape);
  FillFunction feeds(const Batch& batch, std::int64_t first_row, double learning_rate,
                     std::int64_t step) const;
  static RunOptions options(const Batch& batch, const Interval& rows, std::int64_t step);
  static StepOutcome outcome(const Results& results);

  Model& model_;
  const Dataset& data_;
  Config config_;
  std::map<std::size_t, Plan> plans_;
};

}  // namespace tessera
