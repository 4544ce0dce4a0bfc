// Reading of text: lines, compression, the four formats, UTF-8 policies, and every message about bad data.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "data/line_reader.h"
#include "data/utf8.h"
#include "tessera/data.h"
#include "unit/data_test_util.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using testing::TempFolder;
using Strings = std::vector<std::string>;

constexpr std::int64_t kNoLimit = 1 << 24;

Strings lines_of(const std::string& path, std::int64_t limit = kNoLimit) {
  data::LineReader reader(path, limit);
  Strings lines;
  for (std::string_view line; reader.next(line);) lines.emplace_back(line);
  return lines;
}

Strings sources_of(const DataSource& source) {
  Strings sources;
  for (const TextExample& example : read_examples(source))
    sources.push_back(example.source + "|" + example.target);
  return sources;
}

TEST(Lines, EndsMarksAndEmptyFiles) {
  const TempFolder folder;
  EXPECT_THAT(lines_of(folder.file("a", "x\ny\r\n\nz")), ElementsAre("x", "y", "", "z"));
  EXPECT_THAT(lines_of(folder.file("b", "\xef\xbb\xbfx\n\xef\xbb\xbfy\n")),
              ElementsAre("x", "\xef\xbb\xbfy"));
  EXPECT_THAT(lines_of(folder.file("c", "")), ElementsAre());
  EXPECT_THAT(lines_of(folder.file("d", "\xef\xbb\xbf")), ElementsAre());
  EXPECT_THAT(lines_of(folder.file("e", "\n")), ElementsAre(""));
  EXPECT_THAT(lines_of(folder.file("f", std::string("a\0b\n", 4))), ElementsAre(std::string("a\0b", 3)));
}

TEST(Lines, OffsetsAndNumbers) {
  const TempFolder folder;
  data::LineReader reader(folder.file("a",
                                      "\xef\xbb\xbf"
                                      "ab\r\ncd\n"),
                          kNoLimit);
  std::string_view line;
  ASSERT_TRUE(reader.next(line));
  EXPECT_EQ(reader.offset(), 3);
  ASSERT_TRUE(reader.next(line));
  EXPECT_EQ(reader.offset(), 7);
  EXPECT_EQ(reader.number(), 2);
}

// Longer than every buffer, lines across all chunk borders, several members, and each format's end.
TEST(Lines, CompressedFilesEqualPlainOnes) {
  const TempFolder folder;
  std::string text;
  Strings expected;
  for (int i = 0; i < 30000; ++i) {
    expected.push_back(std::string(static_cast<std::size_t>(i * 7919 % 40), 'a' + static_cast<char>(i % 26)) +
                       std::to_string(i));
    text += expected.back() + "\n";
  }
  const std::string first = text.substr(0, 300001), second = text.substr(300001);
  using testing::gzip;
  using testing::zstd;
  EXPECT_EQ(lines_of(folder.file("plain", text)), expected);
  EXPECT_EQ(lines_of(folder.file("a.gz", gzip(text))), expected);
  EXPECT_EQ(lines_of(folder.file("two.gz", gzip(first) + gzip(second))), expected);
  EXPECT_EQ(lines_of(folder.file("a.zst", zstd(text))), expected);
  EXPECT_EQ(lines_of(folder.file("two.zst", zstd(first) + zstd(second))), expected);
}

TEST(Lines, CutAndDamagedCompressionIsNamed) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 20000; ++i) text += std::to_string(i * 7919) + "\n";
  const std::string gz = testing::gzip(text), zst = testing::zstd(text);
  const std::string cut_gz = folder.file("cut.gz", gz.substr(0, gz.size() / 2));
  expect_error(folder, "data: '" + cut_gz + "' ends inside a gzip stream; it was cut, make it again",
               ExitCode::BadData, [&] { lines_of(cut_gz); });
  const std::string cut_zst = folder.file("cut.zst", zst.substr(0, zst.size() / 2));
  expect_error(folder, "data: '" + cut_zst + "' ends inside a zstd frame; it was cut, make it again",
               ExitCode::BadData, [&] { lines_of(cut_zst); });
  std::string bad = gz;
  bad[bad.size() - 6] ^= 1;  // its checksum
  const std::string bad_gz = folder.file("bad.gz", bad);
  expect_error(folder, "data: '" + bad_gz + "' is a damaged gzip file (incorrect data check)",
               ExitCode::BadData, [&] { lines_of(bad_gz); });
  std::string bad2 = zst;
  for (int i = 0; i < 8; ++i) bad2[12 + i] = '\xff';
  const std::string bad_zst = folder.file("bad.zst", bad2);
  EXPECT_THROW(lines_of(bad_zst), UserError);
}

TEST(Lines, LimitHoldsExactlyAndInBoundedMemory) {
  const TempFolder folder;
  EXPECT_EQ(lines_of(folder.file("a", std::string(10, 'x') + "\n"), 10).size(), 1u);
  const std::string longer = folder.file("b", "ab\n" + std::string(11, 'x') + "\n");
  expect_error(folder,
               "data: line 2 of '" + longer + "' is longer than 10 bytes; split it or raise the limit",
               ExitCode::BadData, [&] { lines_of(longer, 10); });
  // 4 GiB without a line end: a hole, so it costs no disk, and must be refused after the limit.
  const std::string huge = folder.file("huge", "");
  ASSERT_EQ(truncate(huge.c_str(), std::int64_t{4} << 30), 0);
  EXPECT_THROW(lines_of(huge, 1 << 20), UserError);
}

TEST(Data, Formats) {
  const TempFolder folder;
  const std::string en = folder.file("en", "one\ntwo\n"), fr = folder.file("fr", "un\ndeux");
  EXPECT_THAT(sources_of(parallel_files({en, en}, {fr, fr})),
              ElementsAre("one|un", "two|deux", "one|un", "two|deux"));
  EXPECT_THAT(sources_of(text_files({en})), ElementsAre("one|", "two|"));
  EXPECT_THAT(sources_of(tsv_files({folder.file("t", "a b\tc d\r\n\te\n")})), ElementsAre("a b|c d", "|e"));
  const std::string json =
      folder.file("j", "{\"q\": \"a\\u00e9\", \"a\": \"b\", \"n\": 1}\n{\"a\": \"\", \"q\": \"c\"}\n");
  EXPECT_THAT(sources_of(jsonl_files({json}, "q", "a")), ElementsAre("aé|b", "c|"));
  EXPECT_THAT(sources_of(jsonl_files({json}, "q", "")), ElementsAre("aé|", "c|"));
}

TEST(Data, OriginsChooseByDocument) {
  const TempFolder folder;
  DataSource source = parallel_files({folder.file("en", "a\nb\nc\n")}, {folder.file("fr", "x\ny\nz\n")});
  source.document_files = {folder.file("docs", "man:1/ls\nddtp:ls\nmanual:q\n")};
  source.origins = {"man"};
  EXPECT_THAT(sources_of(source), ElementsAre("a|x"));  // "manual" only begins like it
  source.origins = {"ddtp", "manual"};
  EXPECT_THAT(sources_of(source), ElementsAre("b|y", "c|z"));
  source.origins = {};
  EXPECT_EQ(sources_of(source).size(), 3u);
}

TEST(Data, InvalidUtf8Policies) {
  const TempFolder folder;
  DataSource source = parallel_files({folder.file("en",
                                                  "ok\nb\xff"
                                                  "d\nfine\n")},
                                     {folder.file("fr", "x\ny\n\xe2\x82z\n")});
  source.invalid_utf8 = InvalidUtf8::Replace;
  EXPECT_THAT(sources_of(source), ElementsAre("ok|x",
                                              "b\ufffd"
                                              "d|y",
                                              "fine|\ufffdz"));
  source.invalid_utf8 = InvalidUtf8::Skip;
  EXPECT_THAT(sources_of(source), ElementsAre("ok|x"));
}

// Unicode's table of maximal subparts (chapter 3.9): each ill-formed part becomes one U+FFFD.
TEST(Utf8, MaximalSubparts) {
  const std::vector<std::pair<std::string, std::string>> vectors = {
      {"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82"
       "A",
       "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd"
       "A"},  // overlong
      {"\xed\xa0\x80\xed\xbf\xbf\xed\xaf"
       "A",
       "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd"
       "A"},  // surrogates
      {"\xf4\x91\x92\x93\xff"
       "A\x80\xbf"
       "B",
       "\ufffd\ufffd\ufffd\ufffd\ufffd"
       "A\ufffd\ufffd"
       "B"},  // above U+10FFFF
      {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf"
       "A",
       "\ufffd\ufffd\ufffd\ufffd"
       "A"},  // cut sequences
      {"aé€😀", "aé€😀"}};
  for (const auto& [text, expected] : vectors) {
    EXPECT_EQ(data::replace_invalid_utf8(text), expected);
    EXPECT_EQ(data::first_invalid_utf8(text) == data::kAllValid, text == expected);
  }
  EXPECT_EQ(data::to_lower("ÀÉŒß ΑΒ Я İ \xff"), "àéœß αβ я i\u0307 \xff");
}

TEST(DataErrors, SayWhatWhereAndHow) {
  const TempFolder folder;
  const std::string en = folder.file("en", "a\nb\nc\n"), fr = folder.file("fr", "x\ny\n"),
                    docs = folder.file("docs", "m:1\nm:2\nm:3\n");
  const auto bad = [&](const std::string& message, const DataSource& source) {
    expect_error(folder, message, ExitCode::BadData, [&] { read_examples(source); });
  };
  bad("data: no files; name at least one in the configuration", text_files({}));
  bad("data: there is no file '" + (folder / "nowhere") + "'; check the path in the configuration",
      text_files({folder / "nowhere"}));
  bad("data: '" + folder.path() + "' is not a regular file; name a text file, plain, .gz or .zst",
      text_files({folder.path()}));
  bad("data: 1 source files but 2 target files; parallel files come in pairs",
      parallel_files({en}, {fr, fr}));
  bad("data: '" + en + "' has 3 lines but '" + fr + "' has 2; they must match line by line",
      parallel_files({en}, {fr}));
  bad("data: '" + fr + "' has 2 lines but '" + en + "' has 3; they must match line by line",
      parallel_files({fr}, {en}));
  const std::string tsv = folder.file("tsv", "a\tb\nno tab\n"), tsv3 = folder.file("tsv3", "a\tb\tc\n");
  bad("data: line 2 of '" + tsv + "' has 1 columns; TSV needs two, source <tab> target", tsv_files({tsv}));
  bad("data: line 1 of '" + tsv3 + "' has 3 columns; TSV needs two, source <tab> target", tsv_files({tsv3}));
  const std::string json = folder.file("json", "{\"s\": \"a\", \"t\": 1}\n{\"s\": \n[]\n"),
                    list = folder.file("list", "[]\n");
  bad("data: 't' in line 1 of '" + json + "' is a number, not a string", jsonl_files({json}, "s", "t"));
  bad("data: line 1 of '" + json + "' has no key 'x'; set the keys in the configuration",
      jsonl_files({json}, "x", "t"));
  bad("data: line 2 of '" + json + "' is not JSON (byte 7 of the line); each line must be one object",
      jsonl_files({json}, "s", ""));
  bad("data: line 1 of '" + list + "' is JSON but not an object; each line must be one object",
      jsonl_files({list}, "s", "t"));
  const std::string latin = folder.file("latin", "abc\ncaf\xe9 noir\n");
  bad("data: line 2 of '" + latin +
          "' is not UTF-8 at byte 7 of the file; convert it, or choose invalid_utf8 = replace or skip",
      text_files({latin}));
  const std::string latin_tsv = folder.file("latin_tsv", "ab\tc\xe9\n");
  bad("data: line 1 of '" + latin_tsv +
          "' is not UTF-8 at byte 4 of the file; convert it, or choose invalid_utf8 = replace or skip",
      tsv_files({latin_tsv}));
}

TEST(DataErrors, ContradictionsBetweenOptions) {
  const TempFolder folder;
  const std::string en = folder.file("en", "a\nb\nc\n"), two = folder.file("two", "m:1\nm:2\n"),
                    docs = folder.file("docs", "m:1\nm:2\nm:3\n");
  const auto bad = [&](const std::string& message, const DataSource& source) {
    expect_error(folder, message, ExitCode::BadData, [&] { read_examples(source); });
  };
  DataSource source = text_files({en});
  source.target_files = {en};
  bad("data: target files are given, but only parallel files have them; TSV and JSON lines hold both sides",
      source);
  source = text_files({en});
  source.origins = {"man"};
  bad("data: origins are chosen ('man', ...), but there are no document files to read them from", source);
  source.document_files = {docs, docs};
  bad("data: 1 files but 2 document files; give one per file or none", source);
  source.document_files = {docs};
  bad("data: no line of '" + docs + "' has an origin 'man'; its lines look like 'origin:document'", source);
  source.document_files = {two};
  source.origins = {"m"};
  bad("data: '" + en + "' has 3 lines but '" + two + "' has 2; they must match line by line", source);
  source = text_files({en});
  source.max_line_bytes = 0;
  bad("data: max_line_bytes is 0, but a line has at least 1 byte", source);
  expect_error(folder, "data: unknown invalid_utf8 policy 'ignore'; use one of: error, replace, skip",
               ExitCode::Usage, [] { parse_invalid_utf8("ignore"); });
  expect_error(folder, "data: unknown too_long policy 'keep'; use one of: drop, cut, error", ExitCode::Usage,
               [] { parse_too_long("keep"); });
}

TEST(Baselines, NearestByWordOverlap) {
  const std::vector<TextExample> train = {{"the red house", "la maison rouge"},
                                          {"the blue house stands", "la maison bleue est là"},
                                          {"THE Red House", "second"},
                                          {"a cat", "un chat"}};
  // 2*2/(3+3) and 2*2/(3+4): the first; on a tie the earliest; words count once, in lower case.
  EXPECT_THAT(retrieval_baseline(train, {"the red dog", "a a a dog", "nothing shared", ""}),
              ElementsAre("la maison rouge", "un chat", "", ""));
  EXPECT_THAT(copy_baseline({"x", "y"}), ElementsAre("x", "y"));
}

}  // namespace
}  // namespace tessera
