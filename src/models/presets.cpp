// Named models: the paper's thirteen, the measuring rod of the peers, and small ones for demos and tests.
#include "base/check.h"
#include "tessera/models.h"

namespace tessera {
namespace {

// Sizes of Mesh-TensorFlow's experiments: size s has 2^s times the heads and the d_ff of size 0.
struct PaperSize {
  const char* name;
  std::int64_t d_ff, heads;
  const char* mesh;
};

constexpr PaperSize kLanguageModels[] = {{"lm_0.143b", 4096, 4, "batch:32"},
                                         {"lm_0.218b", 8192, 8, "batch:32"},
                                         {"lm_0.369b", 16384, 16, "model:4;batch:8"},
                                         {"lm_0.671b", 32768, 32, "model:4;batch:8"},
                                         {"lm_1.275b", 65536, 64, "model:8;batch:16"},
                                         {"lm_2.483b", 131072, 128, "batch:16;model:32"},
                                         {"lm_4.899b", 262144, 256, "batch:16;model:32"}};

constexpr PaperSize kTranslationModels[] = {
    {"mt_0.155b", 2048, 4, "batch:32"},           {"mt_0.244b", 4096, 8, "batch:32"},
    {"mt_0.420b", 8192, 16, "model:4;batch:8"},   {"mt_0.772b", 16384, 32, "model:4;batch:8"},
    {"mt_1.477b", 32768, 64, "model:8;batch:16"}, {"mt_2.886b", 65536, 128, "model:8;batch:16"}};

constexpr const char* kPaperSchedule = "linear_warmup(10000) * truncated_rsqrt(10000) * linear_decay(0.1)";
constexpr const char* kPaperLayout = "batch:batch;vocab:model?;d_ff:model?;heads:model?";

TransformerConfig paper_model(const PaperSize& size) {
  TransformerConfig model;
  model.d_model = 1024;
  model.d_ff = size.d_ff;
  model.heads = size.heads;
  model.vocab = 32768;
  model.max_length = 256;
  model.tied_softmax = false;
  model.dtype = DType::BF16;
  return model;
}

Preset paper_preset(const PaperSize& size, ModelKind kind) {
  Preset preset;
  preset.name = size.name;
  preset.model = paper_model(size);
  preset.model.kind = kind;
  const bool is_lm = kind == ModelKind::LanguageModel;
  preset.about = is_lm ? "Mesh-TensorFlow's language model on one billion words"
                       : "Mesh-TensorFlow's translation model on WMT14";
  preset.model.d_kv = is_lm ? 256 : 128;
  preset.model.label_smoothing = is_lm ? 0 : 0.1;
  preset.batch = is_lm ? 256 : 128;
  preset.length = 256;
  preset.steps = is_lm ? 136000 : 154000;
  preset.optimizer = "adafactor";
  preset.schedule = kPaperSchedule;
  preset.mesh = size.mesh;
  preset.layout = kPaperLayout;
  return preset;
}

Preset tiny(ModelKind kind) {
  Preset preset;
  preset.name = kind == ModelKind::LanguageModel ? "tiny_lm" : "tiny";
  preset.about = "two layers, for tests and first steps";
  TransformerConfig& model = preset.model;
  model.kind = kind;
  model.encoder_layers = model.layers = 2;
  model.d_model = 64;
  model.heads = 4;
  model.d_kv = 16;
  model.d_ff = 128;
  model.vocab = 1000;
  model.max_length = 64;
  preset.batch = 16;
  preset.length = 32;
  preset.steps = 200;
  preset.optimizer = "adam";
  preset.schedule = "0.003 * warmup_linear(0.1)";
  return preset;
}

Preset demo() {
  Preset preset;
  preset.name = "demo";
  preset.about = "English-French in minutes on two cores";
  TransformerConfig& model = preset.model;
  model.encoder_layers = model.layers = 3;
  model.d_model = 256;
  model.heads = 4;
  model.d_kv = 64;
  model.d_ff = 1024;
  model.vocab = 8000;
  model.max_length = 128;
  model.positions = Positions::Sinusoidal;
  model.label_smoothing = 0.1;
  preset.batch = 64;
  preset.length = 48;
  preset.steps = 840;
  preset.optimizer = "adam";
  preset.schedule = "0.002 * warmup_linear(0.1)";
  return preset;
}

Preset peers_lm() {
  Preset preset;
  preset.name = "peers_lm";
  preset.about = "the language model that other systems are measured with";
  TransformerConfig& model = preset.model;
  model.kind = ModelKind::LanguageModel;
  model.layers = 6;
  model.d_model = 512;
  model.heads = 8;
  model.d_kv = 64;
  model.d_ff = 2048;
  model.vocab = 32000;
  model.max_length = 256;
  model.tied_softmax = false;
  model.scale_embedding = false;
  model.dropout = 0;
  preset.batch = 8;
  preset.length = 256;
  preset.steps = 5;
  preset.optimizer = "adam";
  preset.schedule = "0.0001";
  return preset;
}

}  // namespace

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = [] {
    std::vector<Preset> list{tiny(ModelKind::EncoderDecoder), tiny(ModelKind::LanguageModel), demo(),
                             peers_lm()};
    for (const PaperSize& size : kLanguageModels)
      list.push_back(paper_preset(size, ModelKind::LanguageModel));
    for (const PaperSize& size : kTranslationModels)
      list.push_back(paper_preset(size, ModelKind::EncoderDecoder));
    return list;
  }();
  return all;
}

const Preset& preset(std::string_view name) {
  std::vector<std::string> names;
  for (const Preset& p : presets()) {
    if (p.name == name) return p;
    names.push_back(p.name);
  }
  const std::string near = nearest_name(name, names);
  throw UserError(fmt::format("there is no preset '{}'{}; the presets are {}", name,
                              near.empty() ? "" : fmt::format("; did you mean '{}'?", near),
                              fmt::join(names, ", ")));
}

}  // namespace tessera
