// One rank's end of a ThreadsWorld.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <span>

#include "comm/threads.h"

namespace tessera {

class ThreadsCommunicator final : public Communicator {
 public:
  ThreadsCommunicator(ThreadsWorld& world, int rank);

  int rank() const override { return rank_; }
  int size() const override { return world_.size(); }
  std::unique_ptr<PreparedCollective> prepare(CollectivePlan plan) override;
  Ticket start(const PreparedCollective& collective, const void* in, void* out) override;
  void wait(const Ticket& ticket) override;
  void wait(const Ticket& ticket, const Work& work) override;
  void barrier(const PreparedCollective& group) override;
  void broadcast(void* data, std::size_t bytes, int root) override;
  void check() override;
  void abort(const std::string& reason) override;
  double take_wait_seconds() override;

  void begin_run();

 private:
  using Slot = ThreadsWorld::Slot;

  Slot& mine(const Ticket& ticket) { return world_.slot(rank_, ticket.number); }
  void arrive(const Ticket& ticket);
  void leave(const Ticket& ticket);
  void post(const Ticket& ticket, int phase);
  void meet(const Ticket& ticket, int phase);
  void await(const Ticket& ticket, int member, int phase);
  void check_agreement(const Ticket& ticket, int member);
  void give_up(const Ticket& ticket, std::uint64_t target, int member, bool overdue);
  void take_pieces(const Ticket& ticket);
  void swap_pieces(const Ticket& ticket);
  void reduce_slice(const Ticket& ticket, const Piece& piece);
  void reduce_in_place(const Ticket& ticket);
  std::span<const void* const> inputs_of(const Ticket& ticket, const std::vector<int>& sources,
                                         std::size_t part = 0);
  void* output_of(const Ticket& ticket, int member, std::size_t part);
  void delay();
  void await_arrival(const Ticket& ticket);

  ThreadsWorld& world_;
  int rank_;
  std::uint64_t next_ = 0;
  double wait_seconds_ = 0;
  double link_free_ = 0;  // when the link has carried what was started
  std::vector<const void*> sources_;
  std::minstd_rand random_;
  std::unique_ptr<PreparedCollective> everyone_;
};

}  // namespace tessera
