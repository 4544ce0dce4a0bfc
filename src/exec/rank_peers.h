// The ranks of a group that run a step together (Role::Joint), as one of them sees them.
#pragma once

#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "comm/communicator.h"
#include "tessera/op.h"

namespace tessera {

// Threads: used from the rank's thread.
class RankPeers final : public Peers {
 public:
  // `told` is what a rank of this group tells, `times` how often any group does: a rank whose part needs
  // fewer meetings comes to the others, too, since collectives are counted over all ranks.
  RankPeers(Communicator& communicator, CollectivePlan plan, Exchange told, std::int64_t times);

  int count() const override { return static_cast<int>(group_.size()); }
  int index() const override { return index_; }
  const void* all_gather(const void* mine) override;

  // After every run of the step.
  void finish();

 private:
  Communicator& communicator_;
  std::vector<int> group_;
  int index_;
  std::int64_t times_, met_ = 0;
  std::unique_ptr<PreparedCollective> collective_;
  AlignedBuffer told_, nothing_;
};

}  // namespace tessera
