// Two tiny models against PyTorch: logits, losses, gradients, ten steps of Adam and Adafactor. The values
// were made by scripts/oracles/torch_models.py in f64; per tensor max|a - b| <= bound * max|b|.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tessera/grad.h"
#include "tessera/models.h"
#include "tessera/optimizer.h"
#include "tessera/safetensors.h"
#include "tessera/session.h"

namespace tessera {
namespace {

constexpr int kSteps = 10;
constexpr double kRate = 0.01;

struct Values {
  std::vector<std::int64_t> shape;
  std::vector<double> data;
};

// A file of oracle values; absent when nobody made it.
class Oracle {
 public:
  static std::string path(const std::string& name) {
    return std::string(TESSERA_SOURCE_DIR) + "/tests/parity/data/" + name + ".safetensors";
  }

  explicit Oracle(const std::string& name) : reader_(path(name)) {}

  Values get(const std::string& name) const {
    const SafetensorsTensor* tensor = reader_.find(name);
    if (!tensor) throw std::runtime_error("the oracle has no " + name);
    const Box box{std::vector<std::int64_t>(tensor->shape.size(), 0), tensor->shape};
    std::vector<std::byte> bytes(static_cast<std::size_t>(box.elements()) * size_of(tensor->dtype));
    reader_.read(name, box, bytes.data());
    Array flat({{{"i", box.elements()}}, tensor->dtype});
    flat.data = std::move(bytes);
    Values values{tensor->shape, {}};
    for (std::int64_t i = 0; i < flat.elements(); ++i) values.data.push_back(flat.get(i));
    return values;
  }

  Strings names(const std::string& prefix) const {
    Strings result;
    for (const SafetensorsTensor& t : reader_.tensors()) {
      if (t.name.rfind(prefix, 0) == 0) result.push_back(t.name.substr(prefix.size()));
    }
    return result;
  }

 private:
  SafetensorsReader reader_;
};

void expect_close(const Array& got, const Values& expected, double bound, const std::string& what) {
  ASSERT_EQ(got.elements(), static_cast<std::int64_t>(expected.data.size())) << what;
  double largest = 0, worst = 0;
  for (std::int64_t i = 0; i < got.elements(); ++i) {
    const double b = expected.data[static_cast<std::size_t>(i)], difference = std::abs(got.get(i) - b);
    largest = std::max(largest, std::abs(b));
    if (!(difference <= worst)) worst = difference;
  }
  EXPECT_LE(worst, bound * largest) << what;
}

TransformerConfig encoder_decoder() {
  TransformerConfig c;
  c.encoder_layers = c.layers = 2;
  c.d_model = 16;
  c.heads = 3;
  c.d_kv = 4;
  c.d_ff = 24;
  c.vocab = 29;
  c.positions = Positions::Relative;
  c.relative_buckets = 8;
  c.relative_max_distance = 6;
  c.dropout = 0;
  c.label_smoothing = 0.1;
  c.z_loss = 1e-3;
  return c;
}

TransformerConfig language_model() {
  TransformerConfig c;
  c.kind = ModelKind::LanguageModel;
  c.layers = 2;
  c.d_model = 12;
  c.heads = 2;
  c.d_kv = 5;
  c.d_ff = 20;
  c.vocab = 23;
  c.max_length = 9;
  c.tied_softmax = c.scale_embedding = false;
  c.norm = nn::NormKind::Layer;
  c.pre_norm = false;
  c.activation = {"swish", "linear"};
  c.dropout = 0;
  return c;
}

struct Case {
  const char* name;
  TransformerConfig (*config)();
  ModelShape shape;
  double weight_decay, adafactor_beta1;
  const char *mesh, *layout;
};

class Torch : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (std::filesystem::exists(Oracle::path(GetParam().name))) return;
    std::puts("SKIP torch_models: tests/parity/data has no values; run scripts/oracles/torch_models.py");
    GTEST_SKIP();
  }

  // A model in one type, with the oracle's weights in its Store.
  struct Model {
    Graph graph;
    TransformerOutputs outputs;
    Tensors parameters, gradients_;
    std::unique_ptr<Session> session;
    FeedMap feeds;

    Model(const Case& item, const Oracle& oracle, DType dtype) {
      TransformerConfig config = item.config();
      config.dtype = dtype;
      outputs = build_transformer_loss(graph, config, item.shape);
      parameters = trainable_parameters(graph, {});
      gradients_ = gradients({outputs.loss.sum}, parameters);
      for (const std::string& name : oracle.names("input/")) {
        feeds[name] = Array(graph.find(name).type(), oracle.get("input/" + name).data);
      }
    }

    int compile(const Case& item, const Oracle& oracle, const Tensors& targets) {
      const Mesh mesh = Mesh::parse(item.mesh);
      session = std::make_unique<Session>(graph, mesh, Layout::parse(item.layout));
      const int program = session->compile(targets);
      EXPECT_EQ(oracle.names("weight/").size(), parameters.size());
      for (const std::string& name : oracle.names("weight/")) {
        session->store().write(name, Array(graph.find(name).type(), oracle.get("weight/" + name).data));
      }
      return program;
    }
  };

  void expect_forward_and_gradients(DType dtype, double bound) {
    const Oracle oracle(GetParam().name);
    Model model(GetParam(), oracle, dtype);
    Tensors targets{model.outputs.logits, model.outputs.loss.sum, model.outputs.loss.weight};
    targets.insert(targets.end(), model.gradients_.begin(), model.gradients_.end());
    const int program = model.compile(GetParam(), oracle, targets);
    const Results results = model.session->run(program, model.feeds);
    expect_close(results.gather(0), oracle.get("logits"), bound, "logits");
    const Values loss = oracle.get("loss");
    EXPECT_NEAR(results.scalar(1), loss.data[0], bound * loss.data[0]);
    EXPECT_EQ(results.scalar(2), loss.data[1]);
    for (std::size_t i = 0; i < model.parameters.size(); ++i) {
      const std::string name = model.parameters[i].name();
      expect_close(results.gather(3 + i), oracle.get("gradient/" + name), bound, "gradient of " + name);
    }
  }

  void expect_training(const std::string& kind, const OptimizerConfig& config, DType dtype, double loss_bound,
                       double parameter_bound) {
    const Oracle oracle(GetParam().name);
    Model model(GetParam(), oracle, dtype);
    Graph& g = model.graph;
    const UpdateInputs inputs{g.input("learning_rate", {}, dtype), g.input("step", {}, DType::I32),
                              model.outputs.loss.weight};
    const Updates updates = build_updates(g, model.parameters, model.gradients_, config, inputs);
    Tensors targets{nn::ratio(model.outputs.loss.sum, model.outputs.loss.weight)};
    targets.insert(targets.end(), updates.assignments.begin(), updates.assignments.end());
    const int program = model.compile(GetParam(), oracle, targets);
    const Values losses = oracle.get(kind + "/losses");
    model.feeds["learning_rate"] = Array({{}, dtype}, {kRate});
    for (int step = 0; step < kSteps; ++step) {
      model.feeds["step"] = Array({{}, DType::I32}, {static_cast<double>(step)});
      const double loss = model.session->run(program, model.feeds, {.step = step, .windows = {}}).scalar(0);
      const double expected = losses.data[static_cast<std::size_t>(step)];
      EXPECT_NEAR(loss, expected, loss_bound * expected) << kind << ", step " << step;
    }
    if (parameter_bound == 0) return;
    for (const Tensor& p : model.parameters) {
      expect_close(model.session->store().read(p.name()), oracle.get(kind + "/after/" + p.name()),
                   parameter_bound, kind + ", " + p.name());
    }
  }

  static OptimizerConfig adam() {
    OptimizerConfig config;
    config.beta2 = 0.98;
    config.epsilon = 1e-9;
    config.weight_decay = GetParam().weight_decay;
    return config;
  }

  static OptimizerConfig adafactor() {
    OptimizerConfig config;
    config.kind = OptimizerKind::Adafactor;
    config.adafactor.min_factored_size = 8;
    config.adafactor.beta1 = GetParam().adafactor_beta1;
    return config;
  }
};

constexpr ModelShape kPairs{.batch = 2, .source_length = 5, .target_length = 6};
constexpr ModelShape kPacked{.batch = 2, .source_length = 0, .target_length = 7, .packed = true};

INSTANTIATE_TEST_SUITE_P(Models, Torch,
                         ::testing::Values(Case{"encoder_decoder", encoder_decoder, kPairs, 0, 0, "", ""},
                                           Case{"lm", language_model, kPacked, 0.05, 0.9, "", ""},
                                           Case{"encoder_decoder", encoder_decoder, kPairs, 0, 0,
                                                "rows:2;cols:2",
                                                "batch:rows;heads:cols;d_ff:cols;vocab:cols"},
                                           Case{"lm", language_model, kPacked, 0.05, 0.9, "rows:3;cols:2",
                                                "vocab:rows;heads:cols;d_ff:rows+cols;slots.*:cols"}),
                         [](const auto& item) { return fmt::format("{}_{}", item.param.name, item.index); });

TEST_P(Torch, LogitsLossAndGradientsInF32) {
  expect_forward_and_gradients(DType::F32, 1e-4);
}
TEST_P(Torch, LogitsLossAndGradientsInF64) {
  expect_forward_and_gradients(DType::F64, 1e-10);
}
TEST_P(Torch, AdamLossesInF32) {
  expect_training("adam", adam(), DType::F32, 1e-4, 0);
}
TEST_P(Torch, AdamParametersInF64) {
  expect_training("adam", adam(), DType::F64, 1e-8, 1e-8);
}
TEST_P(Torch, AdafactorLossesInF32) {
  expect_training("adafactor", adafactor(), DType::F32, 1e-4, 0);
}
TEST_P(Torch, AdafactorParametersInF64) {
  expect_training("adafactor", adafactor(), DType::F64, 1e-8, 1e-8);
}

}  // namespace
}  // namespace tessera
