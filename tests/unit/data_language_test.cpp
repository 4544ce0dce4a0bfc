// Texts packed into rows: every token once, segments that do not touch, little waste.
#include <algorithm>
#include <random>
#include <set>

#include "data/packing.h"
#include "tessera/data.h"
#include "unit/data_test_util.h"

namespace tessera {
namespace {

using testing::sample_sentence;
using testing::small_tokenizer;
using testing::TempFolder;
using testing::write_lines;
using Ids = std::vector<std::int32_t>;

TEST(Language, PackedRowsHoldEveryTokenOnce) {
  const TempFolder folder;
  const DataSource source = write_lines(folder, 120);
  const Tokenizer& t = small_tokenizer();
  for (const bool packed : {true, false}) {
    for (const std::int64_t length : {2, 17, 300}) {
      LanguageOptions options;
      options.length = length;
      options.rows_per_batch = 7;
      options.packed = packed;
      const auto d = open_language_data(source, t, options, folder / "cache");
      EXPECT_EQ(d->stats().empty, 12);
      std::multiset<Ids> whole_segments;
      std::int64_t tokens = 0, words = 0, bytes = 0, expected_tokens = 0;
      for (std::int64_t i = 0; i < d->evaluation_batches(); ++i) {
        const Batch b = d->evaluation_batch(i);
        const auto *target = b.inputs.at("target").as<std::int32_t>(),
                   *segment = b.inputs.at("segment").as<std::int32_t>(),
                   *position = b.inputs.at("position").as<std::int32_t>();
        std::int64_t real = 0;
        for (std::int64_t r = 0; r < 7; ++r) {
          Ids current;
          for (std::int64_t c = 0; c < length; ++c) {
            const std::int64_t at = r * length + c;
            EXPECT_EQ(target[at] == kPadId, segment[at] == 0);
            if (segment[at] == 0) continue;
            ++real;
            const bool starts = c == 0 || segment[at] != segment[at - 1];
            EXPECT_EQ(segment[at], c == 0 ? 1 : segment[at - 1] + starts)
                << "numbered 1, 2, ... without gaps";
            EXPECT_EQ(position[at], starts ? 0 : position[at - 1] + 1);
            if (starts) current.clear();
            current.push_back(target[at]);
            if (target[at] == kEosId && length == 300) whole_segments.insert(current);
          }
          if (!packed) {
            EXPECT_LE(*std::max_element(segment + r * length, segment + (r + 1) * length), 1);
          }
        }
        EXPECT_EQ(real, b.tokens);
        tokens += b.tokens;
        words += b.words;
        bytes += b.bytes;
      }
      std::multiset<Ids> sentences;
      for (int i = 0; i < 120; ++i) {
        Ids ids = t.encode(sample_sentence(i, false));
        ids.push_back(kEosId);
        expected_tokens += static_cast<std::int64_t>(ids.size());
        sentences.insert(ids);
      }
      EXPECT_EQ(tokens, expected_tokens);
      EXPECT_EQ(tokens, d->stats().target_tokens);
      EXPECT_EQ(words, d->stats().words);
      EXPECT_EQ(bytes, d->stats().bytes);
      if (length == 300) {
        EXPECT_EQ(whole_segments, sentences);
      }
    }
  }
}

TEST(Language, PackingWastesLittle) {
  std::vector<std::int64_t> lengths;
  std::mt19937 random(5);
  for (int i = 0; i < 3000; ++i) lengths.push_back(1 + random() % 90);
  const data::PackedRows rows = data::pack(lengths, 128, true);
  std::int64_t total = 0;
  for (const std::int64_t n : lengths) total += n;
  EXPECT_GT(static_cast<double>(total) / static_cast<double>(rows.rows() * 128), 0.97);
  for (std::int64_t r = 0; r < rows.rows(); ++r) {
    std::int64_t used = 0;
    for (const data::Segment& segment : rows.row(r)) used += segment.size;
    EXPECT_LE(used, 128);
  }
}

}  // namespace
}  // namespace tessera
