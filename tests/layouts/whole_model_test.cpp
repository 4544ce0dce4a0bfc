// Whole models: the layout changes nothing. A tiny encoder-decoder and a tiny language model with sizes that
// divide nothing, dropout on: loss and every gradient on every legal layout of six meshes, and ten optimizer
// steps on forty named layouts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "layouts/legal.h"
#include "support/passes.h"
#include "tessera/grad.h"
#include "tessera/models.h"
#include "tessera/optimizer.h"
#include "tessera/session.h"

namespace tessera {
namespace {

constexpr ModelShape kShape{.batch = 5, .source_length = 4, .target_length = 3};

TransformerConfig tiny(ModelKind kind, DType dtype) {
  TransformerConfig c;
  c.kind = kind;
  c.encoder_layers = 1;
  c.layers = 1;
  c.d_model = 6;
  c.heads = 3;
  c.d_kv = 2;
  c.d_ff = 7;
  c.vocab = 11;
  c.max_length = 8;
  c.label_smoothing = 0.1;
  c.z_loss = 1e-3;
  c.dtype = dtype;
  return c;
}

ModelShape shape_for(ModelKind kind) {
  ModelShape shape = kShape;
  if (kind == ModelKind::LanguageModel) shape.source_length = 0;
  return shape;
}

FeedMap feeds_for(ModelKind kind, DType dtype, std::int64_t step) {
  auto tokens = [&](std::int64_t rows, std::int64_t columns, const Shape& shape, std::int64_t salt) {
    Array a(Type{shape, DType::I32});
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      // Rows have unequal numbers of real tokens; the rest is padding.
      bool padding = i % columns >= 1 + (i / columns + step) % columns;
      a.set(i, padding ? 0 : static_cast<double>(1 + (i * 7 + salt + step * 3) % 10));
    }
    return a;
  };
  FeedMap feeds;
  Dim batch{"batch", kShape.batch};
  feeds["target"] = tokens(kShape.batch, kShape.target_length, {batch, {"length", kShape.target_length}}, 2);
  if (kind == ModelKind::EncoderDecoder) {
    feeds["source"] =
        tokens(kShape.batch, kShape.source_length, {batch, {"length", kShape.source_length}}, 5);
  }
  DType wide = dtype == DType::F64 ? DType::F64 : DType::F32;
  feeds["learning_rate"] = Array(Type{Shape{}, wide}, {0.01});
  feeds["step"] = Array(Type{Shape{}, DType::I32}, {static_cast<double>(step)});
  return feeds;
}

struct Step {
  Graph graph;
  Tensors gradients_of;  // parameters' gradients
  Tensors parameters;
  Updates updates;
  TransformerOutputs out;
};

std::unique_ptr<Step> build(ModelKind kind, DType dtype, OptimizerKind optimizer) {
  auto s = std::make_unique<Step>();
  s->out = build_transformer_loss(s->graph, tiny(kind, dtype), shape_for(kind));
  OptimizerConfig config;
  config.kind = optimizer;
  config.clip_norm = 1;
  config.adafactor.min_factored_size = 2;
  DType wide = dtype == DType::F64 ? DType::F64 : DType::F32;
  Tensor rate = s->graph.input("learning_rate", {}, wide), step = s->graph.input("step", {}, DType::I32);
  s->parameters = trainable_parameters(s->graph, config);
  s->gradients_of = gradients({s->out.loss.sum}, s->parameters);
  s->updates =
      build_updates(s->graph, s->parameters, s->gradients_of, config, {rate, step, s->out.loss.weight});
  return s;
}

double relative_l2(const Array& a, const Array& b) {
  double difference = 0, norm = 0;
  for (std::int64_t i = 0; i < b.elements(); ++i) {
    difference += (a.get(i) - b.get(i)) * (a.get(i) - b.get(i));
    norm += b.get(i) * b.get(i);
  }
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

// Loss, then every gradient.
std::vector<Array> loss_and_gradients(const Step& s, ModelKind kind, const Mesh& mesh, const Layout& layout) {
  Session session(s.graph, mesh, layout, testing::session_options());
  std::vector<Tensor> targets{s.out.loss.sum, s.out.loss.weight};
  targets.insert(targets.end(), s.gradients_of.begin(), s.gradients_of.end());
  Results results = session.run(session.compile(targets), feeds_for(kind, DType::F64, 0));
  std::vector<Array> values;
  for (std::size_t i = 0; i < targets.size(); ++i) values.push_back(results.gather(i));
  return values;
}

std::vector<std::string> legal_layouts_of(const Step& s, const char* mesh) {
  std::vector<Tensor> targets{s.out.loss.sum};
  targets.insert(targets.end(), s.gradients_of.begin(), s.gradients_of.end());
  LowerOptions options;
  options.without = {"fuse"};
  return testing::legal_layouts(Mesh::parse(mesh), [&](const Layout& layout) {
    lower(s.graph, targets, Mesh::parse(mesh), layout, options);
  });
}

class WholeModel : public ::testing::TestWithParam<ModelKind> {};

TEST_P(WholeModel, LossAndGradientsOnEveryLegalLayout) {
  std::unique_ptr<Step> s = build(GetParam(), DType::F64, OptimizerKind::Adam);
  std::vector<Array> want = loss_and_gradients(*s, GetParam(), Mesh(), Layout());
  std::vector<std::string> one = legal_layouts_of(*s, "a:2"), two = legal_layouts_of(*s, "a:2;b:2");
  int cases = 0;
  double worst = 0;
  for (const char* text : {"a:1", "a:2", "a:3", "a:4", "a:2;b:2", "a:2;b:3", "a:2;b:4"}) {
    Mesh mesh = Mesh::parse(text);
    for (const std::string& layout : mesh.axis_count() == 1 ? one : two) {
      SCOPED_TRACE(fmt::format("mesh {} layout {}", text, layout));
      std::vector<Array> got = loss_and_gradients(*s, GetParam(), mesh, Layout::parse(layout));
      for (std::size_t i = 0; i < want.size(); ++i) {
        double error = relative_l2(got[i], want[i]);
        worst = std::max(worst, error);
        ASSERT_LE(error, 1e-8) << "target " << i;
      }
      ++cases;
    }
  }
  fmt::print("{} layouts on one axis, {} on two; {} cases, largest relative error {:.2e}\n", one.size(),
             two.size(), cases, worst);
  EXPECT_GT(cases, 100);
}

struct NamedLayout {
  const char *mesh, *layout;
};
constexpr NamedLayout kNamed[] = {
    {"a:2", "batch:a"},
    {"a:3", "batch:a"},
    {"a:4", "batch:a"},
    {"a:2", "heads:a"},
    {"a:4", "heads:a"},
    {"a:2", "d_ff:a"},
    {"a:3", "d_ff:a"},
    {"a:2", "vocab:a"},
    {"a:4", "vocab:a"},
    {"a:2", "heads:a;d_ff:a;vocab:a"},
    {"a:3", "heads:a;d_ff:a;vocab:a"},
    {"a:4", "heads:a;d_ff:a;vocab:a"},
    {"a:2", "d_model:a"},
    {"a:4", "d_model:a"},
    {"a:2", "d_kv:a"},
    {"a:2", "length:a"},
    {"a:2", "memory_length:a"},
    {"a:2;b:2", "batch:a;heads:b;d_ff:b;vocab:b"},
    {"a:2;b:3", "batch:a;heads:b;d_ff:b;vocab:b"},
    {"a:2;b:4", "batch:a;heads:b;d_ff:b;vocab:b"},
    {"a:2;b:2", "batch:a+b"},
    {"a:2;b:2", "batch:b+a"},
    {"a:2;b:3", "vocab:a+b"},
    {"a:2;b:2", "d_ff:a+b;heads:b"},
    {"a:2;b:2", "heads:a;d_model:b"},
    {"a:2;b:2", "batch:a;d_model:b"},
    {"a:2;b:2", "batch:a"},
    {"a:2;b:4", "batch:b"},
    {"a:2;b:2", "length:a;heads:b"},
    {"a:2", "batch:a;params.*:a;slots.*:a"},
    {"a:3", "batch:a;params.*:a;slots.*:a"},
    {"a:4", "batch:a;params.*:a"},
    {"a:2", "batch:a;slots.*:a"},
    {"a:4", "batch:a;slots.*:a"},
    {"a:2", "batch:a;params.d_model:a;slots.d_model:a"},
    {"a:2;b:2", "batch:a;heads:b;d_ff:b;params.*:a;slots.*:a"},
    {"a:2;b:2", "batch:a;heads:b;slots.d_model:a"},
    {"a:2;b:2", "batch:a+b;params.*:a+b;slots.*:a+b"},
    {"a:2;b:3", "batch:a;vocab:b;params.*:b;slots.*:b"},
    {"a:3", "d_ff:a@2;heads:a"},
};
static_assert(std::size(kNamed) == 40);

// Parameters after ten steps, and the losses.
struct Trained {
  std::map<std::string, Array> parameters;
  std::vector<double> losses;
};
Trained train(const Step& s, ModelKind kind, DType dtype, const Mesh& mesh, const Layout& layout,
              const SessionOptions& options = testing::session_options()) {
  Session session(s.graph, mesh, layout, options);
  std::vector<Tensor> targets = s.updates.assignments;
  targets.push_back(s.out.loss.sum);
  int program = session.compile(targets);
  Trained result;
  for (std::int64_t step = 0; step < 10; ++step) {
    result.losses.push_back(
        session.run(program, feeds_for(kind, dtype, step), {.step = step, .windows = {}}).scalar(0));
  }
  for (const Tensor& p : s.parameters) result.parameters[p.name()] = session.store().read(p.name());
  return result;
}

TEST_P(WholeModel, TenStepsOnFortyLayoutsInF64) {
  for (OptimizerKind optimizer : {OptimizerKind::Adam, OptimizerKind::Adafactor}) {
    std::unique_ptr<Step> s = build(GetParam(), DType::F64, optimizer);
    Trained want = train(*s, GetParam(), DType::F64, Mesh(), Layout());
    EXPECT_LT(want.losses.back(), want.losses.front());
    for (const NamedLayout& named : kNamed) {
      SCOPED_TRACE(fmt::format("{} mesh {} layout {}", to_string(optimizer), named.mesh, named.layout));
      Trained got = train(*s, GetParam(), DType::F64, Mesh::parse(named.mesh), Layout::parse(named.layout));
      for (const auto& [name, value] : want.parameters)
        ASSERT_LE(relative_l2(got.parameters.at(name), value), 1e-8) << name;
    }
  }
}

TEST_P(WholeModel, TenStepsOnFortyLayoutsInF32) {
  std::unique_ptr<Step> s = build(GetParam(), DType::F32, OptimizerKind::Adam);
  Trained want = train(*s, GetParam(), DType::F32, Mesh(), Layout());
  for (const NamedLayout& named : kNamed) {
    SCOPED_TRACE(fmt::format("mesh {} layout {}", named.mesh, named.layout));
    Trained got = train(*s, GetParam(), DType::F32, Mesh::parse(named.mesh), Layout::parse(named.layout));
    for (std::size_t i = 0; i < want.losses.size(); ++i)
      ASSERT_LE(std::abs(got.losses[i] / want.losses[i] - 1), 1e-4) << "step " << i;
  }
}

// Each pass alone is left out, on named layouts drawn by chance.
TEST_P(WholeModel, TenStepsWithoutEachPass) {
  const std::uint32_t seed = std::random_device()();
  fmt::print("layouts drawn with seed {}\n", seed);
  std::mt19937 random(seed);
  std::unique_ptr<Step> s = build(GetParam(), DType::F64, OptimizerKind::Adam);
  const Trained want = train(*s, GetParam(), DType::F64, Mesh(), Layout());
  for (const Pass& pass : passes()) {
    SessionOptions options;
    options.lower.without = {pass.name};
    for (int i = 0; i < 6; ++i) {
      const NamedLayout& named = kNamed[random() % std::size(kNamed)];
      SCOPED_TRACE(
          fmt::format("without {} mesh {} layout {} seed {}", pass.name, named.mesh, named.layout, seed));
      const Trained got =
          train(*s, GetParam(), DType::F64, Mesh::parse(named.mesh), Layout::parse(named.layout), options);
      for (const auto& [name, value] : want.parameters)
        ASSERT_LE(relative_l2(got.parameters.at(name), value), 1e-8) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, WholeModel, ::testing::Values(ModelKind::EncoderDecoder, ModelKind::LanguageModel),
                         [](const auto& kind) { return std::string(to_string(kind.param)); });

}  // namespace
}  // namespace tessera
