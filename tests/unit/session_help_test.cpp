// A rank that waits for another does parts of that one's products: counted, with the same bits, and no longer
// once the other fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/cores.h"
#include "exec/session_impl.h"
#include "tessera/error.h"
#include "tessera/ops.h"
#include "unit/cpu_harness.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;

// A product, and a sum of all that both ranks made.
struct Products {
  Graph graph;
  Tensor x, w, product, total;

  explicit Products(DType dtype) {
    const Dim rows{"rows", 1500}, in{"in", 400}, out{"out", 700};
    x = graph.input("x", {rows, in}, dtype);
    w = graph.input("w", {in, out}, dtype);
    product = einsum({x, w}, {rows, out});
    total = reduce_sum(product * product, {});
  }
  FeedMap feeds() const { return {{"x", random_array(x.type(), 1)}, {"w", random_array(w.type(), 2)}}; }
};

struct Helped {
  std::vector<Array> values;
  std::size_t by_first = 0, by_last = 0;  // times that a rank did parts for another
};

// The last rank comes late to its product: when the first one is about to wait, however slow that was.
Helped run(const Products& model, const char* mesh, const std::set<std::string>& without = {}) {
  SessionOptions options;
  options.lower.without = without;
  Session session(model.graph, Mesh::parse(mesh), Layout::parse("rows:a"), options);
  const int program = session.compile({model.product, model.total});
  const int last = session.mesh().ranks() - 1;
  std::atomic<bool> waits{false};
  SessionHooks::set_step_hook(session, [&, last](int rank, int step) {
    const Step& s = session.program(program).steps[static_cast<std::size_t>(step)];
    if (rank == 0 && s.kind == Step::Kind::Wait) {
      waits = true;
      waits.notify_all();
    }
    if (rank == last && s.kind == Step::Kind::Run && s.call.op->name == std::string_view("einsum")) {
      waits.wait(false);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return true;
  });
  const Results results = session.run(program, model.feeds());
  Helped outcome;
  outcome.values = {results.gather(0), results.gather(1)};
  outcome.by_first = SessionHooks::helped(session, 0).size();
  outcome.by_last = SessionHooks::helped(session, last).size();
  return outcome;
}

TEST(SessionHelp, WhoWaitsDoesPartsOfOthersProducts) {
  if (usable_cores() < 2) GTEST_SKIP() << "ranks help each other where each has a core";
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16}) {
    SCOPED_TRACE(to_string(dtype));
    const Products model(dtype);
    const Helped alone = run(model, "a:2", {"help"}), together = run(model, "a:2");
    EXPECT_EQ(alone.by_first + alone.by_last, 0u);
    EXPECT_GT(together.by_first, 0u);
    EXPECT_EQ(together.by_last, 0u);
    for (std::size_t v = 0; v < alone.values.size(); ++v)
      EXPECT_TRUE(same_bits(alone.values[v], together.values[v])) << v;
  }
}

// Where ranks have no core of their own, one that waits makes room for the others.
TEST(SessionHelp, NotWithMoreRanksThanCores) {
  const std::string mesh = "a:" + std::to_string(usable_cores() + 1);
  const Helped outcome = run(Products(DType::F32), mesh.c_str());
  EXPECT_EQ(outcome.by_first + outcome.by_last, 0u);
}

TEST(SessionHelp, EndsWhenTheOtherFails) {
  const Products model(DType::F32);
  for (int round = 0; round < 5; ++round) {
    Session session(model.graph, Mesh::parse("a:2"), Layout::parse("rows:a"));
    const int program = session.compile({model.product, model.total});
    SessionHooks::set_step_hook(session, [&](int rank, int step) {
      const Step& s = session.program(program).steps[static_cast<std::size_t>(step)];
      if (rank == 1 && s.kind == Step::Kind::Start) throw UserError("broken");
      return true;
    });
    try {
      session.run(program, model.feeds());
      FAIL() << "no error";
    } catch (const UserError& e) {
      EXPECT_THAT(e.what(), HasSubstr("rank 1: broken"));
    }
  }
}

}  // namespace
}  // namespace tessera::testing
