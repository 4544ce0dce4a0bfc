// Makers of fields by type, and the table of all keys.
#include "models/config_fields.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/check.h"
#include "base/text.h"
#include "lang/text.h"

namespace tessera {

std::string toml_text(const toml::node& value) {
  std::ostringstream stream;
  value.visit([&](auto&& node) { stream << node; });
  std::string text = stream.str();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

std::string toml_quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      result += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result + '"';
}

const ConfigField* ConfigSection::find(std::string_view key) const {
  for (const ConfigField& field : fields) {
    if (field.key == key) return &field;
  }
  return nullptr;
}

namespace {

using toml::node;

std::string must_be(const std::string& what, const node& value) {
  return fmt::format(" must be {}, not {}", what, toml_text(value));
}

std::string out_of_range(const node& value, const std::string& range) {
  return fmt::format(" = {} is out of range; it must be {}", toml_text(value), range);
}

ConfigField integer(const char* key, std::int64_t& at, std::int64_t low, std::int64_t high,
                    const char* about) {
  const std::string range = fmt::format("from {} to {}", low, high);
  const auto read = [&at, low, high, range](const node& value) -> std::string {
    if (!value.is_integer()) return must_be("a whole number", value);
    const std::int64_t number = value.as_integer()->get();
    if (number < low || number > high) return out_of_range(value, range);
    at = number;
    return "";
  };
  return {key, "whole number " + range, about, read, [&at] { return fmt::format("{}", at); }};
}

// Range of a number: closed, but `below` excludes the upper end.
struct Range {
  double low = 0, high = 0;
  bool below = false;

  std::string text() const {
    if (std::isinf(high)) return fmt::format("at least {}", low);
    return below ? fmt::format("at least {} and below {}", low, high)
                 : fmt::format("from {} to {}", low, high);
  }
  bool holds(double v) const { return v >= low && (below ? v < high : v <= high); }
};
constexpr double kMany = std::numeric_limits<double>::infinity();

std::string read_number(const node& value, const Range& range, double& number) {
  if (!value.is_number()) return must_be("a number", value);
  number = *value.value<double>();
  return std::isfinite(number) && range.holds(number) ? "" : out_of_range(value, range.text());
}

ConfigField number(const char* key, double& at, Range range, const char* about) {
  const auto read = [&at, range](const node& value) {
    double v = 0;
    std::string wrong = read_number(value, range, v);
    if (wrong.empty()) at = v;
    return wrong;
  };
  return {key, "number " + range.text(), about, read, [&at] { return number_text(at); }};
}

ConfigField number(const char* key, std::optional<double>& at, Range range, const char* about) {
  const auto read = [&at, range](const node& value) {
    double v = 0;
    std::string wrong = read_number(value, range, v);
    if (wrong.empty()) at = v;
    return wrong;
  };
  return {key, "number " + range.text(), about, read, [&at] { return at ? number_text(*at) : ""; }};
}

template <class Bool>
ConfigField flag(const char* key, Bool& at, const char* about) {
  const auto read = [&at](const node& value) -> std::string {
    if (!value.is_boolean()) return must_be("true or false", value);
    at = value.as_boolean()->get();
    return "";
  };
  const auto print = [&at]() -> std::string {
    if constexpr (std::is_same_v<Bool, std::optional<bool>>) {
      return at ? (*at ? "true" : "false") : "";
    } else {
      return at ? "true" : "false";
    }
  };
  return {key, "true or false", about, read, print};
}

ConfigField text(const char* key, std::string& at, const char* about) {
  const auto read = [&at](const node& value) -> std::string {
    if (!value.is_string()) return must_be("a string", value);
    at = value.as_string()->get();
    return "";
  };
  return {key, "string", about, read, [&at] { return toml_quoted(at); }};
}

// A value with a text form of its own: `parse` throws UserError.
template <class Parse, class Print>
ConfigField parsed(const char* key, std::string type, const char* about, Parse parse, Print print) {
  const auto read = [parse](const node& value) -> std::string {
    if (!value.is_string()) return must_be("a string", value);
    try {
      parse(value.as_string()->get());
    } catch (const UserError& error) {
      return fmt::format(": {}", error.what());
    }
    return "";
  };
  return {key, std::move(type), about, read, [print]() -> std::string { return toml_quoted(print()); }};
}

template <class T>
using Choices = std::vector<std::pair<std::string, T>>;

template <class T>
ConfigField choice(const char* key, T& at, Choices<T> choices, const char* about) {
  std::vector<std::string> names;
  for (const auto& [name, value] : choices) names.push_back(name);
  const std::string type = fmt::format("one of {}", fmt::join(names, ", "));
  const auto read = [&at, choices, names, type](const node& value) -> std::string {
    if (!value.is_string()) return must_be(type, value);
    for (const auto& [name, known] : choices) {
      if (value.as_string()->get() != name) continue;
      at = known;
      return "";
    }
    const std::string near = nearest_name(value.as_string()->get(), names);
    return must_be(type, value) + (near.empty() ? "" : fmt::format("; did you mean '{}'?", near));
  };
  const auto print = [&at, choices]() -> std::string {
    for (const auto& [name, known] : choices) {
      if (known == at) return toml_quoted(name);
    }
    return "";
  };
  return {key, type, about, read, print};
}

ConfigField choice(const char* key, std::string& at, const Strings& names, const char* about) {
  Choices<std::string> choices;
  for (const std::string& name : names) choices.emplace_back(name, name);
  return choice<std::string>(key, at, choices, about);
}

// A list of strings; one string is split at commas.
ConfigField list(const char* key, Strings& at, const char* about) {
  const auto read = [&at](const node& value) -> std::string {
    Strings result;
    if (value.is_string()) {
      std::istringstream parts(value.as_string()->get());
      for (std::string part; std::getline(parts, part, ',');) result.push_back(part);
    } else {
      if (!value.is_array()) return must_be("a list of strings", value);
      for (const node& item : *value.as_array()) {
        if (!item.is_string()) return must_be("a list of strings", value);
        result.push_back(item.as_string()->get());
      }
    }
    at = std::move(result);
    return "";
  };
  const auto print = [&at] {
    Strings quoted;
    for (const std::string& item : at) quoted.push_back(toml_quoted(item));
    return fmt::format("[{}]", fmt::join(quoted, ", "));
  };
  return {key, "list of strings", about, read, print};
}

constexpr std::int64_t kBig = std::int64_t{1} << 40;

ConfigSection model_fields(TransformerConfig& m) {
  return {
      "model",
      {choice<ModelKind>("kind", m.kind,
                         {{"lm", ModelKind::LanguageModel}, {"encoder_decoder", ModelKind::EncoderDecoder}},
                         "language model (a decoder alone) or encoder and decoder"),
       integer("encoder_layers", m.encoder_layers, 1, 10000, "layers of the encoder"),
       integer("layers", m.layers, 1, 10000, "layers of the decoder"),
       integer("d_model", m.d_model, 1, 1 << 24, "width of the residual stream"),
       integer("heads", m.heads, 1, 1 << 24, "attention heads"),
       integer("d_kv", m.d_kv, 1, 1 << 24, "width of a head's queries, keys and values"),
       integer("d_ff", m.d_ff, 1, 1 << 24, "width of the hidden layer of feed-forward blocks"),
       integer("vocab", m.vocab, 2, 1 << 30, "pieces of the vocabulary"),
       integer("max_length", m.max_length, 1, 1 << 24, "rows of the table of learned positions"),
       flag("shared_embedding", m.shared_embedding, "source and target share one embedding table"),
       flag("tied_softmax", m.tied_softmax, "the output projection is the target's embedding table"),
       flag("scale_embedding", m.scale_embedding, "embeddings times sqrt(d_model)"),
       choice<Positions>("positions", m.positions,
                         {{"learned", Positions::Learned},
                          {"sinusoidal", Positions::Sinusoidal},
                          {"relative", Positions::Relative},
                          {"none", Positions::None}},
                         "how the model knows positions; relative: a bias per head and distance, as in T5"),
       integer("relative_buckets", m.relative_buckets, 4, 100000, "buckets of distances"),
       integer("relative_max_distance", m.relative_max_distance, 3, 1 << 24,
               "distances beyond share a bucket"),
       flag("relative_shared", m.relative_shared, "all layers of a stack share one table of biases"),
       number("dropout", m.dropout, {0, 1, true}, "rate of dropout"),
       flag("dropout_shared_over_length", m.dropout_shared_over_length,
            "one dropout mask for all positions of a sequence"),
       list("activation", m.activation,
            "relu, gelu, gelu_erf, swish, tanh, sigmoid or linear; several: gated"),
       choice<nn::NormKind>("norm", m.norm, {{"rms", nn::NormKind::Rms}, {"layer", nn::NormKind::Layer}},
                            "kind of normalisation"),
       number("norm_epsilon", m.norm_epsilon, {0, 1}, "added to the variance"),
       flag("pre_norm", m.pre_norm, "normalise before each sub-layer and at the end; else after each sum"),
       number("label_smoothing", m.label_smoothing, {0, 1, true},
              "share of the target spread over all pieces"),
       number("z_loss", m.z_loss, {0, 1}, "weight of the squared log of the softmax's denominator"),
       flag("fold_attention_scale", m.fold_attention_scale,
            "1/sqrt(d_kv) in initial values, not at run time"),
       choice<DType>("dtype", m.dtype, {{"f32", DType::F32}, {"bf16", DType::BF16}, {"f64", DType::F64}},
                     "type of activations; parameters are f32 (f64 with f64)"),
       list("recompute", m.recompute,
            "globs of scopes to compute again in the backward pass: decoder/layer_*")}};
}

ConfigSection optimizer_fields(OptimizerSection& section) {
  OptimizerConfig& c = section.config;
  return {"optimizer",
          {choice<OptimizerKind>("kind", c.kind,
                                 {{"sgd", OptimizerKind::Sgd},
                                  {"momentum", OptimizerKind::Momentum},
                                  {"adam", OptimizerKind::Adam},
                                  {"adafactor", OptimizerKind::Adafactor}},
                                 "how gradients become updates"),
           parsed(
               "schedule", "schedule", "learning rate: a product such as 0.002 * warmup_linear(400)",
               [&section](const std::string& s) { section.schedule = Schedule::parse(s); },
               [&section] { return to_string(section.schedule); }),
           number("weight_decay", c.weight_decay, {0, 1}, "decoupled weight decay"),
           number("momentum", c.momentum, {0, 1, true}, "momentum: decay of the velocity"),
           number("beta1", c.beta1, {0, 1, true}, "adam: decay of the mean"),
           number("beta2", c.beta2, {0, 1, true}, "adam: decay of the mean square"),
           number("epsilon", c.epsilon, {0, 1}, "adam: added to the root"),
           flag("bias_correction", c.bias_correction, "adam: divide by 1 - beta^t; Mesh-TensorFlow does not"),
           number("clip_norm", c.clip_norm, {0, kMany}, "largest global norm of the gradients; 0: any"),
           choice<NanPolicy>("nan", c.nan, {{"stop", NanPolicy::Stop}, {"skip", NanPolicy::Skip}},
                             "what to do with a gradient that is not finite"),
           choice<std::optional<DType>>(
               "slot_dtype", c.slot_dtype,
               {{"default", std::nullopt}, {"f32", DType::F32}, {"bf16", DType::BF16}, {"f64", DType::F64}},
               "type of slots; default: f32, f64 for f64 parameters")}};
}

ConfigSection adafactor_fields(AdafactorOptions& a) {
  return {
      "optimizer.adafactor",
      {choice<AdafactorOptions::Decay>(
           "decay", a.decay, {{"pow", AdafactorOptions::Decay::Pow}, {"adam", AdafactorOptions::Decay::Adam}},
           "how the decay of the mean squares grows with the step"),
       number("decay_exponent", a.decay_exponent, {0, 1}, "pow: 1 - (step + 1)^-exponent"),
       number("decay_beta2", a.decay_beta2, {0.001, 1, true}, "adam: the limit of the decay"),
       number("beta1", a.beta1, {0, 1, true}, "decay of the mean of updates; 0: none is kept"),
       number("clipping_threshold", a.clipping_threshold, {0, kMany}, "largest rms of an update; 0: any"),
       flag("factored", a.factored, "keep row and column statistics only"),
       flag("parameter_scale", a.parameter_scale, "updates relative to the parameter's rms"),
       number("epsilon1", a.epsilon1, {0, 1}, "added to squared gradients"),
       number("epsilon2", a.epsilon2, {0, 1}, "least scale of a parameter"),
       integer("min_factored_size", a.min_factored_size, 1, kBig, "the two largest dimensions reach it")}};
}

ConfigSection split_fields(const char* path, SplitConfig& s) {
  return {path,
          {list("files", s.files,
                "text, tsv or jsonl files, or the source side of parallel ones; .gz and .zst too"),
           list("target_files", s.target_files, "the target side of parallel files"),
           list("documents", s.documents, "beside files, line by line: origin:document of each example"),
           list("origins", s.origins, "keep only examples of these origins; needs documents")}};
}

ConfigSection data_fields(DataConfig& d) {
  return {
      "data",
      {choice("format", d.format, {"parallel", "tsv", "text", "jsonl"}, "what the files hold"),
       text("source_key", d.source_key, "jsonl: key of the source"),
       text("target_key", d.target_key, "jsonl: key of the target"),
       choice("invalid_utf8", d.invalid_utf8, {"error", "replace", "skip"},
              "what to do with ill-formed text"),
       text("tokenizer", d.tokenizer, "a SentencePiece model; empty: trained on the training files"),
       choice("tokenizer_kind", d.tokenizer_kind, {"unigram", "bpe"}, "kind of a tokenizer to be trained"),
       integer("vocab_size", d.vocab_size, 260, 1 << 24, "pieces of a tokenizer to be trained"),
       text("cache", d.cache, "folder of tokenised data; empty: in the run folder"),
       integer("batch_tokens", d.batch_tokens, 1, kBig, "target tokens a batch, padding included"),
       integer("batch_sentences", d.batch_sentences, 0, kBig, "above 0: so many rows of full length instead"),
       integer("buckets", d.buckets, 1, 1000, "at most so many batch shapes"),
       integer("max_source_length", d.max_source_length, 1, kBig, "tokens of a source with its end"),
       integer("max_target_length", d.max_target_length, 1, kBig, "tokens of a target, or of a row of text"),
       choice("too_long", d.too_long, {"drop", "cut", "error"}, "what to do with longer examples"),
       flag("pack", d.pack, "text: several examples in a row")}};
}

ConfigSection train_fields(TrainConfig& t) {
  return {"train",
          {text("output", t.output, "the run folder"), integer("steps", t.steps, 0, kBig, "updates in all"),
           integer("seed", t.seed, 0, std::numeric_limits<std::int64_t>::max(),
                   "of initial values, data and dropout"),
           integer("micro_batches", t.micro_batches, 1, 100000, "runs of the model per update"),
           integer("log_every", t.log_every, 1, kBig, "steps between lines of the log"),
           integer("eval_every", t.eval_every, 0, kBig, "steps between evaluations; 0: at the end only"),
           integer("checkpoint_every", t.checkpoint_every, 0, kBig,
                   "steps between checkpoints; 0: at the end only"),
           integer("keep", t.keep, 0, 1 << 20, "newest checkpoints to keep; 0: all"),
           integer("eval_batches", t.eval_batches, 0, kBig, "batches of the dev data; 0: all"),
           integer("nan_budget", t.nan_budget, 0, 1 << 20, "updates skipped in a row before the run stops"),
           number("deadline_seconds", t.deadline_seconds, {0.1, 1e6}, "for a rank to reach a collective"),
           flag("resume", t.resume, "go on from the newest checkpoint of the run folder")}};
}

ConfigSection mesh_fields(MeshConfig& m) {
  return {"mesh",
          {text("shape", m.shape, "axes and sizes: rows:2;cols:2"),
           text("layout", m.layout, "rules such as batch:rows;d_ff:cols, or dp, mp, dp_mp, fsdp"),
           parsed(
               "memory", "bytes, such as 900MiB",
               "what variables and arenas may take; values are computed again to keep it; 0: no limit",
               [&m](const std::string& text) { m.memory = parse_bytes(text); },
               [&m] { return bytes_text(m.memory); })}};
}

ConfigSection decode_fields(DecodeConfig& d) {
  return {"decode",
          {choice("method", d.method, {"greedy", "sample", "beam"}, "how the next token is chosen"),
           integer("beam", d.beam, 1, 1000, "beam: hypotheses a sentence"),
           number("length_penalty", d.length_penalty, {0, 10}, "beam: exponent of the length penalty"),
           number("temperature", d.temperature, {1e-6, 1e6}, "sample: logits are divided by it"),
           integer("top_k", d.top_k, 0, 1 << 30, "sample: among the k likeliest; 0: all"),
           number("top_p", d.top_p, {1e-6, 1}, "sample: among the likeliest that hold this probability"),
           integer("batch", d.batch, 1, 1 << 20, "sentences at a time"),
           integer("max_length", d.max_length, 1, 1 << 24, "tokens of an output"),
           number("length_factor", d.length_factor, {0, 1000},
                  "an output has at most factor * source + 10 tokens")}};
}

}  // namespace

ConfigSection group_fields(ParameterGroup& g) {
  return {"optimizer.groups",
          {text("pattern", g.pattern, "glob of parameter names"),
           number("weight_decay", g.weight_decay, {0, 1}, "in place of optimizer.weight_decay"),
           number("rate", g.rate, {0, 1e6}, "factor on the learning rate"),
           flag("frozen", g.frozen, "not trained"),
           flag("parameter_scale", g.parameter_scale, "in place of optimizer.adafactor.parameter_scale")}};
}

std::vector<ConfigSection> sections_of(Config& config) {
  return {model_fields(config.model),
          optimizer_fields(config.optimizer),
          adafactor_fields(config.optimizer.config.adafactor),
          data_fields(config.data),
          split_fields("data.train", config.data.train),
          split_fields("data.dev", config.data.dev),
          split_fields("data.test", config.data.test),
          train_fields(config.train),
          mesh_fields(config.mesh),
          decode_fields(config.decode)};
}

}  // namespace tessera
