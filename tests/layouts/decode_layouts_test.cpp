// Decoding with caches, one token at a time, gives the logits of the full forward pass on every legal layout.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "layouts/legal.h"
#include "support/passes.h"
#include "tessera/models.h"
#include "tessera/session.h"

namespace tessera {
namespace {

constexpr std::int64_t kRows = 5, kSource = 4, kTarget = 3;

TransformerConfig decoder_config(ModelKind kind) {
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
  c.dropout = 0;
  c.dtype = DType::F64;
  if (kind == ModelKind::LanguageModel) c.positions = Positions::Relative;
  return c;
}

Array token_rows(std::int64_t columns, std::int64_t salt) {
  Array a({{{"batch", kRows}, {"length", columns}}, DType::I32});
  for (std::int64_t i = 0; i < a.elements(); ++i) a.set(i, static_cast<double>(1 + (i * 7 + salt) % 10));
  return a;
}

// The programs of one model: the source side (encoder_decoder), and one token.
struct Decoder {
  Graph prefill, step;
  Tensors fill, targets;

  explicit Decoder(ModelKind kind) {
    DecodeShape shape{.batch = kRows, .capacity = kTarget};
    if (kind == ModelKind::EncoderDecoder) {
      shape.source_length = kSource;
      fill = build_prefill(prefill, decoder_config(kind), shape);
    }
    const DecodeOutputs out = build_decode(step, decoder_config(kind), shape);
    targets = {out.logits};
    targets.insert(targets.end(), out.assignments.begin(), out.assignments.end());
  }

  void lower_all(const Mesh& mesh, const Layout& layout) const {
    LowerOptions options;
    options.without = {"fuse"};
    if (!fill.empty()) lower(prefill, fill, mesh, layout, options);
    lower(step, targets, mesh, layout, options);
  }

  // |logits - full| at its largest; the tokens fed are those of the full pass, shifted.
  double error_against(const Array& full, const Array& target, const Mesh& mesh, const Layout& layout) const {
    Session session(step, mesh, layout, testing::session_options());
    const int next = session.compile(targets);
    if (!fill.empty())
      session.run(session.compile(prefill, fill), FeedMap{{"source", token_rows(kSource, 5)}});
    const std::int64_t vocab = full.type.shape.size("vocab");
    double worst = 0;
    for (std::int64_t p = 0; p < kTarget; ++p) {
      Array token({{{"batch", kRows}, {"length", 1}}, DType::I32}), position({{}, DType::I32});
      for (std::int64_t r = 0; r < kRows; ++r) token.set(r, p == 0 ? 0 : target.get(r * kTarget + p - 1));
      position.set(0, static_cast<double>(p));
      const Array logits = session.run(next, FeedMap{{"token", token}, {"position", position}}).gather(0);
      for (std::int64_t r = 0; r < kRows; ++r)
        for (std::int64_t v = 0; v < vocab; ++v)
          worst =
              std::max(worst, std::abs(logits.get(r * vocab + v) - full.get((r * kTarget + p) * vocab + v)));
    }
    return worst;
  }
};

class DecodeLayouts : public ::testing::TestWithParam<ModelKind> {};

TEST_P(DecodeLayouts, CachedStepsGiveTheLogitsOfTheFullPassOnEveryLegalLayout) {
  const bool has_source = GetParam() == ModelKind::EncoderDecoder;
  const Array target = token_rows(kTarget, 2);
  Graph graph;
  const Tensor logits =
      build_logits(graph, decoder_config(GetParam()),
                   {.batch = kRows, .source_length = has_source ? kSource : 0, .target_length = kTarget});
  FeedMap feeds{{"target", target}};
  if (has_source) feeds["source"] = token_rows(kSource, 5);
  Session whole(graph, Mesh(), Layout());
  const Array full = whole.run(whole.compile({logits}), feeds).gather(0);
  ASSERT_EQ(full.type.shape, (Shape{{"batch", kRows}, {"length", kTarget}, {"vocab", 11}}));

  const Decoder decoder(GetParam());
  int cases = 0;
  double worst = 0;
  for (const char* text : {"a:1", "a:2", "a:3", "a:4", "a:2;b:2", "a:2;b:3", "a:2;b:4"}) {
    const Mesh mesh = Mesh::parse(text);
    for (const std::string& layout :
         testing::legal_layouts(mesh, [&](const Layout& l) { decoder.lower_all(mesh, l); })) {
      SCOPED_TRACE(fmt::format("mesh {} layout {}", text, layout));
      worst = std::max(worst, decoder.error_against(full, target, mesh, Layout::parse(layout)));
      ASSERT_LE(worst, 1e-10);
      ++cases;
    }
  }
  fmt::print("{} cases, largest difference {:.2e}\n", cases, worst);
  EXPECT_GT(cases, 300);
}

INSTANTIATE_TEST_SUITE_P(, DecodeLayouts,
                         ::testing::Values(ModelKind::EncoderDecoder, ModelKind::LanguageModel),
                         [](const auto& kind) { return std::string(to_string(kind.param)); });

}  // namespace
}  // namespace tessera
