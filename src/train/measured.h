// Whole training steps as measurements run them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/median.h"
#include "tessera/train.h"
#include "train/step_programs.h"

namespace tessera {

// The configuration's model on its data, or on made-up tokens when it names none. All batch shapes are
// compiled, and their memory is touched, before the first step.
class MeasuredModel {
 public:
  explicit MeasuredModel(const Config& config, const SessionOptions& options = {});

  struct Done {
    double seconds = 0;
    std::int64_t tokens = 0;  // real target tokens
    std::size_t shape = 0;    // of the batch
    double loss = 0;          // mean over the tokens
  };
  // Makes batch i and runs forward, backward and update on it.
  Done step(std::int64_t i);

  Session& session() { return model_.session(); }
  const std::vector<BatchShape>& shapes() const { return data_->shapes(); }
  std::vector<int> programs(std::size_t shape) { return programs_.programs(shape); }
  // "16 x 32+32, 8 x 64+64": sentences x source+target of every shape.
  std::string shapes_text() const;

 private:
  Model model_;
  std::unique_ptr<Dataset> data_;
  StepPrograms programs_;
};

}  // namespace tessera
