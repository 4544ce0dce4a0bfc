#include "train/measured.h"

#include "base/check.h"
#include "base/clock.h"
#include "train/made_up_data.h"

namespace tessera {

MeasuredModel::MeasuredModel(const Config& config, const SessionOptions& options)
    : model_(config.data.train.files.empty() ? Model(config, options)
                                             : Model(config, make_tokenizer(config), options)),
      data_(config.data.train.files.empty() ? std::make_unique<MadeUpData>(model_.config())
                                            : open_split(model_, config.data.train)),
      programs_(model_, *data_, false) {
  for (std::size_t shape = 0; shape < shapes().size(); ++shape) programs_.programs(shape);
}

MeasuredModel::Done MeasuredModel::step(std::int64_t i) {
  const double begin = now();
  const Batch batch = data_->batch(i);
  const Config& config = model_.config();
  const double rate =
      config.optimizer.schedule.at(static_cast<double>(i), static_cast<double>(config.train.steps));
  const StepOutcome outcome = programs_.run(batch, rate, i);
  return {now() - begin, batch.tokens, batch.shape, outcome.loss_sum / outcome.weight};
}

std::string MeasuredModel::shapes_text() const {
  std::string text;
  for (const BatchShape& sizes : shapes())
    text += fmt::format("{}{} x {}+{}", text.empty() ? "" : ", ", sizes.sentences, sizes.source_length,
                        sizes.target_length);
  return text;
}

}  // namespace tessera
