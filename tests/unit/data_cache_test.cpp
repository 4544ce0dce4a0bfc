// The token file: made once, wholly checked, made again when damaged; and the real corpus, when there is one.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/crc32c.h"
#include "data/token_cache.h"
#include "data/token_writer.h"
#include "unit/data_test_util.h"

namespace tessera {
namespace {

using data::TokenCache;
using data::TokenHeader;
using testing::expect_error;
using testing::read_file;
using testing::small_tokenizer;
using testing::TempFolder;

DataSource write_tsv(const TempFolder& folder, int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += testing::sample_sentence(i, false) + "\t" + testing::sample_sentence(i, true) + "\n";
  return tsv_files({folder.file("pairs.tsv", text)});
}

std::string cache_path(const DataSource& source, const TempFolder& folder) {
  return folder / ("cache/" + data::token_key(source, small_tokenizer()) + ".tokens");
}

TEST(TokenCache, IsMadeOnceAndHoldsTheTokens) {
  const TempFolder folder;
  const DataSource source = write_tsv(folder, 50);
  const TokenCache first = TokenCache::open(source, small_tokenizer(), folder / "cache");
  const std::string path = cache_path(source, folder);
  const auto time = std::filesystem::last_write_time(path);
  const TokenCache second = TokenCache::open(source, small_tokenizer(), folder / "cache");
  EXPECT_EQ(std::filesystem::last_write_time(path), time);
  ASSERT_EQ(second.examples(), 50);
  for (std::int64_t i = 0; i < 50; ++i) {
    for (const int side : {0, 1}) {
      const auto tokens = second.tokens(i, side);
      EXPECT_EQ(std::vector<std::int32_t>(tokens.begin(), tokens.end()),
                small_tokenizer().encode(testing::sample_sentence(static_cast<int>(i), side == 1)));
    }
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "cache"), {}), 1)
      << "no partial file is left";
}

TEST(TokenCache, KeyChangesWithOneByteAndWithOptions) {
  const TempFolder folder;
  DataSource source = write_tsv(folder, 5);
  const std::string key = data::token_key(source, small_tokenizer());
  std::string text = read_file(source.files[0]);
  text[0] = 'T';
  const DataSource changed = tsv_files({folder.file("other.tsv", text)});
  EXPECT_NE(data::token_key(changed, small_tokenizer()), key);
  source.invalid_utf8 = InvalidUtf8::Skip;
  EXPECT_NE(data::token_key(source, small_tokenizer()), key);
}

constexpr std::size_t kFirstToken = sizeof(TokenHeader);

// Writes `value` at `place` of a good file and makes the checksum right again when asked.
std::string damaged(std::string file, std::size_t place, std::uint32_t value, bool sign) {
  std::memcpy(file.data() + place, &value, sizeof value);
  if (sign) {
    TokenHeader header;
    std::memcpy(&header, file.data(), sizeof header);
    header.checksum =
        data::file_checksum(header, crc32c(file.data() + kFirstToken, file.size() - kFirstToken));
    std::memcpy(file.data(), &header, sizeof header);
  }
  return file;
}

TEST(TokenCache, DamageIsNamed) {
  const TempFolder folder;
  const DataSource source = write_tsv(folder, 20);
  TokenCache::open(source, small_tokenizer(), folder / "cache");
  const std::string good = read_file(cache_path(source, folder)),
                    key = data::token_key(source, small_tokenizer());
  TokenHeader header;
  std::memcpy(&header, good.data(), sizeof header);
  const auto bad = [&](const std::string& why, const std::string& content) {
    const std::string path = folder.file("bad.tokens", content);
    expect_error(folder, "data: the token file '" + path + "' is damaged: " + why + "; delete it",
                 ExitCode::BadData, [&] { TokenCache::map(path, key, 400); });
  };
  const std::string cut = "its size does not fit its header; it was cut";
  bad("it is shorter than its header", "");
  bad("it is shorter than its header", good.substr(0, 127));
  bad(cut, good.substr(0, good.size() - 1));
  bad(cut, good + "x");
  bad(cut, damaged(good, offsetof(TokenHeader, examples) + 4, 0x7fffffff, false));
  bad(cut, damaged(good, offsetof(TokenHeader, tokens), 1, false));
  bad(cut, damaged(good, offsetof(TokenHeader, sides), 3, false));
  bad("it is no token file", damaged(good, 0, 1, false));
  bad("its format is 9, not 1", damaged(good, offsetof(TokenHeader, format), 9, false));
  bad("its vocabulary is 401, not 400", damaged(good, offsetof(TokenHeader, vocabulary), 401, true));
  bad("its checksum is wrong", damaged(good, offsetof(TokenHeader, empty), 1, false));
  bad("it belongs to other data or another tokenizer", damaged(good, offsetof(TokenHeader, key), 1, false));
  bad("its checksum is wrong", damaged(good, kFirstToken, 5, false));
  bad("it holds the token 400, outside of text tokens 2 to 399", damaged(good, kFirstToken, 400, true));
  bad("it holds the token 0, outside of text tokens 2 to 399", damaged(good, kFirstToken, 0, true));
  bad("it holds the token -1, outside of text tokens 2 to 399",
      damaged(good, kFirstToken, 0xffffffffu, true));
  const std::size_t offsets = kFirstToken + data::offsets_place(header);
  bad("its offsets are wrong", damaged(good, offsets + 8, 0x7fffffff, true));
  bad("its offsets are wrong", damaged(good, offsets, 1, true));
}

TEST(TokenCache, FlippedBytesAreNoticedAndTheFileMended) {
  const TempFolder folder;
  const DataSource source = write_tsv(folder, 3);
  TokenCache::open(source, small_tokenizer(), folder / "cache");
  const std::string path = cache_path(source, folder), good = read_file(path),
                    key = data::token_key(source, small_tokenizer());
  for (std::size_t i = 0; i < good.size(); i += 3) {
    std::string bad = good;
    bad[i] ^= 0x40;
    const std::string bad_path = folder.file("bad.tokens", bad);
    EXPECT_THROW(TokenCache::map(bad_path, key, 400), UserError) << i;
  }
  std::ofstream(path, std::ios::binary) << good.substr(0, good.size() / 2);
  EXPECT_EQ(TokenCache::open(source, small_tokenizer(), folder / "cache").examples(), 3);
  EXPECT_EQ(read_file(path), good) << "the damaged file was made again";
}

TEST(TokenCache, ManyMakersAtOnce) {
  const TempFolder folder;
  const DataSource source = write_tsv(folder, 200);
  std::vector<std::jthread> threads;
  std::atomic<int> good = 0;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back(
        [&] { good += TokenCache::open(source, small_tokenizer(), folder / "cache").examples() == 200; });
  }
  threads.clear();
  EXPECT_EQ(good, 6);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "cache"), {}), 1);
}

TEST(TokenCache, AFolderThatCannotBeMadeIsNamed) {
  const TempFolder folder;
  const DataSource source = write_tsv(folder, 3);
  const std::string file = folder.file("file", "");
  try {
    TokenCache::open(source, small_tokenizer(), file + "/cache");
    ADD_FAILURE() << "no error";
  } catch (const SystemError& error) {
    EXPECT_EQ(std::string(error.what()), "cannot make the folder '" + file + "/cache': Not a directory");
  }
}

TEST(Corpus, ReadersOfPackagesOnSmallTexts) {
  EXPECT_EQ(std::system("python3 -B " TESSERA_SOURCE_DIR "/tests/data/corpus_scripts_test.py --quiet"), 0);
}

// No document and no source sentence in two splits, at least 130,000 pairs: scripts/corpus/check_corpus.py
// says.
TEST(Corpus, SplitsAreDisjointAndLargeEnough) {
  const char* chosen = std::getenv("TESSERA_CORPUS");
  const std::string corpus = chosen != nullptr ? chosen : TESSERA_SOURCE_DIR "/corpus";
  if (!std::filesystem::exists(corpus + "/manifest.json")) {
    GTEST_SKIP() << "no corpus in " << corpus
                 << "; make one with scripts/fetch_corpus.sh or set TESSERA_CORPUS";
  }
  const std::string command =
      "python3 " TESSERA_SOURCE_DIR "/scripts/corpus/check_corpus.py '" + corpus + "'";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace tessera
