// Batches: fixed shapes, padding, packing, the exact evaluation pass, and above all that a batch is a pure
// function of data, seed and step and that nothing is read twice.
#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <set>

#include "data/buckets.h"
#include "data/schedule.h"
#include "tessera/data.h"
#include "tessera/metrics.h"
#include "unit/data_test_util.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using testing::sample_sentence;
using testing::small_tokenizer;
using testing::TempFolder;
using testing::write_lines;
using Ids = std::vector<std::int32_t>;

// Sentences of five lengths, 231 of them: no batch size divides it.
constexpr int kExamples = 231;

DataSource write_pairs(const TempFolder& folder, int count = kExamples) {
  std::string en, fr;
  for (int i = 0; i < count; ++i) {
    en += sample_sentence(i, false) + "\n";
    fr += sample_sentence(i, true) + "\n";
  }
  return parallel_files({folder.file("en", en)}, {folder.file("fr", fr)});
}

TranslationOptions small_options() {
  TranslationOptions options;
  options.tokens_per_batch = 512;
  options.buckets = 3;
  options.max_source = options.max_target = 160;
  return options;
}

std::unique_ptr<Dataset> open_pairs(const TempFolder& folder, const TranslationOptions& options) {
  return open_translation_data(write_pairs(folder), small_tokenizer(), options, folder / "cache");
}

Ids row_of(const Array& array, std::int64_t row) {
  const std::int64_t width = array.type.shape[1].size;
  const std::int32_t* begin = array.as<std::int32_t>() + row * width;
  Ids ids(begin, begin + width);
  while (!ids.empty() && ids.back() == kPadId) ids.pop_back();
  return ids;
}

bool equal(const Batch& a, const Batch& b) {
  if (a.examples != b.examples || a.shape != b.shape || a.tokens != b.tokens ||
      a.inputs.size() != b.inputs.size())
    return false;
  return std::all_of(a.inputs.begin(), a.inputs.end(), [&](const auto& input) {
    const Array& other = b.inputs.at(input.first);
    return input.second.type == other.type && input.second.data == other.data;
  });
}

TEST(Translation, RowsAreTheSentences) {
  const TempFolder folder;
  const auto d = open_pairs(folder, small_options());
  const Tokenizer& t = small_tokenizer();
  EXPECT_EQ(d->stats().examples, kExamples);
  for (std::int64_t step = 0; step < 20; ++step) {
    const Batch b = d->batch(step);
    const BatchShape& shape = d->shapes()[b.shape];
    EXPECT_EQ(to_string(b.inputs.at("source").type),
              "i32[batch:" + std::to_string(shape.sentences) +
                  ";source_length:" + std::to_string(shape.source_length) + "]");
    EXPECT_EQ(b.inputs.at("target").type.shape.size("length"), shape.target_length);
    EXPECT_LE(shape.sentences * shape.target_length, 512);
    std::int64_t source_tokens = 0, tokens = 0, words = 0, bytes = 0;
    ASSERT_EQ(static_cast<std::int64_t>(b.examples.size()), shape.sentences);
    for (std::int64_t r = 0; r < shape.sentences; ++r) {
      const int id = static_cast<int>(b.examples[r]);
      Ids source = t.encode(sample_sentence(id, false)), target = t.encode(sample_sentence(id, true));
      source.push_back(kEosId);
      target.push_back(kEosId);
      EXPECT_EQ(row_of(b.inputs.at("source"), r), source);
      EXPECT_EQ(row_of(b.inputs.at("target"), r), target);
      source_tokens += static_cast<std::int64_t>(source.size());
      tokens += static_cast<std::int64_t>(target.size());
      words += count_words(sample_sentence(id, true)) + 1;
      bytes += static_cast<std::int64_t>(sample_sentence(id, true).size()) + 1;
    }
    EXPECT_EQ(b.source_tokens, source_tokens);
    EXPECT_EQ(b.tokens, tokens);
    EXPECT_EQ(b.words, words);
    EXPECT_EQ(b.bytes, bytes);
  }
}

TEST(Translation, ABatchIsAPureFunctionOfSeedAndStep) {
  const TempFolder folder;
  const auto a = open_pairs(folder, small_options());
  const auto b = open_pairs(folder, small_options());
  std::vector<std::int64_t> steps(100);
  for (std::size_t i = 0; i < steps.size(); ++i) steps[i] = static_cast<std::int64_t>(i);
  std::vector<Batch> in_order;
  for (const std::int64_t step : steps) in_order.push_back(a->batch(step));
  std::shuffle(steps.begin(), steps.end(), std::mt19937(3));
  for (const std::int64_t step : steps) EXPECT_TRUE(equal(in_order[step], b->batch(step))) << step;
  EXPECT_EQ(a->fingerprint(), b->fingerprint());

  TranslationOptions other = small_options();
  other.seed = 2;
  const auto c = open_pairs(folder, other);
  EXPECT_NE(a->fingerprint(), c->fingerprint());
  int same = 0;
  for (std::int64_t step = 0; step < 100; ++step) same += equal(in_order[step], c->batch(step));
  EXPECT_LT(same, 5);
}

TEST(Translation, FingerprintCoversDataTokenizerAndOptions) {
  const TempFolder folder;
  const std::string first = open_pairs(folder, small_options())->fingerprint();
  TranslationOptions options = small_options();
  options.tokens_per_batch = 513;
  EXPECT_NE(open_pairs(folder, options)->fingerprint(), first);
  const DataSource longer = write_pairs(folder, kExamples + 1);
  EXPECT_NE(
      open_translation_data(longer, small_tokenizer(), small_options(), folder / "cache")->fingerprint(),
      first);
  EXPECT_EQ(open_pairs(folder, small_options())->fingerprint(), first);
}

// Counts how often each example was read after every epoch of many.
TEST(Translation, NothingIsReadTwiceOrLost) {
  const TempFolder folder;
  for (const std::int64_t sentences : {0, 7, 231, 300}) {
    TranslationOptions options = small_options();
    options.sentences_per_batch = sentences;
    const auto d = open_pairs(folder, options);
    std::vector<int> reads(kExamples, 0);
    std::int64_t step = 0;
    std::vector<std::int64_t> first_epoch, second_epoch;
    for (int epoch = 1; epoch <= 6; ++epoch) {
      for (Batch b; (b = d->batch(step)).epoch < epoch; ++step) {
        for (const std::int64_t id : b.examples) ++reads[id];
        auto& order = b.epoch == 0 ? first_epoch : second_epoch;
        if (b.epoch <= 1) order.insert(order.end(), b.examples.begin(), b.examples.end());
      }
      const auto [least, most] = std::minmax_element(reads.begin(), reads.end());
      EXPECT_LE(*most, epoch) << sentences;
      EXPECT_GE(*least, sentences > kExamples ? epoch - 2 : epoch - 1) << sentences;
    }
    EXPECT_NEAR(static_cast<double>(step) / 6, d->steps_per_epoch(), static_cast<double>(d->shapes().size()));
    EXPECT_NE(first_epoch, second_epoch) << "each epoch has an order of its own";
    EXPECT_FALSE(std::is_sorted(second_epoch.begin(), second_epoch.end()));
  }
}

TEST(Translation, EvaluationReadsEachExampleOnce) {
  const TempFolder folder;
  for (const std::int64_t sentences : {0, 1, 16, 231, 1000}) {
    TranslationOptions options = small_options();
    options.sentences_per_batch = sentences;
    const auto d = open_pairs(folder, options);
    std::set<std::int64_t> seen;
    std::int64_t tokens = 0, words = 0, bytes = 0, rows = 0;
    for (std::int64_t i = 0; i < d->evaluation_batches(); ++i) {
      const Batch b = d->evaluation_batch(i);
      ASSERT_EQ(static_cast<std::int64_t>(b.examples.size()), d->shapes()[b.shape].sentences);
      for (std::size_t r = 0; r < b.examples.size(); ++r) {
        if (b.examples[r] >= 0) {
          EXPECT_TRUE(seen.insert(b.examples[r]).second);
          ++rows;
        } else {
          EXPECT_TRUE(row_of(b.inputs.at("target"), static_cast<std::int64_t>(r)).empty());
          EXPECT_TRUE(row_of(b.inputs.at("source"), static_cast<std::int64_t>(r)).empty());
        }
      }
      tokens += b.tokens;
      words += b.words;
      bytes += b.bytes;
    }
    EXPECT_EQ(rows, kExamples);
    EXPECT_EQ(tokens, d->stats().target_tokens);
    EXPECT_EQ(words, d->stats().words);
    EXPECT_EQ(bytes, d->stats().bytes);
  }
}

TEST(Translation, LengthLimits) {
  const TempFolder folder;
  TranslationOptions options = small_options();
  const Tokenizer& t = small_tokenizer();
  std::vector<std::int64_t> lengths;
  for (int i = 0; i < kExamples; ++i) {
    lengths.push_back(static_cast<std::int64_t>(std::max(t.encode(sample_sentence(i, false)).size(),
                                                         t.encode(sample_sentence(i, true)).size())) +
                      1);
  }
  std::vector<std::int64_t> sorted = lengths;
  std::sort(sorted.begin(), sorted.end());
  const std::int64_t limit = sorted[kExamples / 2];  // some are exactly as long as is allowed
  const auto fitting =
      std::count_if(lengths.begin(), lengths.end(), [&](std::int64_t n) { return n <= limit; });
  options.max_source = options.max_target = limit;
  const auto dropped = open_pairs(folder, options);
  EXPECT_EQ(dropped->stats().examples, fitting);
  EXPECT_EQ(dropped->stats().too_long, kExamples - fitting);
  options.too_long = TooLong::Cut;
  const auto cut = open_pairs(folder, options);
  EXPECT_EQ(cut->stats().examples, kExamples);
  for (std::int64_t i = 0; i < cut->evaluation_batches(); ++i) {
    const Batch b = cut->evaluation_batch(i);
    for (std::size_t r = 0; r < b.examples.size(); ++r) {
      if (b.examples[r] < 0) continue;
      Ids full = t.encode(sample_sentence(static_cast<int>(b.examples[r]), true));
      full.push_back(kEosId);
      full.resize(std::min<std::size_t>(full.size(), static_cast<std::size_t>(limit)));
      EXPECT_EQ(row_of(b.inputs.at("target"), static_cast<std::int64_t>(r)), full)
          << "a sentence that was cut has no end";
    }
  }
}

TEST(Translation, FillGivesEachRankItsPart) {
  const TempFolder folder;
  TranslationOptions options = small_options();
  options.sentences_per_batch = 7;
  const Batch b = open_pairs(folder, options)->batch(5);
  const Array& whole = b.inputs.at("target");
  const std::int64_t rows = whole.type.shape[0].size, width = whole.type.shape[1].size;
  // Uneven parts of both dimensions, an empty one among them, put together again.
  std::vector<std::int32_t> joined(static_cast<std::size_t>(rows * width), -7);
  const std::vector<std::int64_t> row_cuts = {0, 3, 3, rows}, column_cuts = {0, 1, width};
  for (std::size_t i = 0; i + 1 < row_cuts.size(); ++i) {
    for (std::size_t j = 0; j + 1 < column_cuts.size(); ++j) {
      const Box box{{row_cuts[i], column_cuts[j]},
                    {row_cuts[i + 1] - row_cuts[i], column_cuts[j + 1] - column_cuts[j]}};
      Ids part(static_cast<std::size_t>(box.elements()));
      b.fill("target", box, part.data());
      for (std::int64_t k = 0; k < box.elements(); ++k) {
        joined[(box.start[0] + k / box.size[1]) * width + box.start[1] + k % box.size[1]] = part[k];
      }
    }
  }
  EXPECT_TRUE(std::equal(joined.begin(), joined.end(), whole.as<std::int32_t>()));
  const std::string shape = to_string(whole.type.shape);
  const auto bad = [&](const std::string& message, const std::string& name, const Box& box) {
    expect_error(folder, message, ExitCode::Usage, [&] { b.fill(name, box, joined.data()); });
  };
  bad("data: the batch has no input 'labels'; it has: source, target", "labels", {{0, 0}, {1, 1}});
  bad("data: the part [0:1, 1:" + std::to_string(width + 1) + "] reaches outside of the input 'target' (" +
          shape + ")",
      "target", {{0, 1}, {1, width}});
  bad("data: the part [0:1] reaches outside of the input 'target' (" + shape + ")", "target", {{0}, {1}});
}

TEST(Buckets, LeaveLeastPadding) {
  // 100 examples of 8 tokens, 10 of 40, 1 of 100: the best two shapes end at 8 (or 40) and 100.
  std::vector<data::PairLength> lengths(100, {8, 8});
  lengths.insert(lengths.end(), 10, {20, 40});
  lengths.push_back({100, 90});
  TranslationOptions options;
  options.tokens_per_batch = 400;
  options.buckets = 3;
  const auto shapes = data::plan_shapes(lengths, options);
  ASSERT_EQ(shapes.size(), 3u);
  EXPECT_EQ(shapes[0], (BatchShape{50, 8, 8}));
  EXPECT_EQ(shapes[1], (BatchShape{10, 20, 40}));
  EXPECT_EQ(shapes[2], (BatchShape{1, 100, 92}));
  options.buckets = 2;  // 11 * 100 for a shared long shape against 110 * 40 + 100
  EXPECT_EQ(data::plan_shapes(lengths, options)[0].target_length, 8);
  options.buckets = 1;
  EXPECT_EQ(data::plan_shapes(lengths, options).size(), 1u);
  for (const auto& length : lengths) {
    const BatchShape& shape = shapes[data::shape_of(length, shapes)];
    EXPECT_LE(length.source, shape.source_length);
    EXPECT_LE(length.target, shape.target_length);
  }
}

TEST(Schedule, EpochsAreFullBatchesInShuffledOrder) {
  const data::Schedule schedule({{10, 3}, {0, 5}, {4, 4}, {2, 8}}, 11);
  EXPECT_NEAR(schedule.steps_per_epoch(), 10.0 / 3 + 1 + 0.25, 1e-12);
  std::set<std::pair<std::size_t, std::int64_t>> batches;
  std::int64_t last_epoch = 0;
  for (std::int64_t step = 0; step < 5000; ++step) {
    const auto place = schedule.place(step);
    EXPECT_NE(place.group, 1u);
    EXPECT_TRUE(batches.insert({place.group, place.first}).second) << "no batch twice";
    EXPECT_GE(place.epoch, last_epoch);
    last_epoch = place.epoch;
  }
  EXPECT_NO_THROW(schedule.place(std::int64_t{1} << 40));
  const TempFolder folder;
  expect_error(folder, "data: step -1 is not in 0 to 1099511627776", ExitCode::Usage,
               [&] { schedule.place(-1); });
}

TEST(DataErrors, Options) {
  const TempFolder folder;
  const DataSource pairs = write_pairs(folder, 5), text = write_lines(folder, 5);
  const auto bad = [&](const std::string& message, ExitCode code, const DataSource& source,
                       TranslationOptions options) {
    expect_error(folder, message, code,
                 [&] { open_translation_data(source, small_tokenizer(), options, folder / "none"); });
  };
  TranslationOptions options;
  bad("data: translation needs two sides, but '" + text.files[0] +
          "' has only one; use parallel, TSV or JSON files",
      ExitCode::BadData, text, options);
  options.tokens_per_batch = 100;
  bad("data: tokens_per_batch is 100, too few for one sentence of max_target = 128 tokens; enlarge it or "
      "lower max_target",
      ExitCode::Usage, pairs, options);
  options = {};
  options.max_source = 1;
  bad("data: max_source is 1 and max_target 128; a sentence has at least one token and its end, so 2",
      ExitCode::Usage, pairs, options);
  options = {};
  options.buckets = 0;
  bad("data: buckets is 0; it must be from 1 to 64", ExitCode::Usage, pairs, options);
  options.sentences_per_batch = -1;
  bad("data: sentences_per_batch is -1; it must be 0 (length buckets) or more", ExitCode::Usage, pairs,
      options);
  const auto bad_text = [&](const std::string& message, ExitCode code, const DataSource& source,
                            LanguageOptions language) {
    expect_error(folder, message, code,
                 [&] { open_language_data(source, small_tokenizer(), language, folder / "none"); });
  };
  LanguageOptions language;
  bad_text("data: language modelling reads one side, but '" + pairs.files[0] +
               "' has two; use text files, or JSON with an empty target_key",
           ExitCode::BadData, pairs, language);
  language.length = 1;
  bad_text("data: length is 1; a row has at least one token and an end, so 2", ExitCode::Usage, text,
           language);
  language = {};
  language.rows_per_batch = 0;
  bad_text("data: rows_per_batch is 0; a batch has at least 1 row", ExitCode::Usage, text, language);
}

TEST(DataErrors, NothingUsable) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "cache");
  const DataSource blank = parallel_files({folder.file("a", "\nx\n")}, {folder.file("b", "y\n\n")});
  expect_error(folder,
               "data: '" + blank.files[0] +
                   "' has no usable example (2 with an empty side, 0 skipped for ill-formed UTF-8)",
               ExitCode::BadData,
               [&] { open_translation_data(blank, small_tokenizer(), {}, folder / "cache"); });
  const DataSource pairs = write_pairs(folder, 5);
  TranslationOptions options;
  open_translation_data(pairs, small_tokenizer(), options, folder / "cache");
  options.max_source = options.max_target = 3;
  expect_error(
      folder, "data: all 5 examples are longer than max_source = 3 and max_target = 3 tokens; raise them",
      ExitCode::BadData, [&] { open_translation_data(pairs, small_tokenizer(), options, folder / "cache"); });
  options.too_long = TooLong::Error;
  const auto first = small_tokenizer().encode(sample_sentence(0, false)).size() + 1;
  const auto second = small_tokenizer().encode(sample_sentence(0, true)).size() + 1;
  expect_error(folder,
               "data: example 0 has " + std::to_string(first) + " source and " + std::to_string(second) +
                   " target tokens, more than max_source = 3 and max_target = 3; raise them or choose "
                   "too_long = drop or cut",
               ExitCode::BadData,
               [&] { open_translation_data(pairs, small_tokenizer(), options, folder / "cache"); });
  const auto d = open_pairs(folder, small_options());
  expect_error(folder,
               "data: there is no evaluation batch -1; there are " + std::to_string(d->evaluation_batches()),
               ExitCode::Usage, [&] { d->evaluation_batch(-1); });
}

}  // namespace
}  // namespace tessera
