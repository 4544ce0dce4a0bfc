// Decoding: the cache equals the full forward pass, choices do not depend on mesh or batch, results keep
// their order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "train/sampling.h"
#include "train/support.h"

namespace tessera {
namespace {

using testing::corpus;
using testing::small_config;
using testing::small_lm_config;
using testing::TempFolder;

struct Placed {
  std::string mesh, layout;
};
const std::vector<Placed>& placements() {
  static const std::vector<Placed> list{
      {"", ""},
      {"rows:2", "batch:rows"},
      {"rows:3", "heads:rows; d_ff:rows; vocab:rows"},
      {"rows:2;cols:2", "batch:rows; heads:cols; vocab:cols; params.d_model:rows"}};
  return list;
}

// A model that was trained a little, so that its choices are its own.
const std::string& trained_run(bool lm) {
  static const TempFolder translation, language;
  const TempFolder& folder = lm ? language : translation;
  if (!std::filesystem::exists(folder / "checkpoints")) {
    const Strings steps{"train.steps=40", "model.dropout=0"};
    testing::train(lm ? small_lm_config(folder.path(), steps) : small_config(folder.path(), steps));
  }
  return folder.path();
}

Model open_on(const Placed& where, bool lm = false) {
  return Model::open(trained_run(lm),
                     {.overrides = {"mesh.shape=" + where.mesh, "mesh.layout=" + where.layout}});
}

std::vector<std::string> first_sources(std::size_t count) {
  return {corpus().dev_sources.begin(), corpus().dev_sources.begin() + static_cast<std::ptrdiff_t>(count)};
}

// The log probability of an output under the full forward pass.
double full_forward(Model& model, const std::string& source, const Decoded& output) {
  double sum = 0;
  const Tokenizer& tokenizer = model.tokenizer();
  std::vector<std::int32_t> target = output.tokens, ids = tokenizer.encode(source);
  if (output.finished) target.push_back(kEosId);
  ids.push_back(kEosId);
  Graph graph;
  ModelShape shape{.batch = 1,
                   .source_length = static_cast<std::int64_t>(ids.size()),
                   .target_length = static_cast<std::int64_t>(target.size())};
  if (model.config().model.kind == ModelKind::LanguageModel) shape.source_length = 0;
  const Tensor losses =
      build_transformer_loss(graph, model.config().model, shape, ModelMode::Evaluate).loss.tokens;
  const auto array = [](const std::vector<std::int32_t>& values) {
    Array a({{{"batch", 1}, {"length", static_cast<std::int64_t>(values.size())}}, DType::I32});
    std::copy(values.begin(), values.end(), a.as<std::int32_t>());
    return a;
  };
  FeedMap feeds{{"target", array(target)}};
  if (shape.source_length > 0) feeds.emplace("source", array(ids));
  Session session(graph, Mesh{}, Layout{});
  const int program = session.compile({losses});
  for (const std::string& name : session.store().names())
    session.store().write(name, model.session().store().read(name));
  const Array values = session.run(program, feeds).gather(0);
  for (std::int64_t i = 0; i < values.elements(); ++i) sum -= values.get(i);
  return sum;
}

TEST(Decode, CachedStepsEqualTheFullForwardPass) {
  const std::vector<std::string> sources = first_sources(5);
  DecodeConfig options;
  options.max_length = 12;
  options.batch = 4;
  std::size_t longest = 0;
  for (const Placed& where : placements()) {
    Model model = open_on(where);
    for (const char* method : {"greedy", "beam"}) {
      options.method = method;
      options.beam = 3;
      const std::vector<Decoded> outputs = translate(model, sources, options);
      ASSERT_EQ(outputs.size(), sources.size());
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        longest = std::max(longest, outputs[i].tokens.size());
        EXPECT_NEAR(outputs[i].log_probability, full_forward(model, sources[i], outputs[i]), 1e-5)
            << where.layout << " " << method << " " << i;
      }
    }
  }
  EXPECT_GT(longest, 3U);
}

TEST(Decode, SamplingIsTheSameOnEveryMeshAndBatchSize) {
  const std::vector<std::string> sources = first_sources(6);
  DecodeConfig options;
  options.method = "sample";
  options.temperature = 1.3;
  options.top_k = 50;
  options.top_p = 0.95;
  options.max_length = 8;
  std::vector<Decoded> first;
  for (const Placed& where : placements()) {
    options.batch = where.mesh.empty() ? 16 : 3;
    Model model = open_on(where);
    const std::vector<Decoded> outputs = translate(model, sources, options, 11);
    if (first.empty()) {
      first = outputs;
      continue;
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (first[i].near_tie) continue;
      EXPECT_EQ(outputs[i].tokens, first[i].tokens) << where.layout << " " << i;
    }
  }
  Model model = open_on(placements()[0]);
  EXPECT_NE(translate(model, sources, options, 12)[0].tokens, first[0].tokens) << "the seed changes nothing";
}

TEST(Decode, OrderIsThatOfTheInputs) {
  std::vector<std::string> sources = first_sources(9);
  sources.insert(sources.begin() + 3, "");
  DecodeConfig options;
  options.max_length = 10;
  options.batch = 4;
  Model model = open_on(placements()[0]);
  const std::vector<Decoded> together = translate(model, sources, options);
  ASSERT_EQ(together.size(), sources.size());
  EXPECT_EQ(together[3].text, "");
  for (const std::size_t i : {0U, 2U, 5U, 9U}) {
    EXPECT_EQ(translate(model, {sources[i]}, options)[0].tokens, together[i].tokens) << i;
  }
}

TEST(Decode, LanguageModelContinuesPrompts) {
  const std::vector<std::string> prompts{"the dog", "", "the small house and the"};
  DecodeConfig options;
  options.max_length = 6;
  std::vector<Decoded> first;
  for (const Placed& where : placements()) {
    Model model = open_on(where, true);
    const std::vector<Decoded> outputs = generate(model, prompts, options);
    ASSERT_EQ(outputs.size(), 3U);
    for (const Decoded& output : outputs) EXPECT_LE(output.tokens.size(), 6U);
    EXPECT_NEAR(outputs[1].log_probability, full_forward(model, "", outputs[1]), 1e-5);
    if (first.empty()) first = outputs;
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(outputs[i].tokens, first[i].tokens) << where.layout;
  }
  Model model = open_on(placements()[0], true);
  options.method = "beam";
  options.beam = 1;
  options.length_penalty = 0;
  const std::vector<Decoded> beam = generate(model, prompts, options);
  for (std::size_t i = 0; i < 3; ++i) {
    if (!first[i].finished) continue;
    EXPECT_EQ(beam[i].tokens, first[i].tokens) << i;
  }
}

TEST(Sample, FollowsTheDistribution) {
  const std::vector<double> p{0.5, 0.2, 0.2, 0.1};
  std::vector<double> logs;
  for (const double value : p) logs.push_back(std::log(value));
  const auto draw = [&](double u, const DecodeConfig& options) {
    return sample(std::span<const double>(logs), options, u).token;
  };
  DecodeConfig options;
  EXPECT_EQ(draw(0.49, options), 0);
  EXPECT_EQ(draw(0.51, options), 1);
  EXPECT_EQ(draw(0.71, options), 2);
  EXPECT_EQ(draw(0.95, options), 3);
  options.top_k = 2;  // 5/7 and 2/7
  EXPECT_EQ(draw(0.71, options), 0);
  EXPECT_EQ(draw(0.72, options), 1);
  EXPECT_EQ(draw(0.9999999, options), 1);
  options.top_k = 0;
  options.top_p = 0.6;  // the same two
  EXPECT_EQ(draw(0.72, options), 1);
  options.top_p = 1;
  options.temperature = 1e-3;
  EXPECT_EQ(draw(0.9999, options), 0);
}

TEST(Sample, ReportsNearTies) {
  const std::vector<double> logs{std::log(0.5), std::log(0.25), std::log(0.25)};
  const auto tie = [&](double u, const DecodeConfig& options) {
    return sample(std::span<const double>(logs), options, u).near_tie;
  };
  EXPECT_FALSE(tie(0.3, {}));
  EXPECT_TRUE(tie(0.500001, {}));
  EXPECT_TRUE(tie(0.499999, {}));
  DecodeConfig two;
  two.top_k = 2;  // the second and the third are equal
  EXPECT_TRUE(tie(0.1, two));
}

}  // namespace
}  // namespace tessera
