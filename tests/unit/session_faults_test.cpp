// Failing ranks in a Session: a throw, an early return and an endless loop at each collective of a training
// step on each rank of [2,2] end the run soon and name the rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "exec/session_impl.h"
#include "session_models.h"
#include "tessera/error.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using testing::Mlp;
using ::testing::StartsWith;

struct FaultyRun : testing::RunEnd {
  bool torn = false, usable = true;
};

FaultyRun run_faulty(const Mlp& model, double deadline, const StepHook& hook) {
  SessionOptions options;
  options.deadline_seconds = deadline;
  Session session(model.graph, Mesh::parse("a:2;b:2"), Layout::parse("batch:a;hidden:b"), options);
  const int step = session.compile(model.step());
  SessionHooks::set_step_hook(session, hook);
  FaultyRun outcome{testing::end_of([&] { session.run(step, model.feeds()); })};
  outcome.torn = session.store().torn();
  EXPECT_EQ(session.store().read("w1").elements(), 63);  // variables can still be read
  try {
    session.run(step, model.feeds());
  } catch (const SystemError&) {
    outcome.usable = false;
  }
  return outcome;
}

std::vector<int> steps_of(const Mlp& model, Step::Kind kind) {
  Session session(model.graph, Mesh::parse("a:2;b:2"), Layout::parse("batch:a;hidden:b"));
  const Program& program = session.program(session.compile(model.step()));
  std::vector<int> found;
  for (std::size_t s = 0; s < program.steps.size(); ++s)
    if (program.steps[s].kind == kind) found.push_back(static_cast<int>(s));
  return found;
}

class SessionFaults : public ::testing::Test {
 protected:
  Mlp model_;
  std::vector<int> starts_ = steps_of(model_, Step::Kind::Start);
};

TEST_F(SessionFaults, ThrowAtEachCollectiveOnEachRank) {
  ASSERT_GE(starts_.size(), 3u);
  for (int rank = 0; rank < 4; ++rank) {
    for (int at : starts_) {
      const FaultyRun outcome = run_faulty(model_, 20, [rank, at](int r, int s) -> bool {
        if (r == rank && s == at) throw UserError("the disk is full");
        return true;
      });
      EXPECT_EQ(outcome.message, "rank " + std::to_string(rank) + ": the disk is full");
      EXPECT_EQ(outcome.code, ExitCode::Usage);
      EXPECT_LT(outcome.seconds, 3);
      EXPECT_FALSE(outcome.usable);
    }
  }
}

TEST_F(SessionFaults, EarlyReturnAtEachCollectiveOnEachRank) {
  for (int rank = 0; rank < 4; ++rank) {
    for (int at : starts_) {
      const FaultyRun outcome =
          run_faulty(model_, 20, [rank, at](int r, int s) { return r != rank || s != at; });
      EXPECT_THAT(outcome.message, StartsWith("rank " + std::to_string(rank) + " left the program before "));
      EXPECT_EQ(outcome.code, ExitCode::NoProgress);
      EXPECT_LT(outcome.seconds, 3);
    }
  }
}

// The looping thread is never joined: it must keep alive what it touches. It is let go after the session is
// gone.
TEST_F(SessionFaults, EndlessLoopAtEachCollectiveOnEachRank) {
  for (int rank = 0; rank < 4; ++rank) {
    for (int at : starts_) {
      auto release = std::make_shared<std::atomic<bool>>(false),
           released = std::make_shared<std::atomic<bool>>(false);
      const FaultyRun outcome = run_faulty(model_, 0.4, [rank, at, release, released](int r, int s) {
        if (r != rank || s != at) return true;
        while (!release->load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        released->store(true);
        return true;
      });
      EXPECT_THAT(outcome.message, StartsWith("rank " + std::to_string(rank) + " did not arrive at "));
      EXPECT_THAT(outcome.message, HasSubstr("(session_models.h:"));
      EXPECT_EQ(outcome.code, ExitCode::NoProgress);
      EXPECT_LT(outcome.seconds, 3.4);
      release->store(true);
      while (!released->load()) std::this_thread::yield();
    }
  }
}

TEST_F(SessionFaults, AFaultAfterTheFirstUpdateTearsTheStore) {
  const std::vector<int> assigns = steps_of(model_, Step::Kind::Assign);
  auto throw_at = [&](int at) {
    return run_faulty(model_, 20, [at](int r, int s) -> bool {
      if (r == 1 && s == at) throw UserError("stop");
      return true;
    });
  };
  EXPECT_FALSE(throw_at(0).torn);
  EXPECT_TRUE(throw_at(assigns.back()).torn);
}

TEST_F(SessionFaults, ARankThatHangsAfterTheLastCollectiveIsNamed) {
  const std::vector<int> waits = steps_of(model_, Step::Kind::Wait);
  auto release = std::make_shared<std::atomic<bool>>(false);
  const FaultyRun outcome = run_faulty(model_, 0.4, [release, last = waits.back() + 1](int r, int s) {
    while (r == 2 && s == last && !release->load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return true;
  });
  EXPECT_THAT(outcome.message, StartsWith("rank 2 did not arrive at "));
  EXPECT_EQ(outcome.code, ExitCode::NoProgress);
  EXPECT_LT(outcome.seconds, 3.4);
  release->store(true);
}

}  // namespace
}  // namespace tessera
