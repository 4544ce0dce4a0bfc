// The tokenizer: round trips, fixed ids, determinism, bad models that must not crash, and its messages.
#include <gmock/gmock.h>

#include <limits>

#include "tessera/random.h"
#include "unit/data_test_util.h"

namespace tessera {
namespace {

using testing::expect_error;
using testing::small_tokenizer;
using testing::TempFolder;
using Ids = std::vector<std::int32_t>;

TEST(Tokenizer, FixedIdsAndRoundTrip) {
  const Tokenizer& t = small_tokenizer();
  EXPECT_EQ(t.vocabulary(), 400);
  EXPECT_EQ(t.piece(kPadId), "<pad>");
  EXPECT_EQ(t.piece(kEosId), "</s>");
  EXPECT_EQ(t.piece(kUnknownId), "<unk>");
  for (const std::string text :
       {"the house opens the window 7.", "la fenêtre ferme le réseau", "日本語 😀 never seen", ""}) {
    const Ids ids = t.encode(text);
    EXPECT_EQ(t.decode(ids), text);
    for (const std::int32_t id : ids)
      EXPECT_GT(id, kUnknownId) << "bytes stand for unknown characters: " << text;
  }
  EXPECT_EQ(t.decode(Ids{kPadId, kEosId, kPadId}), "");
  EXPECT_EQ(t.decode(t.encode("a\xff"
                              "b")),
            "a b");
  EXPECT_LT(t.encode("the library shows the keyboard").size(), 24u)
      << "30 characters: pieces are longer than one";
}

TEST(Tokenizer, TrainingIsDeterministicAndKinds) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 300; ++i) text += testing::sample_sentence(i, i % 2 == 1) + "\n";
  const std::string file = folder.file("text.gz", testing::gzip(text));
  TokenizerOptions options;
  options.vocabulary = 350;
  for (const TokenizerKind kind : {TokenizerKind::Unigram, TokenizerKind::Bpe}) {
    options.kind = kind;
    const Tokenizer a = Tokenizer::train({file}, options, folder / "a.model");
    const Tokenizer b = Tokenizer::train({file}, options, folder / "b.model");
    EXPECT_EQ(a.hash(), b.hash());
    EXPECT_EQ(a.model(), testing::read_file(folder / "b.model"));
    EXPECT_EQ(Tokenizer::load(folder / "a.model").hash(), a.hash());
    EXPECT_EQ(a.vocabulary(), 350);
    EXPECT_EQ(a.decode(a.encode("the network reads the file")), "the network reads the file");
  }
  options.byte_fallback = false;
  options.vocabulary = 80;
  const Tokenizer c = Tokenizer::train({file}, options, folder / "c.model");
  EXPECT_THAT(c.encode("the 日"), ::testing::Contains(kUnknownId));
}

TEST(Tokenizer, SamplesEvenlyWithoutKeepingAll) {
  const TempFolder folder;
  TokenizerOptions options;
  options.vocabulary = 310;
  options.max_sentences = 200;
  int i = 0;
  const auto next = [&](std::string& line) {
    line = testing::sample_sentence(i % 400, i % 2 == 0);
    return i++ < 5000;
  };
  EXPECT_EQ(Tokenizer::train(next, options, folder / "m").vocabulary(), 310);
  EXPECT_EQ(i, 5001) << "all lines are read";
}

TEST(TokenizerErrors, SayWhatWhereAndHow) {
  const TempFolder folder;
  const auto bad = [&](const std::string& message, auto call) {
    expect_error(folder, message, ExitCode::BadData, call);
  };
  const auto load = [&](const std::string& path) { return [path] { Tokenizer::load(path); }; };
  const std::string nowhere = folder / "nowhere";
  bad("tokenizer: there is no model '" + nowhere + "'; train one with 'tessera tokenizer'", load(nowhere));
  bad("tokenizer: '" + folder.path() + "' is not a regular file; name a SentencePiece model",
      load(folder.path()));
  const std::string empty = folder.file("empty", "");
  bad("tokenizer: cannot use '" + empty + "': the file is empty", load(empty));
  const std::string text = folder.file("text", "this is no model\n");
  bad("tokenizer: cannot use '" + text + "': it is damaged or not a SentencePiece model", load(text));
  const std::string& model = small_tokenizer().model();
  const std::string cut = folder.file("cut", model.substr(0, model.size() / 2));
  bad("tokenizer: cannot use '" + cut + "': it is damaged or not a SentencePiece model", load(cut));
  bad("tokenizer: cannot decode id 400: the vocabulary is 0 to 399", [] {
    small_tokenizer().decode(Ids{5, 400});
  });
  bad("tokenizer: cannot decode id -1: the vocabulary is 0 to 399",
      [] { small_tokenizer().decode(Ids{-1}); });
  bad("tokenizer: there is no piece 400: the vocabulary is 0 to 399", [] { small_tokenizer().piece(400); });
  bad("data: there is no file '" + nowhere + "'; check the path in the configuration",
      [&] { Tokenizer::train({nowhere}, {}, folder / "m"); });
}

TEST(TokenizerErrors, Training) {
  const TempFolder folder;
  const std::string blank = folder.file("blank", "\n\n"),
                    few = folder.file("few", "the house\nthe garden and the window\n");
  const auto train = [&](const std::string& file, TokenizerOptions options) {
    return [&folder, file, options] { Tokenizer::train({file}, options, folder / "m"); };
  };
  TokenizerOptions options;
  expect_error(folder, "tokenizer: there is no text to train on; every line is empty", ExitCode::BadData,
               train(blank, options));
  options.vocabulary = 270;
  options.kind = TokenizerKind::Bpe;
  options.byte_fallback = false;
  expect_error(folder,
               "tokenizer: a vocabulary of 270 is too large for this text; it supports at most 63 pieces, "
               "give more text or ask "
               "for fewer",
               ExitCode::BadData, train(few, options));
  options.kind = TokenizerKind::Unigram;
  options.vocabulary = 10;
  expect_error(folder,
               "tokenizer: a vocabulary of 10 is smaller than the characters of this text; enlarge it or "
               "lower character_coverage",
               ExitCode::BadData, train(few, options));
  options.vocabulary = 3;
  expect_error(folder, "tokenizer: vocabulary is 3; it must be from 8 to 1048576", ExitCode::Usage,
               train(few, options));
  options.byte_fallback = true;
  options.vocabulary = 259;
  expect_error(folder,
               "tokenizer: vocabulary is 259, but the bytes and special ids of byte_fallback alone are 259; "
               "enlarge it or set "
               "byte_fallback = false",
               ExitCode::Usage, train(few, options));
  options = {};
  options.max_sentences = 0;
  expect_error(folder, "tokenizer: max_sentences is 0; at least 1 is needed", ExitCode::Usage,
               train(few, options));
  options = {};
  options.character_coverage = 1.5;
  expect_error(folder, "tokenizer: character_coverage is 1.5; it must be above 0.5 and at most 1",
               ExitCode::Usage, train(few, options));
  expect_error(folder, "tokenizer: unknown kind 'word'; use one of: unigram, bpe", ExitCode::Usage,
               [] { parse_tokenizer_kind("word"); });
}

// A model by hand, in protobuf wire format.
std::string piece(const std::string& text, float score, int type) {
  std::string message = "\x0a";
  message += static_cast<char>(text.size());
  message += text + "\x15" + std::string(reinterpret_cast<const char*>(&score), 4);
  message += "\x18";
  message += static_cast<char>(type);
  std::string out = "\x0a";
  out += static_cast<char>(message.size());
  return out + message;
}

TEST(TokenizerErrors, ModelsThatTheLibraryWouldTrust) {
  const TempFolder folder;
  const std::string specials = piece("<pad>", 0, 3) + piece("</s>", 0, 3) + piece("<unk>", 0, 2);
  const auto bad = [&](const std::string& why, const std::string& model) {
    const std::string path = folder.file("m", model);
    expect_error(folder, "tokenizer: cannot use '" + path + "': " + why, ExitCode::BadData,
                 [&] { Tokenizer::load(path); });
  };
  const std::string ids =
      "its special ids are not <pad> 0, </s> 1, <unk> 2; train it with pad_id = 0, eos_id = 1, unk_id = 2, "
      "bos_id = -1";
  bad(ids, piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) +
               piece("a", -1, 1));          // SentencePiece's own defaults
  bad(ids, specials + piece("<x>", 0, 2));  // two unknowns
  bad("it has only 2 pieces", piece("<pad>", 0, 3) + piece("</s>", 0, 3));
  bad("piece 3 is empty", specials + piece("", 0, 1));
  bad("piece 4 ('a') occurs twice", specials + piece("a", 0, 1) + piece("a", 0, 1));
  bad("the score of piece 3 is not a finite number",
      specials + piece("a", std::numeric_limits<float>::quiet_NaN(), 1));
  bad("piece 3 is not UTF-8 text", specials + piece("\xff", 0, 1));
  bad("piece 3 has an unknown type", specials + piece("a", 0, 9));
  bad("piece 3 ('<0xZZ>') is no byte", specials + piece("<0xZZ>", 0, 6));
  std::string map("\x08\0\0\0", 4);  // 8 bytes of units that point far outside, then one text
  map += std::string("\0\xfc\xff\x7f\0\xfc\xff\x7f", 8) + std::string("x\0", 2);
  std::string normalizer = "\x12";
  normalizer += static_cast<char>(map.size());
  normalizer += map;
  std::string field = "\x1a";
  field += static_cast<char>(normalizer.size());
  bad("its character map is damaged", specials + piece("a", 0, 1) + field + normalizer);
}

// Any damage gives a UserError or a tokenizer that works: no crash, no error of another kind.
TEST(TokenizerErrors, RandomDamageNeverCrashes) {
  const TempFolder folder;
  const std::string& good = small_tokenizer().model();
  const RandomKey key = random_key(7, "damage", 0);
  int refused = 0;
  constexpr int kTrials = 400;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::string model = good;
    const auto words = philox(key, static_cast<std::uint64_t>(trial));
    for (std::uint32_t k = 0; k <= words[3] % 3; ++k) {
      model[(words[0] + k * 7919u) % model.size()] = static_cast<char>(words[1] >> (8 * k));
    }
    if (words[2] % 4 == 0) model.resize(words[2] % model.size());
    try {
      const Tokenizer t = Tokenizer::load(folder.file("m", model));
      const Ids ids = t.encode("the house opens la fenêtre ½ Å 日本 ﬁ");
      t.decode(ids);
      for (const std::int32_t id : ids) EXPECT_LT(id, t.vocabulary());
    } catch (const UserError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, kTrials / 10);
  EXPECT_LT(refused, kTrials);
}

}  // namespace
}  // namespace tessera
