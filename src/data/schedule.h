// Which items a training step reads: a pure function of (seed, step). Items stand in groups, one for each
// batch shape; a group is an endless stream, shuffled anew in each pass, cut into batches; an epoch is one
// pass over all groups, its batches in shuffled order.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::data {

class Schedule {
 public:
  struct Group {
    std::int64_t items = 0;
    std::int64_t batch = 0;  // items of a batch
  };

  // Groups without items are never scheduled; at least one has some.
  Schedule(std::vector<Group> groups, std::uint64_t seed);

  struct Place {
    std::size_t group = 0;
    std::int64_t epoch = 0;
    std::int64_t first = 0;  // the batch reads places first .. first + batch of its group's stream
  };
  Place place(std::int64_t step) const;

  // The item at a place of a group's stream.
  std::int64_t item(std::size_t group, std::int64_t place) const;

  double steps_per_epoch() const;

 private:
  std::int64_t batches_before(std::size_t group, std::int64_t epoch) const;
  std::int64_t steps_before(std::int64_t epoch) const;

  std::vector<Group> groups_;
  std::uint64_t seed_;
};

}  // namespace tessera::data
