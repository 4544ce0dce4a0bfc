// One Transformer, many layouts: data parallel, model parallel, both, and with parameters and optimizer state
// split over the data-parallel processors. Prints what each layout communicates; the losses are the same.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tessera/tessera.h"

using namespace tessera;

namespace {

// Sentences to be reversed: made up, but learnable. 0 is padding, so a last token of 0 ends early.
FeedMap sentences(const Shape& shape, std::int64_t step, std::int64_t vocab) {
  Array source({shape, DType::I32}), target({shape, DType::I32});
  std::int64_t length = shape.size("length");
  for (std::int64_t i = 0; i < source.elements(); ++i) {
    auto token = static_cast<std::int32_t>(3 + (i * i * 7 + i + step * 13) % (vocab - 3));
    source.as<std::int32_t>()[i] = token;
    target.as<std::int32_t>()[i / length * length + (length - 1 - i % length)] = token;
  }
  return {{"source", source}, {"target", target}};
}

std::string counted(const std::map<std::string, std::int64_t>& counts) {
  std::string text;
  for (const auto& [name, n] : counts) text += (text.empty() ? "" : ", ") + name + " " + std::to_string(n);
  return text.empty() ? "none" : text;
}

}  // namespace

int main() {
  TransformerConfig config = preset("tiny").model;
  config.vocab = 97;  // divides nothing: parts need not be equal
  config.heads = 3;
  Shape tokens{{"batch", 6}, {"length", 10}};

  Graph g;
  Tensor rate = g.input("rate", {}), step = g.input("step", {}, DType::I32);
  auto model = build_transformer_loss(g, config, {.batch = 6, .source_length = 10, .target_length = 10});
  Tensors parameters = trainable_parameters(g, {});
  Updates updates = build_updates(g, parameters, gradients({model.loss.sum}, parameters), {},
                                  {rate, step, model.loss.weight});
  Tensors targets{nn::ratio(model.loss.sum, model.loss.weight)};
  targets.insert(targets.end(), updates.assignments.begin(), updates.assignments.end());

  const std::pair<const char*, const char*> layouts[] = {
      {"", ""},
      {"rows:2", "batch:rows"},
      {"cols:2", "heads:cols;d_ff:cols;vocab:cols"},
      {"rows:2;cols:2", "batch:rows;heads:cols;d_ff:cols;vocab:cols"},
      {"rows:2", "batch:rows;params.*:rows;slots.*:rows"},
  };
  double first = 0, last = 0, worst = 0;
  for (const auto& [mesh, layout] : layouts) {
    Session session(g, Mesh::parse(mesh), Layout::parse(layout));
    int program = session.compile(targets);
    std::vector<double> losses;
    for (std::int32_t s = 0; s < 5; ++s) {
      FeedMap feeds = sentences(tokens, s, config.vocab);
      feeds["rate"] = Array(rate.type(), {0.002});
      feeds["step"] = Array(step.type(), {static_cast<double>(s)});
      losses.push_back(
          session.run(program, feeds, {.step = s, .windows = {}}).scalar(0));  // dropout draws from the step
    }
    ProgramStats cost = stats(session.program(program));
    std::printf(
        "mesh %s  layout %s\n  collectives: %s\n  bytes per axis: %s\n  stored per rank: %lld bytes\n  "
        "losses: %.6f -> %.6f\n",
        *mesh ? mesh : "(one rank)", *layout ? layout : "(none)", counted(cost.count).c_str(),
        counted(cost.bytes_per_axis).c_str(), static_cast<long long>(cost.variable_bytes), losses.front(),
        losses.back());
    if (first == 0) first = losses.front(), last = losses.back();
    worst = std::max({worst, std::abs(losses.front() / first - 1), std::abs(losses.back() / last - 1) / 100});
  }
  std::printf("largest relative difference of losses: %g (the last step's divided by 100)\n", worst);
  return worst < 1e-5 ? 0 : 1;
}
