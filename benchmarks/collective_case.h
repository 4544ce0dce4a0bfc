// A collective between ranks that are threads, with buffers of its own, and what memory alone would take for
// it.
#pragma once

#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/aligned_buffer.h"
#include "comm/threads.h"
#include "exec/cpu/fused.h"
#include "tessera/error.h"

namespace tessera::benchmarks {

// Payload: all_reduce sums buffers of `bytes` in place; reduce_scatter takes `bytes` and leaves a part on
// each rank; all_gather makes `bytes` of a part of each rank; all_to_all exchanges the parts of `bytes`; in
// place what a rank keeps stays where it is. Type f32.
class CollectiveCase {
 public:
  CollectiveCase(const std::string& op, std::int64_t bytes, int ranks, bool in_place = false)
      : op_(op),
        in_place_(in_place || op == "all_reduce"),
        elements_(bytes / 4),
        ranks_(ranks),
        world_(ranks, {}),
        group_(std::size_t(ranks)) {
    std::iota(group_.begin(), group_.end(), 0);
    for (int rank = 0; rank < ranks; ++rank) {
      in_.emplace_back(static_cast<std::size_t>(bytes) + 64, AlignedBuffer::Fill::Zero);
      out_.emplace_back(static_cast<std::size_t>(bytes) + 64, AlignedBuffer::Fill::Zero);
    }
  }

  static const std::vector<std::string>& ops() {
    static const std::vector<std::string> all{"all_reduce", "reduce_scatter", "all_gather", "all_to_all"};
    return all;
  }

  // So many one after the other that a measurement takes milliseconds.
  static int repeats(std::int64_t bytes) {
    return static_cast<int>(std::max<std::int64_t>(3, std::min<std::int64_t>(500, (16 << 20) / bytes)));
  }

  // Seconds of one collective, mean of `count` one after the other.
  double seconds(int count) {
    return timed(count, [this](Communicator& c, int rank) {
      const std::shared_ptr<PreparedCollective> prepared = c.prepare(plan(rank));
      return [this, &c, prepared, rank] { c.wait(c.start(*prepared, in(rank), target(rank))); };
    });
  }

  // Traffic over the bandwidth of the same footprint and mix of reads and writes, each rank on memory of its
  // own, and two meetings. Counted over all ranks of n with S bytes the traffic is 2nS for all_reduce (each
  // buffer read and written once), (n+1)S for reduce_scatter, 2(n-1)S for all_gather and all_to_all.
  double floor_seconds(int count) {
    const double traffic = timed(count, [this](Communicator&, int rank) { return stream(rank); });
    const double meeting = timed(count, [this](Communicator& c, int) {
      const std::shared_ptr<PreparedCollective> everyone = c.prepare(empty_plan("barrier"));
      return [&c, everyone] { c.barrier(*everyone); };
    });
    return traffic + 2 * meeting;
  }

 private:
  using Body = std::function<void()>;

  static float* at(std::vector<AlignedBuffer>& buffers, int rank) {
    return reinterpret_cast<float*>(buffers[static_cast<std::size_t>(rank)].data());
  }
  float* in(int rank) { return at(in_, rank) + (in_place_ && op_ == "all_gather" ? begin(rank) : 0); }
  float* out(int rank) { return at(out_, rank); }
  float* target(int rank) { return at(in_place_ ? in_ : out_, rank); }
  std::int64_t begin(int rank) const { return elements_ * rank / ranks_; }
  std::int64_t part(int rank) const { return begin(rank + 1) - begin(rank); }

  CollectivePlan empty_plan(const std::string& kind) const {
    return {.kind = kind, .what = "a benchmark", .bytes = 4 * elements_, .group = group_};
  }

  CollectivePlan plan(int rank) const {
    CollectivePlan plan = empty_plan(op_);
    const auto take = [&](std::vector<int> sources, std::int64_t from, std::int64_t to, std::int64_t count) {
      plan.pieces.push_back({std::move(sources), from, to, {count}, {1}, {1}});
    };
    if (op_ == "all_reduce") take(group_, 0, 0, elements_);
    if (op_ == "reduce_scatter") take(group_, begin(rank), 0, part(rank));
    for (int source = 0; source < ranks_; ++source) {
      if (op_ == "all_gather") take({source}, 0, begin(source), part(source));
      // Parts of equal sizes: what rank s sends to rank r lies at part r there and at part s here.
      if (op_ == "all_to_all") take({source}, begin(rank), begin(source), part(rank));
    }
    if (op_ == "all_reduce" || op_ == "reduce_scatter") plan.combine = Combine::Sum;
    return plan;
  }

  // The loop of one rank that reads and writes as much as its share of the collective.
  Body stream(int rank) {
    float *from = in(rank), *to = out(rank);
    const std::int64_t mine = part(rank);
    if (op_ == "all_reduce") return sum({from}, from, elements_);
    if (op_ == "reduce_scatter") {
      std::vector<float*> slices;
      for (int i = 0; i < ranks_; ++i) slices.push_back(from + i * mine);
      return sum(slices, to, mine);
    }
    const bool gather = op_ == "all_gather";
    return [from, to, mine, gather, others = ranks_ - 1] {
      for (int i = 0; i < others; ++i)
        std::memcpy(to + i * mine, gather ? from : from + i * mine, static_cast<std::size_t>(mine) * 4);
    };
  }

  // to = sum of the inputs and a constant.
  static Body sum(const std::vector<float*>& inputs, float* to, std::int64_t count) {
    FusedSpec spec;
    spec.code.inputs = static_cast<int>(inputs.size());
    spec.code.code.push_back({Scalar::Const, -1, -1, -1, 0, DType::F32});
    for (int i = 0; i < spec.code.inputs; ++i) {
      const int last = spec.code.inputs + static_cast<int>(spec.code.code.size()) - 1;
      spec.code.code.push_back({Scalar::Add, last, i, -1, 0, DType::F32});
    }
    spec.code.results = {spec.code.inputs + static_cast<int>(spec.code.code.size()) - 1};
    spec.extent = {count};
    spec.in_types.assign(inputs.size(), DType::F32);
    spec.in_strides.assign(inputs.size(), {1});
    spec.out_types = {DType::F32};
    spec.out_strides = {{1}};
    const auto loop = std::make_shared<FusedLoop>(spec);
    return [loop, from = std::vector<void*>(inputs.begin(), inputs.end()), to]() mutable {
      void* results[] = {to};
      loop->run(from.data(), results, nullptr);
    };
  }

  // Every rank makes its body, all meet, each runs it `count` times, all meet again. Seconds a repetition.
  double timed(int count, const std::function<Body(Communicator&, int)>& make) {
    using Clock = std::chrono::steady_clock;
    double seconds = 0;
    world_.begin_run();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks_; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          Communicator& c = world_.communicator(rank);
          const std::unique_ptr<PreparedCollective> everyone = c.prepare(empty_plan("barrier"));
          const Body body = make(c, rank);
          body();
          c.barrier(*everyone);
          const auto start = Clock::now();
          for (int i = 0; i < count; ++i) body();
          c.barrier(*everyone);
          if (rank == 0) seconds = std::chrono::duration<double>(Clock::now() - start).count() / count;
        } catch (...) {
          world_.fail(rank, std::current_exception());
        }
        world_.leave(rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (world_.failed()) std::rethrow_exception(world_.cause());
    return seconds;
  }

  std::string op_;
  bool in_place_;
  std::int64_t elements_;
  int ranks_;
  ThreadsWorld world_;
  std::vector<int> group_;
  std::vector<AlignedBuffer> in_, out_;
};

}  // namespace tessera::benchmarks
