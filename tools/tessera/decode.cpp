// tessera translate, generate, score: lines in, lines out, in order.
#include "tessera/decode.h"

#include <fmt/format.h>
#include <unistd.h>

#include "command.h"
#include "tessera/error.h"

namespace tessera::command {
namespace {

DecodeConfig decode_config(const Config& config, const Decode& options) {
  DecodeConfig decode = config.decode;
  if (!options.method.empty()) decode.method = options.method;
  if (options.beam > 0) {
    decode.beam = options.beam;
    if (options.method.empty()) decode.method = options.beam > 1 ? "beam" : "greedy";
  }
  if (options.top_k >= 0) decode.top_k = options.top_k;
  if (options.top_p >= 0) decode.top_p = options.top_p;
  if (options.temperature >= 0) decode.temperature = options.temperature;
  if (options.length_penalty >= 0) decode.length_penalty = options.length_penalty;
  if (options.max_length > 0) decode.max_length = options.max_length;
  if (decode.method != "greedy" && decode.method != "sample" && decode.method != "beam") {
    throw UserError(
        fmt::format("there is no decoding method '{}'; use greedy, sample or beam", decode.method));
  }
  return decode;
}

DecodeReport progress() {
  if (isatty(2) == 0) return {};
  return [](const DecodeProgress& p) {
    fmt::print(stderr, "\r{}/{} sentences{}", p.done, p.total, p.done == p.total ? "\n" : "");
  };
}

int print_decoded(const std::vector<Decoded>& decoded, const Decode& options) {
  std::vector<std::string> lines;
  for (const Decoded& d : decoded) {
    // One line out for each line in, whatever the model wrote.
    std::string text = d.text;
    for (char& c : text) c = c == '\n' || c == '\r' ? ' ' : c;
    lines.push_back(options.scores ? fmt::format("{:.6f}\t{}", d.score, text) : text);
  }
  write_lines(options.output, lines);
  return 0;
}

Model open(const Decode& options) {
  return Model::open(options.common.source, {options.common.overrides(), options.checkpoint});
}

}  // namespace

int translate(const Decode& options) {
  Model model = open(options);
  if (model.config().model.kind != ModelKind::EncoderDecoder) {
    throw UserError(fmt::format("'{}' is a language model; use `tessera generate`", options.common.source));
  }
  auto seed = static_cast<std::uint64_t>(model.config().train.seed);
  return print_decoded(tessera::translate(model, read_lines(options.input),
                                          decode_config(model.config(), options), seed, progress()),
                       options);
}

int generate(const Decode& options) {
  Model model = open(options);
  if (model.config().model.kind != ModelKind::LanguageModel) {
    throw UserError(
        fmt::format("'{}' is a translation model; use `tessera translate`", options.common.source));
  }
  auto seed = static_cast<std::uint64_t>(model.config().train.seed);
  return print_decoded(tessera::generate(model, read_lines(options.input),
                                         decode_config(model.config(), options), seed, progress()),
                       options);
}

int score(const Decode& options) {
  Model model = open(options);
  bool translation = model.config().model.kind == ModelKind::EncoderDecoder;
  std::vector<TextExample> examples;
  std::size_t number = 0;
  for (const std::string& line : read_lines(options.input)) {
    ++number;
    std::size_t tab = line.find('\t');
    if (translation && tab == std::string::npos) {
      throw UserError(
          fmt::format("score: line {} has no tab; give source<TAB>target for a translation model", number),
          ExitCode::BadData);
    }
    if (translation)
      examples.push_back({line.substr(0, tab), line.substr(tab + 1)});
    else
      examples.push_back({"", line});
  }
  std::vector<std::string> lines;
  for (const ScoredText& s : tessera::score(model, examples))
    lines.push_back(fmt::format("{:.6f}\t{}", s.log_probability, s.tokens));
  write_lines(options.output, lines);
  return 0;
}

}  // namespace tessera::command
