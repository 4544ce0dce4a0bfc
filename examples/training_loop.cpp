// A training loop without the trainer: Session and Store. Feeds arrive by box, so that no processor ever sees
// more than its part; variables are read and written by name; any intermediate value can be looked at.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tessera/tessera.h"

using namespace tessera;

constexpr std::int64_t kSteps = 40;

// A made-up language: each token is the one before, times three, plus one. Called by each rank for its own
// box.
void fill_tokens(std::int64_t step, std::int64_t vocab, const Box& box, std::int32_t* out) {
  for (std::int64_t row = box.start[0]; row < box.end(0); ++row) {
    std::int64_t token = (row * 5 + step * 11) % (vocab - 1);
    for (std::int64_t column = 0; column < box.end(1); ++column) {
      token = (token * 3 + 1) % (vocab - 1);
      if (column >= box.start[1]) *out++ = static_cast<std::int32_t>(token + 1);  // 0 is padding
    }
  }
}

int main() {
  TransformerConfig config = preset("tiny_lm").model;
  config.vocab = 41;
  Graph g;
  Tensor rate = g.input("rate", {}), step_input = g.input("step", {}, DType::I32);
  auto model = build_transformer_loss(g, config, {.batch = 7, .target_length = 12});
  OptimizerConfig optimizer;  // Adam
  optimizer.clip_norm = 1;
  Tensors parameters = trainable_parameters(g, optimizer);
  Updates updates = build_updates(g, parameters, gradients({model.loss.sum}, parameters), optimizer,
                                  {rate, step_input, model.loss.weight});
  Tensors targets{nn::ratio(model.loss.sum, model.loss.weight), updates.gradient_norm};
  targets.insert(targets.end(), updates.assignments.begin(), updates.assignments.end());

  Layout layout = Layout::parse("batch:rows;heads:cols;d_ff:cols;vocab:cols");
  Session session(g, Mesh::parse("rows:2;cols:2"), layout);
  int program = session.compile(targets);
  Schedule schedule = Schedule::parse("0.01 * linear_warmup(5) * linear_decay(0.5)");

  double first = 0, last = 0;
  for (std::int64_t s = 0; s < kSteps; ++s) {
    FillFunction fill = [&](const std::string& name, const Box& box, void* out) {
      if (name == "rate") *static_cast<float*>(out) = static_cast<float>(schedule.at(double(s), kSteps));
      if (name == "step") *static_cast<std::int32_t*>(out) = static_cast<std::int32_t>(s);
      if (name == "target") fill_tokens(s, config.vocab, box, static_cast<std::int32_t*>(out));
    };
    Results results = session.run(program, fill, {.step = s, .windows = {}});
    last = results.scalar(0);
    first = s == 0 ? last : first;
    if (s % 10 == 0) std::printf("step %2d  loss %.4f  norm %.3f\n", int(s), last, results.scalar(1));
  }

  // Variables by name, whole or by box, wherever their parts lie.
  Store& store = session.store();
  Array table = store.read("embedding/table");
  std::printf("%zu variables; embedding/table is %s\n", store.names().size(), to_string(table.type).c_str());
  store.write("embedding/table", Array(table.type));  // zeros
  std::vector<float> row(64, 1.0f);
  store.read("embedding/table", Box{{5, 0}, {1, 64}}, row.data());
  bool zeroed = *std::max_element(row.begin(), row.end()) == 0;
  store.write("embedding/table", table);

  // Any tensor of the graph, here the logits of one more batch.
  Array tokens({Shape{{"batch", 7}, {"length", 12}}, DType::I32});
  fill_tokens(kSteps, config.vocab, Box{{0, 0}, {7, 12}}, tokens.as<std::int32_t>());
  FeedMap feeds{{"target", tokens}, {"rate", Array(rate.type())}, {"step", Array(step_input.type())}};
  Array logits = session.inspect(model.logits, feeds);
  std::printf("%s is %s, its first value %.4f\n", model.logits.name().c_str(), to_string(logits.type).c_str(),
              logits.get(0));

  bool good = last < 0.5 * first && zeroed && std::isfinite(logits.get(0));
  std::printf("loss %.4f -> %.4f: %s\n", first, last, good ? "learned" : "WRONG");
  return good ? 0 : 1;
}
