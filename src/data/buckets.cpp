// Dynamic programming over the longer side of the examples, in steps of kGrain tokens.
#include "data/buckets.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace tessera::data {
namespace {

constexpr std::int64_t kGrain = 4;  // lengths are multiples of it: they vary less and suit vectors

std::int64_t rounded(std::int64_t length, std::int64_t most) {
  return std::min((length + kGrain - 1) / kGrain * kGrain, most);
}

void check_options(const TranslationOptions& options) {
  TESSERA_CHECK(
      options.max_source >= 2 && options.max_target >= 2,
      "data: max_source is {} and max_target {}; a sentence has at least one token and its end, so 2",
      options.max_source, options.max_target);
  TESSERA_CHECK(options.sentences_per_batch >= 0,
                "data: sentences_per_batch is {}; it must be 0 (length buckets) or more",
                options.sentences_per_batch);
  if (options.sentences_per_batch > 0) return;
  TESSERA_CHECK(options.buckets >= 1 && options.buckets <= 64, "data: buckets is {}; it must be from 1 to 64",
                options.buckets);
  TESSERA_CHECK(options.tokens_per_batch >= options.max_target,
                "data: tokens_per_batch is {}, too few for one sentence of max_target = {} tokens; enlarge "
                "it or lower max_target",
                options.tokens_per_batch, options.max_target);
}

// Ends of the chosen ranges of classes: class c holds `count[c]` examples whose padded length is (c + 1) *
// kGrain.
std::vector<std::size_t> best_ends(const std::vector<std::int64_t>& count, int buckets) {
  const std::size_t classes = count.size();
  std::vector<std::int64_t> before(classes + 1, 0);
  for (std::size_t c = 0; c < classes; ++c) before[c + 1] = before[c] + count[c];
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max() / 2;
  // cost[k][c]: least padded tokens of the first c classes in k ranges; from[k][c]: where the last range
  // begins.
  std::vector<std::vector<std::int64_t>> cost(buckets + 1, std::vector<std::int64_t>(classes + 1, kNever));
  std::vector<std::vector<std::size_t>> from(buckets + 1, std::vector<std::size_t>(classes + 1, 0));
  cost[0][0] = 0;
  for (int k = 1; k <= buckets; ++k) {
    for (std::size_t end = 1; end <= classes; ++end) {
      for (std::size_t start = 0; start < end; ++start) {
        const std::int64_t length = static_cast<std::int64_t>(end) * kGrain;
        const std::int64_t total = cost[k - 1][start] + (before[end] - before[start]) * length;
        if (total < cost[k][end]) cost[k][end] = total, from[k][end] = start;
      }
    }
  }
  int k = 1;
  for (int other = 2; other <= buckets; ++other) {
    if (cost[other][classes] < cost[k][classes]) k = other;
  }
  std::vector<std::size_t> ends;
  for (std::size_t end = classes; k > 0; end = from[k--][end]) ends.insert(ends.begin(), end);
  return ends;
}

}  // namespace

std::vector<BatchShape> plan_shapes(std::span<const PairLength> lengths, const TranslationOptions& options) {
  check_options(options);
  if (lengths.empty()) return {};
  if (options.sentences_per_batch > 0)
    return {{options.sentences_per_batch, options.max_source, options.max_target}};
  const auto class_of = [](const PairLength& l) {
    return static_cast<std::size_t>((std::max(l.source, l.target) - 1) / kGrain);
  };
  std::size_t classes = 0;
  for (const PairLength& length : lengths) classes = std::max(classes, class_of(length) + 1);
  std::vector<std::int64_t> count(classes, 0), source(classes, 0), target(classes, 0);
  for (const PairLength& length : lengths) {
    const std::size_t c = class_of(length);
    ++count[c];
    source[c] = std::max<std::int64_t>(source[c], length.source);
    target[c] = std::max<std::int64_t>(target[c], length.target);
  }
  std::vector<BatchShape> shapes;
  std::size_t start = 0;
  for (const std::size_t end : best_ends(count, options.buckets)) {
    BatchShape shape;
    std::int64_t examples = 0;
    for (std::size_t c = start; c < end; ++c) {
      examples += count[c];
      shape.source_length = std::max(shape.source_length, rounded(source[c], options.max_source));
      shape.target_length = std::max(shape.target_length, rounded(target[c], options.max_target));
    }
    start = end;
    if (examples == 0) continue;
    // A later shape holds all that an earlier one does, so that shape_of finds an example's own class or a
    // smaller one.
    if (!shapes.empty()) {
      shape.source_length = std::max(shape.source_length, shapes.back().source_length);
      shape.target_length = std::max(shape.target_length, shapes.back().target_length);
    }
    shape.sentences =
        std::min(std::max<std::int64_t>(1, options.tokens_per_batch / shape.target_length), examples);
    shapes.push_back(shape);
  }
  return shapes;
}

std::size_t shape_of(const PairLength& length, const std::vector<BatchShape>& shapes) {
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    if (length.source <= shapes[i].source_length && length.target <= shapes[i].target_length) return i;
  }
  throw InternalError(
      fmt::format("no batch shape holds an example of {} and {} tokens", length.source, length.target));
}

}  // namespace tessera::data
