// Keyed permutations make every place computable on its own. Epoch e of a group of n items in batches of b
// holds the batches floor(e n / b) .. floor((e + 1) n / b): all are full, and none is lost or read twice.
#include "data/schedule.h"

#include <string>

#include "base/check.h"
#include "tessera/random.h"

namespace tessera::data {

Schedule::Schedule(std::vector<Group> groups, std::uint64_t seed) : groups_(std::move(groups)), seed_(seed) {
  std::int64_t items = 0;
  for (const Group& group : groups_) {
    TESSERA_ASSERT(group.batch >= 1 && group.items >= 0, "a group of {} items in batches of {}", group.items,
                   group.batch);
    items += group.items;
  }
  TESSERA_ASSERT(items > 0, "a schedule without items");
}

std::int64_t Schedule::batches_before(std::size_t group, std::int64_t epoch) const {
  return static_cast<std::int64_t>(static_cast<__int128>(epoch) * groups_[group].items /
                                   groups_[group].batch);
}

std::int64_t Schedule::steps_before(std::int64_t epoch) const {
  std::int64_t steps = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) steps += batches_before(g, epoch);
  return steps;
}

double Schedule::steps_per_epoch() const {
  double steps = 0;
  for (const Group& group : groups_)
    steps += static_cast<double>(group.items) / static_cast<double>(group.batch);
  return steps;
}

Schedule::Place Schedule::place(std::int64_t step) const {
  constexpr std::int64_t kMostSteps = std::int64_t{1} << 40;
  TESSERA_CHECK(step >= 0 && step <= kMostSteps, "data: step {} is not in 0 to {}", step, kMostSteps);
  // The last epoch that begins at or before the step.
  std::int64_t low = 0, high = 1;
  while (steps_before(high) <= step) low = high, high *= 2;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (steps_before(middle) <= step ? low : high) = middle;
  }
  const std::int64_t start = steps_before(low);
  const auto size = static_cast<std::uint64_t>(steps_before(low + 1) - start);
  const RandomKey key = random_key(seed_, "data/order", low);
  auto slot =
      static_cast<std::int64_t>(random_permutation_at(key, static_cast<std::uint64_t>(step - start), size));
  for (std::size_t g = 0;; ++g) {
    const std::int64_t before = batches_before(g, low);
    const std::int64_t here = batches_before(g, low + 1) - before;
    if (slot < here) return {g, low, (before + slot) * groups_[g].batch};
    slot -= here;
  }
}

std::int64_t Schedule::item(std::size_t group, std::int64_t place) const {
  const std::int64_t items = groups_[group].items;
  const RandomKey key = random_key(seed_, "data/group_" + std::to_string(group), place / items);
  return static_cast<std::int64_t>(random_permutation_at(key, static_cast<std::uint64_t>(place % items),
                                                         static_cast<std::uint64_t>(items)));
}

}  // namespace tessera::data
