// tessera tokenizer train | encode | decode | info.
#include "tessera/tokenizer.h"

#include <fmt/format.h>

#include <charconv>

#include "command.h"
#include "tessera/error.h"

namespace tessera::command {
namespace {

std::vector<std::int32_t> parse_ids(const std::string& line, std::size_t number) {
  std::vector<std::int32_t> ids;
  for (const char *at = line.data(), *end = at + line.size(); at != end;) {
    if (*at == ' ') {
      ++at;
      continue;
    }
    std::int32_t id = 0;
    auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc())
      throw UserError(fmt::format("tokenizer decode: line {} holds '{}', which is no token id", number, at),
                      ExitCode::BadData);
    ids.push_back(id);
    at = next;
  }
  return ids;
}

}  // namespace

int tokenizer(const TokenizerCommand& options) {
  if (options.action == "train") {
    TokenizerOptions train_options;
    train_options.kind = parse_tokenizer_kind(options.kind);
    train_options.vocabulary = options.vocabulary;
    Tokenizer t = Tokenizer::train(options.files, train_options, options.model);
    fmt::print("{}: {} pieces, SHA-256 {}\n", options.model, t.vocabulary(), t.hash());
    return 0;
  }
  Tokenizer t = Tokenizer::load(options.model);
  if (options.action == "info") {
    fmt::print("{}: {} pieces, SHA-256 {}\n", options.model, t.vocabulary(), t.hash());
    return 0;
  }
  std::vector<std::string> out;
  std::size_t number = 0;
  for (const std::string& line : read_lines(options.files.empty() ? "" : options.files[0])) {
    ++number;
    out.push_back(options.action == "encode" ? fmt::format("{}", fmt::join(t.encode(line), " "))
                                             : t.decode(parse_ids(line, number)));
  }
  write_lines("", out);
  return 0;
}

}  // namespace tessera::command
