// Meeting points and the work of a collective between threads.
#include "comm/threads_communicator.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "comm/pieces.h"

namespace tessera {
namespace {

constexpr int kPosted = 1, kReduced = 2, kDone = 3;

}  // namespace

ThreadsCommunicator::ThreadsCommunicator(ThreadsWorld& world, int rank)
    : world_(world), rank_(rank), random_(static_cast<unsigned>(rank) + 1) {
  CollectivePlan plan{.kind = "broadcast", .what = "the controller's data"};
  plan.group.resize(static_cast<std::size_t>(world.size()));
  std::iota(plan.group.begin(), plan.group.end(), 0);
  everyone_ = prepare(std::move(plan));
}

void ThreadsCommunicator::begin_run() {
  next_ = 0;
}

std::unique_ptr<PreparedCollective> ThreadsCommunicator::prepare(CollectivePlan plan) {
  auto prepared = prepare_collective(std::move(plan), rank_, world_.size());
  sources_.reserve(static_cast<std::size_t>(world_.size()));
  return prepared;
}

Ticket ThreadsCommunicator::start(const PreparedCollective& collective, const void* in, void* out) {
  delay();
  Ticket ticket{&collective, next_++, in, out};
  if (const double seconds = world_.options_.link.seconds(collective.plan.bytes); seconds > 0)
    ticket.arrival = link_free_ = std::max(link_free_, now()) + seconds;
  Slot& slot = mine(ticket);
  const std::uint64_t old = slot.phase.load(std::memory_order_relaxed);
  TESSERA_ASSERT(old == 0 || old % 4 == kDone, "more than {} collectives in flight at {}", kMaxInFlight,
                 collective.text());
  slot.collective = &collective;
  slot.in = in;
  slot.out = out;
  post(ticket, kPosted);
  return ticket;
}

// All members have started it.
void ThreadsCommunicator::arrive(const Ticket& ticket) {
  meet(ticket, kPosted);
  await_arrival(ticket);
  for (int member : ticket.collective->plan.group) check_agreement(ticket, member);
}

// All members are done with it.
void ThreadsCommunicator::leave(const Ticket& ticket) {
  delay();
  post(ticket, kDone);
  meet(ticket, kDone);
}

void ThreadsCommunicator::wait(const Ticket& ticket, const Work& work) {
  arrive(ticket);
  work(inputs_of(ticket, ticket.collective->plan.group));
  leave(ticket);
}

void ThreadsCommunicator::wait(const Ticket& ticket) {
  const PreparedCollective& collective = *ticket.collective;
  arrive(ticket);
  if (collective.in_slices) {
    for (const Piece& piece : collective.plan.pieces) reduce_slice(ticket, piece);
  } else if (ticket.in == ticket.out && collective.plan.combine != Combine::None) {
    reduce_in_place(ticket);
  } else if (ticket.in == ticket.out && collective.plan.kind == "all_to_all") {
    swap_pieces(ticket);
  } else {
    take_pieces(ticket);
  }
  leave(ticket);
}

void ThreadsCommunicator::barrier(const PreparedCollective& group) {
  const Ticket ticket = start(group, nullptr, nullptr);
  meet(ticket, kPosted);
  for (int member : group.plan.group) check_agreement(ticket, member);
  post(ticket, kDone);
  meet(ticket, kDone);
}

void ThreadsCommunicator::broadcast(void* data, std::size_t bytes, int root) {
  const Ticket ticket = start(*everyone_, data, data);
  meet(ticket, kPosted);
  for (int member : everyone_->plan.group) check_agreement(ticket, member);
  if (rank_ != root && bytes > 0) std::memcpy(data, world_.slot(root, ticket.number).in, bytes);
  post(ticket, kDone);
  meet(ticket, kDone);
}

void ThreadsCommunicator::check() {
  if (world_.failed()) world_.throw_peer_lost();
}

void ThreadsCommunicator::abort(const std::string& reason) {
  world_.fail(rank_, std::make_exception_ptr(SystemError(reason, ExitCode::PeerLost)));
}

double ThreadsCommunicator::take_wait_seconds() {
  return std::exchange(wait_seconds_, 0.0);
}

void ThreadsCommunicator::post(const Ticket& ticket, int phase) {
  mine(ticket).phase.store(4 * ticket.number + static_cast<std::uint64_t>(phase), std::memory_order_release);
  world_.wake(world_.lines_[static_cast<std::size_t>(rank_)]);
}

void ThreadsCommunicator::meet(const Ticket& ticket, int phase) {
  for (int member : ticket.collective->plan.group) {
    if (member != rank_) await(ticket, member, phase);
  }
}

void ThreadsCommunicator::await(const Ticket& ticket, int member, int phase) {
  const std::uint64_t target = 4 * ticket.number + static_cast<std::uint64_t>(phase);
  const std::atomic<std::uint64_t>& seen = world_.slot(member, ticket.number).phase;
  wait_seconds_ += world_.await(
      rank_, member, [&] { return seen.load(std::memory_order_acquire) >= target; },
      [&](bool overdue) { give_up(ticket, target, member, overdue); });
}

void ThreadsCommunicator::give_up(const Ticket& ticket, std::uint64_t target, int member, bool overdue) {
  if (world_.failed()) world_.throw_peer_lost();
  const PreparedCollective& collective = *ticket.collective;
  if (!overdue) return world_.check_member(rank_, member, false, collective.text());
  world_.fail_no_progress(world_.culprits(rank_, target, collective.plan.group, ticket.number),
                          collective.text());
  world_.throw_peer_lost();
}

void ThreadsCommunicator::check_agreement(const Ticket& ticket, int member) {
  const PreparedCollective& theirs = *world_.slot(member, ticket.number).collective;
  if (theirs.fingerprint == ticket.collective->fingerprint) return;
  world_.record(std::make_exception_ptr(
      SystemError(fmt::format("ranks disagree at collective {}: rank {} is at {}; rank {} is at {}",
                              ticket.number, rank_, ticket.collective->text(), member, theirs.text()),
                  ExitCode::Disagree)));
  world_.throw_peer_lost();
}

std::span<const void* const> ThreadsCommunicator::inputs_of(const Ticket& ticket,
                                                            const std::vector<int>& sources,
                                                            std::size_t part) {
  sources_.clear();
  const bool bucket = !ticket.collective->plan.parts.empty();
  for (int source : sources) {
    const void* in = world_.slot(source, ticket.number).in;
    sources_.push_back(bucket ? static_cast<const void* const*>(in)[part] : in);
  }
  return sources_;
}

void* ThreadsCommunicator::output_of(const Ticket& ticket, int member, std::size_t part) {
  void* out = world_.slot(member, ticket.number).out;
  return ticket.collective->plan.parts.empty() ? out : static_cast<void* const*>(out)[part];
}

void ThreadsCommunicator::take_pieces(const Ticket& ticket) {
  const CollectivePlan& plan = ticket.collective->plan;
  for (const Piece& piece : plan.pieces) {
    const auto from = inputs_of(ticket, piece.sources, piece.part);
    void* const to = output_of(ticket, rank_, piece.part);
    if (from.size() == 1) {
      const std::size_t size = size_of(plan.dtype_of(piece));
      if (!stays(piece, from[0], to, size)) copy_piece(piece, from[0], to, size);
    } else {
      combine_piece(piece, plan.combine, plan.dtype_of(piece), from, to);
    }
  }
}

// What I take of another lies where the other takes its piece of me: each of us swaps a half.
void ThreadsCommunicator::swap_pieces(const Ticket& ticket) {
  const CollectivePlan& plan = ticket.collective->plan;
  for (const Piece& piece : plan.pieces) {
    const int other = piece.sources[0];
    if (other == rank_) continue;
    swap_piece(piece, output_of(ticket, other, piece.part), ticket.out, size_of(plan.dtype),
               rank_ < other ? 0 : 1, 2);
  }
}

// Nobody else reads this slice of the inputs, nor writes it of any result: it goes to all of them.
void ThreadsCommunicator::reduce_slice(const Ticket& ticket, const Piece& piece) {
  constexpr std::int64_t kBlock = 2048;  // elements that stay in the first cache while they are handed out
  const CollectivePlan& plan = ticket.collective->plan;
  const auto parts = static_cast<std::int64_t>(plan.group.size());
  const std::int64_t index =
      std::lower_bound(plan.group.begin(), plan.group.end(), rank_) - plan.group.begin();
  const std::int64_t count = elements(piece);
  const std::int64_t begin = slice_begin(count, parts, index), end = slice_begin(count, parts, index + 1);
  const DType dtype = plan.dtype_of(piece);
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  const auto from = inputs_of(ticket, plan.group, piece.part);
  void* const to = output_of(ticket, rank_, piece.part);
  for (std::int64_t at = begin; at < end; at += kBlock) {
    const std::int64_t block = std::min(kBlock, end - at);
    combine_run(plan.combine, dtype, from, at, to, at, block);
    const char* made = static_cast<const char*>(to) + at * size;
    for (int member : plan.group) {
      if (member == rank_) continue;
      std::memcpy(static_cast<char*>(output_of(ticket, member, piece.part)) + at * size, made,
                  static_cast<std::size_t>(block * size));
    }
  }
}

// Others read my input until they are done: the result waits beside it.
void ThreadsCommunicator::reduce_in_place(const Ticket& ticket) {
  const CollectivePlan& plan = ticket.collective->plan;
  std::size_t bytes = 0;
  alignas(64) std::array<std::byte, 16 * 1024> result;
  if (!plan.pieces.empty()) {
    const Piece& piece = plan.pieces[0];
    bytes = static_cast<std::size_t>(elements(piece)) * size_of(plan.dtype);
    TESSERA_ASSERT(plan.pieces.size() == 1 && piece.from == 0 && piece.to == 0 && bytes <= result.size(),
                   "{} in place", ticket.collective->text());
    combine_piece(piece, plan.combine, plan.dtype, inputs_of(ticket, piece.sources), result.data());
  }
  post(ticket, kReduced);
  meet(ticket, kReduced);
  if (bytes > 0) std::memcpy(ticket.out, result.data(), bytes);
}

void ThreadsCommunicator::await_arrival(const Ticket& ticket) {
  if (ticket.arrival == 0) return;
  const double begin = now();
  if (begin >= ticket.arrival) return;
  std::this_thread::sleep_for(std::chrono::duration<double>(ticket.arrival - begin));
  wait_seconds_ += now() - begin;
}

void ThreadsCommunicator::delay() {
  if (!world_.options_.random_delays) return;
  std::this_thread::sleep_for(std::chrono::microseconds(random_() % 300));
}

}  // namespace tessera
