#include "exec/rank_peers.h"

#include <algorithm>

#include "base/check.h"

namespace tessera {

RankPeers::RankPeers(Communicator& communicator, CollectivePlan plan, Exchange told, std::int64_t times)
    : communicator_(communicator),
      group_(plan.group),
      index_(static_cast<int>(std::lower_bound(group_.begin(), group_.end(), communicator.rank()) -
                              group_.begin())),
      times_(times),
      told_(group_.size() * static_cast<std::size_t>(told.bytes)),
      nothing_(static_cast<std::size_t>(told.bytes)) {
  TESSERA_ASSERT(told.times <= times && told.bytes % 4 == 0, "{} of {} meetings over {} bytes", told.times,
                 times, told.bytes);
  plan.dtype = DType::I32;
  const std::int64_t words = told.bytes / 4;
  for (std::size_t m = 0; m < group_.size() && words > 0; ++m)
    plan.pieces.push_back({{group_[m]}, 0, static_cast<std::int64_t>(m) * words, {words}, {1}, {1}});
  collective_ = communicator.prepare(std::move(plan));
}

const void* RankPeers::all_gather(const void* mine) {
  TESSERA_ASSERT(met_ < times_, "{} more often than {} times", collective_->text(), times_);
  ++met_;
  communicator_.wait(communicator_.start(*collective_, mine, told_.data()));
  return told_.data();
}

void RankPeers::finish() {
  while (met_ < times_) all_gather(nothing_.data());
  met_ = 0;
}

}  // namespace tessera
