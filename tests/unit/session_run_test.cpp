// Training, feeding, fetching and inspecting through a Session: every layout gives what one rank gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "session_models.h"
#include "tessera/error.h"

namespace tessera {
namespace {

using testing::largest_difference;
using testing::Mlp;

struct RunOutcome {
  std::vector<double> losses;
  std::map<std::string, Array> variables;
};

RunOutcome train(const std::string& mesh, const std::string& layout, int steps, bool delays = false) {
  Mlp model;
  SessionOptions options;
  options.seed = 7;
  options.random_delays = delays;
  options.deadline_seconds = 60;
  Session session(model.graph, Mesh::parse(mesh), Layout::parse(layout), options);
  const int step = session.compile(model.step());
  RunOutcome outcome;
  for (int s = 0; s < steps; ++s) {
    RunOptions run;
    run.step = s;
    outcome.losses.push_back(session.run(step, model.feeds(), run).scalar(0));
  }
  for (const std::string& name : session.store().names())
    outcome.variables[name] = session.store().read(name);
  return outcome;
}

TEST(Session, EveryLayoutTrainsLikeOneRank) {
  const RunOutcome one = train("", "", 4);
  ASSERT_EQ(one.variables.size(), 6u);
  EXPECT_NE(one.losses[0], one.losses[3]);
  const std::vector<std::pair<std::string, std::string>> layouts{
      {"a:2", "batch:a"},
      {"a:3", "batch:a"},
      {"a:2", "hidden:a"},
      {"a:4", "hidden:a"},
      {"a:2", "classes:a"},
      {"a:2", "pixels:a"},
      {"a:2", ""},
      {"a:2;b:2", "batch:a;hidden:b"},
      {"a:2;b:2", "batch:a+b"},
      {"a:2;b:3", "batch:b;hidden:a"},
      {"a:4;b:2", "hidden:a;classes:b"},
      {"a:2", "batch:a;params.*:a"},
      {"a:2", "batch:a;slots.hidden:a"},
      {"a:2;b:2", "batch:a;hidden:b;params.pixels:a"},
      {"a:16", "batch:a"},
  };
  for (const auto& [mesh, layout] : layouts) {
    SCOPED_TRACE(mesh + " / " + layout);
    const RunOutcome other = train(mesh, layout, 4);
    for (std::size_t s = 0; s < one.losses.size(); ++s) EXPECT_NEAR(other.losses[s], one.losses[s], 1e-12);
    for (const auto& [name, value] : one.variables)
      EXPECT_LT(largest_difference(other.variables.at(name), value), 1e-12) << name;
  }
}

TEST(Session, RunsRepeatBitForBitWithAnyTiming) {
  const RunOutcome first = train("a:2;b:2", "batch:a;hidden:b", 3),
                   second = train("a:2;b:2", "batch:a;hidden:b", 3, true);
  EXPECT_EQ(first.losses, second.losses);
  for (const auto& [name, value] : first.variables)
    EXPECT_EQ(value.data, second.variables.at(name).data) << name;
}

TEST(Session, InitialValuesAreTheSameBitsOnEveryMesh) {
  std::map<std::string, Array> first;
  for (const char* mesh : {"a:1", "a:2", "a:3", "a:2;b:2"}) {
    Mlp model;
    Session session(model.graph, Mesh::parse(mesh), Layout::parse("hidden:a;params.*:a"));
    session.compile(model.step());
    for (const std::string& name : session.store().names()) {
      const Array value = session.store().read(name);
      auto [it, fresh] = first.emplace(name, value);
      EXPECT_EQ(it->second.data, value.data) << name << " on " << mesh;
    }
  }
  EXPECT_NE(first.at("w1").get(0), 0);
  EXPECT_NE(first.at("w1").get(0), first.at("w1").get(1));
}

TEST(Session, FetchesShardsScalarsAndWholeTensors) {
  Mlp model;
  Session session(model.graph, Mesh::parse("a:3"), Layout::parse("batch:a"));
  const int forward = session.compile({model.logits, model.loss});
  const Results results = session.run(forward, model.feeds());
  EXPECT_GT(results.scalar(1), 0);
  const Array logits = results.gather(0);
  EXPECT_EQ(to_string(logits.type), "f64[batch:10;classes:5]");
  std::int64_t rows = 0, shards = 0;
  results.shards(0, [&](const Box& box, const void* data) {
    ++shards;
    rows += box.size[0];
    double first = 0;
    std::memcpy(&first, data, sizeof first);
    EXPECT_EQ(first, logits.get(box.start[0] * 5));
  });
  EXPECT_EQ(shards, 3);
  EXPECT_EQ(rows, 10);
  EXPECT_THROW(results.scalar(0), UserError);
  EXPECT_THROW(results.scalar(2), UserError);
}

TEST(Session, TheSameTargetsGiveTheSameProgramAndOneArenaServesAll) {
  Mlp model;
  Session session(model.graph, Mesh::parse("a:2"), Layout::parse("batch:a"));
  const int forward = session.compile({model.loss});
  const std::int64_t small = session.arena_bytes_per_rank();
  EXPECT_EQ(session.compile({model.loss}), forward);
  const double before = session.run(forward, model.feeds()).scalar(0);
  const int step = session.compile(model.step());
  EXPECT_NE(step, forward);
  EXPECT_GT(session.arena_bytes_per_rank(), small);
  EXPECT_EQ(session.arena_bytes_per_rank(), session.plan(step).arena_bytes);
  EXPECT_EQ(session.run(forward, model.feeds()).scalar(0), before);  // after the arena moved
  session.run(step, model.feeds());
  EXPECT_LT(session.run(forward, model.feeds()).scalar(0), before);
}

TEST(Session, AnotherGraphSharesTheVariables) {
  Mlp train_model, eval_model(3);
  Session session(train_model.graph, Mesh::parse("a:2"), Layout::parse("batch:a"));
  const int step = session.compile(train_model.step());
  const int eval = session.compile(eval_model.graph, {eval_model.loss});
  const double before = session.run(eval, eval_model.feeds()).scalar(0);
  for (int s = 0; s < 20; ++s) session.run(step, train_model.feeds());
  EXPECT_LT(session.run(eval, eval_model.feeds()).scalar(0), before);
  EXPECT_EQ(session.store().names().size(), 6u);
}

TEST(Session, FeedsArePulledByBox) {
  Mlp model;
  Session session(model.graph, Mesh::parse("a:3;b:2"), Layout::parse("batch:a"));
  const int forward = session.compile({model.x});
  std::map<std::string, int> asked;
  const FillFunction fill = [&](const std::string& name, const Box& box, void* out) {
    ++asked[name + to_string(box)];
    for (std::int64_t i = 0; i < box.elements(); ++i)
      static_cast<double*>(out)[i] = static_cast<double>(box.start[0] * 7 + i);
  };
  const Array x = session.run(forward, fill).gather(0);
  for (std::int64_t i = 0; i < x.elements(); ++i) ASSERT_EQ(x.get(i), static_cast<double>(i));
  EXPECT_EQ(asked.size(), 3u);
  for (const auto& [what, times] : asked) EXPECT_EQ(times, 2) << what;  // once for each replica
}

TEST(Session, InspectGivesWhatTheStepComputes) {
  Mlp model;
  Session session(model.graph, Mesh::parse("a:2"), Layout::parse("hidden:a"));
  session.compile(model.step());
  Mlp same;
  Session one(same.graph, Mesh(), Layout());
  EXPECT_LT(largest_difference(session.inspect(model.hidden, model.feeds()),
                               one.inspect(same.hidden, same.feeds())),
            1e-13);
  EXPECT_LT(largest_difference(session.inspect(model.logits, model.feeds()),
                               one.inspect(same.logits, same.feeds())),
            1e-13);
}

TEST(Session, NamesTheFirstNonfiniteStep) {
  Graph graph;
  const Dim batch{"batch", 4};
  const Tensor x = graph.input("x", {batch});
  const Tensor y = log(x + 1.0);  // NaN for x < -1
  const Tensor w = graph.variable(VariableKind::State, "w", y.type());
  const Tensor update = graph.assign(w, y * 2.0);
  Session session(graph, Mesh::parse("a:2"), Layout::parse("batch:a"));
  const int step = session.compile({update});
  auto fill_with = [](float last) {
    return [last](const std::string&, const Box& box, void* out) {
      for (std::int64_t i = 0; i < box.size[0]; ++i)
        static_cast<float*>(out)[i] = box.start[0] + i == 3 ? last : 1.0f;
    };
  };
  EXPECT_EQ(session.first_nonfinite(step, fill_with(1)), "");
  EXPECT_THAT(session.first_nonfinite(step, fill_with(-3)),
              ::testing::MatchesRegex(".*log.* \\(session_run_test.cpp:[0-9]+\\)"));
  EXPECT_EQ(session.store().read("w").get(0), 0);  // looking does not assign
}

TEST(Session, ReadsSeeTheValueBeforeTheRun) {
  for (const char* mesh : {"", "a:2", "a:3"}) {
    Graph graph;
    const Dim n{"n", 5};
    const Tensor w = graph.variable(VariableKind::State, "w", {{n}, DType::F64}, Initializer::constant(1));
    const Tensor v = graph.variable(VariableKind::State, "v", {{n}, DType::F64}, Initializer::constant(10));
    const Tensor set_w = graph.assign(w, w * 2.0);
    const Tensor set_v = graph.assign(v, v + w);
    const Tensor sum = reduce_sum(w);
    Session session(graph, Mesh::parse(mesh), Layout());
    const int step = session.compile({set_w, set_v, sum});
    EXPECT_EQ(session.run(step).scalar(0), 5);
    EXPECT_EQ(session.run(step).scalar(0), 10);
    EXPECT_EQ(session.store().read("w").get(4), 4);
    EXPECT_EQ(session.store().read("v").get(4), 13);
  }
}

TEST(Session, WindowsMakeMicroBatchesDrawTheBigBatchsNumbers) {
  Graph graph;
  const Dim batch{"batch", 6}, part{"batch", 2};
  const Tensor big = random_uniform(graph, {batch, {"n", 3}});
  Session session(graph, Mesh::parse("a:2"), Layout::parse("batch:a"));
  const int whole = session.compile({big});
  RunOptions run;
  run.step = 5;
  const Array expected = session.run(whole, FeedMap{}, run).gather(0);
  Graph small_graph;
  const Tensor small = random_uniform(small_graph, {part, {"n", 3}});
  const int piece = session.compile(small_graph, {small});
  for (std::int64_t offset : {2, 0, 4}) {
    run.windows["batch"] = {offset, 6};
    const Array got = session.run(piece, FeedMap{}, run).gather(0);
    for (std::int64_t i = 0; i < 6; ++i) EXPECT_EQ(got.get(i), expected.get(offset * 3 + i));
  }
  run.windows["batch"] = {5, 6};
  EXPECT_THROW(session.run(piece, FeedMap{}, run), UserError);
}

TEST(Session, CountsAndTraces) {
  Mlp model;
  Session session(model.graph, Mesh::parse("a:2"), Layout::parse("batch:a"));
  const int step = session.compile(model.step());
  session.start_trace();
  session.run(step, model.feeds());
  session.run(step, model.feeds());
  const RunStats stats = session.stats();
  EXPECT_EQ(stats.runs, 2);
  EXPECT_GT(stats.seconds, 0);
  EXPECT_EQ(stats.collectives, 2 * tessera::stats(session.program(step)).count.at("all_reduce"));
  EXPECT_EQ(stats.collective_bytes, 2 * tessera::stats(session.program(step)).collective_bytes);
  EXPECT_EQ(stats.contraction_flops, 2 * tessera::stats(session.program(step)).contraction_flops);
  session.stop_trace();
  session.run(step, model.feeds());  // is not recorded
  const std::string path = ::testing::TempDir() + "/session_trace.json";
  session.write_trace(path);
  std::ifstream file(path);
  const auto trace = nlohmann::json::parse(file);
  std::map<int, int> events;
  std::map<int, double> last;  // lanes do not overlap: a step begins where the one before ended
  std::map<std::string, int> kinds;
  for (const auto& e : trace.at("traceEvents")) {
    if (e.at("ph") != "X") continue;
    const int rank = e.at("tid").get<int>();
    ++events[rank];
    ++kinds[e.at("cat").get<std::string>()];
    EXPECT_GE(e.at("ts").get<double>(), last[rank] - 0.002);  // microseconds, rounded
    last[rank] = e.at("ts").get<double>() + e.at("dur").get<double>();
    const std::string where = e.at("args").at("where").get<std::string>();
    EXPECT_THAT(e.at("name").get<std::string>(), ::testing::HasSubstr(where));
    EXPECT_EQ(where.find("session_models.h:") == 0, e.at("cat") != "host");
  }
  EXPECT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0], events[1]);
  EXPECT_EQ(kinds["host"], 2 * 2 * 2);  // feeds and fetches of each run and rank
  EXPECT_EQ(kinds["contractions"], 2 * 2 * 5);
  EXPECT_EQ(kinds["loss"], 2 * 2 * 2);
  session.reset_stats();
  EXPECT_EQ(session.stats().runs, 0);
}

TEST(Session, WrongFeedsAreExplained) {
  Mlp model;
  Session session(model.graph, Mesh::parse("a:2"), Layout::parse("batch:a"));
  const int step = session.compile({model.loss});
  auto message = [&](const FeedMap& feeds) -> std::string {
    try {
      session.run(step, feeds);
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  };
  FeedMap feeds = model.feeds();
  feeds.erase("labels");
  EXPECT_EQ(message(feeds), "run: the input 'labels' i32[batch:10] needs a value, but none is fed");
  feeds = model.feeds();
  feeds["image"] = feeds["images"];
  EXPECT_EQ(message(feeds), "run: a value is fed to 'image', which is no input; did you mean 'images'?");
  feeds = model.feeds();
  feeds["labels"] = Array({{{"batch", 9}}, DType::I32});
  EXPECT_EQ(message(feeds), "run: the input 'labels' is i32[batch:10], but i32[batch:9] is fed");
  EXPECT_EQ(message(model.feeds()), "");  // the session still works
}

}  // namespace
}  // namespace tessera
