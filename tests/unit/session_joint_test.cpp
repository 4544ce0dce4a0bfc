// An output projection whose vocabulary is split: ranks run its loss together, a block of rows at a time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exec/session_impl.h"
#include "session_models.h"
#include "tessera/error.h"
#include "tessera/explain.h"
#include "tessera/nn.h"
#include "unit/cpu_harness.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// One rank has a block of 512 rows or more of them than another where the batch is split unevenly.
struct Classifier {
  Graph graph;
  Tensor x, table;
  nn::Loss loss;
  Tensors targets;

  explicit Classifier(DType dtype, std::int64_t sentences = 3, std::int64_t classes = 37) {
    const Dim batch{"batch", sentences}, length{"length", 300}, width{"width", 6}, vocab{"vocab", classes};
    x = graph.input("x", {batch, length, width}, dtype);
    table = graph.parameter("table", {vocab, width}, Initializer::normal(1), dtype);
    loss = nn::projected_loss(x, table, graph.input("labels", {batch, length}, DType::I32), {0.1, 1e-3}, {},
                              true);
    targets = gradients({loss.sum}, {x, table});
    targets.insert(targets.end(), {loss.sum, loss.weight});
  }
  FeedMap feeds() const {
    Array labels({x.type().shape.without("width"), DType::I32});
    for (std::int64_t i = 0; i < labels.elements(); ++i) labels.set(i, static_cast<double>(i * 7 % 37));
    return {{"x", random_array(x.type(), 5)}, {"labels", labels}};
  }
  std::vector<Array> run(const char* mesh, const char* layout, SessionOptions options = {}) const {
    Session session(graph, Mesh::parse(mesh), Layout::parse(layout), options);
    const int step = session.compile(targets);
    const bool split = std::string_view(layout).find("vocab") != std::string_view::npos;
    const auto count = stats(session.program(step)).count;
    EXPECT_EQ(count.count("joint"), split && options.lower.without.empty() ? 1U : 0U) << layout;
    const Results results = session.run(step, feeds());
    std::vector<Array> values;
    for (std::size_t t = 0; t < targets.size(); ++t) values.push_back(results.gather(t));
    return values;
  }
};

struct Cut {
  const char *mesh, *layout;
};
// Uneven rows and classes, several axes, one that nothing uses, replicas that each meet in a group of their
// own.
constexpr Cut kCuts[] = {{"a:2", "vocab:a"},
                         {"a:3", "vocab:a"},
                         {"a:2;b:2", "batch:a;vocab:b"},
                         {"a:2;b:3", "length:a;vocab:b"},
                         {"a:2;b:2", "vocab:a+b"},
                         {"a:2;idle:2", "vocab:a"}};

TEST(SessionJoint, GivesWhatOneRankGives) {
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16}) {
    const Classifier model(dtype);
    const std::vector<Array> want = model.run("one:1", "");
    const double tolerance = dtype == DType::F64 ? 1e-12 : dtype == DType::F32 ? 1e-4 : 0x1p-5;
    for (const Cut& cut : kCuts) {
      SCOPED_TRACE(fmt::format("{} {} {}", to_string(dtype), cut.mesh, cut.layout));
      const std::vector<Array> got = model.run(cut.mesh, cut.layout), again = model.run(cut.mesh, cut.layout);
      for (std::size_t t = 0; t < want.size(); ++t) {
        EXPECT_EQ(difference(got[t], want[t], tolerance, tolerance), "") << t;
        EXPECT_TRUE(same_bits(got[t], again[t])) << t;
      }
    }
  }
}

// Ranks without rows, or without classes, meet with the others all the same.
TEST(SessionJoint, RanksWithNothingTakePart) {
  for (const DType dtype : {DType::F64, DType::F32}) {
    for (const std::int64_t classes : {3, 37}) {
      const Classifier model(dtype, 1, classes);
      const std::vector<Array> want = model.run("one:1", "");
      for (const Cut& cut : {Cut{"a:2;b:4", "batch:a;vocab:b"}, {"a:2;b:2", "vocab:b;batch:a"}}) {
        const std::vector<Array> got = model.run(cut.mesh, cut.layout);
        for (std::size_t t = 0; t < want.size(); ++t)
          EXPECT_EQ(difference(got[t], want[t], 1e-4, 1e-4), "") << cut.mesh << " " << t;
      }
    }
  }
}

// The best class, for evaluation: of equal ones the first, wherever it lies; what a lazy sum would miss.
TEST(SessionJoint, TheBestClassIsTheFirstLargest) {
  const Dim rows{"rows", 4}, width{"width", 2}, vocab{"vocab", 6};
  for (const DType dtype : {DType::F64, DType::F32}) {
    Graph graph;
    const Tensor x = graph.input("x", {rows, width}, dtype),
                 table = graph.input("table", {vocab, width}, dtype);
    const LinearCrossEntropy out =
        linear_cross_entropy(x, table, graph.input("labels", {rows}, DType::I32), "vocab");
    Array values({{rows, width}, dtype}), classes({{vocab, width}, dtype}), labels({{rows}, DType::I32});
    const double xs[] = {1, 0, 0, 1, -1, -1, NAN, 1};
    const double tables[] = {0, 1, 2, 5, -3, 5, 2, 0, 1, 1, 2, 4};
    for (std::int64_t i = 0; i < 8; ++i) values.set(i, xs[i]);
    for (std::int64_t i = 0; i < 12; ++i) classes.set(i, tables[i]);
    for (const char* mesh : {"a:1", "a:2", "a:3", "a:4", "a:5"}) {
      Session session(graph, Mesh::parse(mesh), Layout::parse("vocab:a"));
      const int id = session.compile({out.best, out.loss});
      const Results results = session.run(id, {{"x", values}, {"table", classes}, {"labels", labels}});
      const Array best = results.gather(0), loss = results.gather(1);
      // Logits: row 0 {0 2 -3 2 1 2}, row 1 {1 5 5 0 1 4}, row 2 {-1 -7 -2 -2 -2 -6}, row 3 NaN.
      EXPECT_EQ(best.get(0), 1) << mesh;
      EXPECT_EQ(best.get(1), 1) << mesh;
      EXPECT_EQ(best.get(2), 0) << mesh;
      EXPECT_EQ(best.get(3), 0) << mesh;
      EXPECT_TRUE(std::isnan(loss.get(3))) << mesh;
      EXPECT_NEAR(loss.get(0), std::log(1 + 3 * std::exp(2.0) + std::exp(-3.0) + std::exp(1.0)), 1e-5)
          << mesh;
    }
  }
}

// Nothing of the size of a rank's part of the logits is in a training step or in an evaluation.
TEST(SessionJoint, LogitsDoNotExistWhole) {
  const Dim batch{"batch", 8}, length{"length", 500}, width{"width", 4}, vocab{"vocab", 1000};
  for (const bool training : {true, false}) {
    Graph g;
    const Tensor x = g.parameter("x", {batch, length, width}, Initializer::normal(1)),
                 table = g.parameter("table", {vocab, width}, Initializer::normal(1));
    const nn::Loss loss =
        nn::projected_loss(x, table, g.input("labels", {batch, length}, DType::I32), {}, {}, training);
    Tensors targets = training ? gradients({loss.sum}, {x, table}) : Tensors{};
    targets.push_back(loss.sum);
    std::int64_t arena[2];
    for (const bool joint : {true, false}) {
      SessionOptions options;
      if (!joint) options.lower.without = {"joint"};
      Session session(g, Mesh::parse("a:2"), Layout::parse("vocab:a"), options);
      arena[joint] = session.plan(session.compile(targets)).arena_bytes;
    }
    const std::int64_t part = batch.size * length.size * vocab.size * 4 / 2;
    EXPECT_LT(arena[1], part / 4);
    EXPECT_GE(arena[0], part) << "without the pass";
  }
}

TEST(SessionJoint, IsExplained) {
  const Classifier model(DType::F32);
  LowerOptions options;
  const Program program =
      lower(model.graph, model.targets, Mesh::parse("a:2;b:2"), Layout::parse("batch:a;vocab:b"), options);
  EXPECT_THAT(to_string(program), HasSubstr("joint over b of vocab 7200 bytes"));  // 600 rows, 12 bytes each
  const ProgramStats counts = stats(program);
  EXPECT_EQ(counts.count.at("joint"), 1);
}

// Faults of a rank before the ranks meet inside a kernel end the run on all.
TEST(SessionJoint, FaultsEndTheRun) {
  const Classifier model(DType::F32);
  for (const bool throws : {true, false}) {
    SessionOptions options;
    options.deadline_seconds = throws ? 20 : 0.4;
    Session session(model.graph, Mesh::parse("a:2;b:2"), Layout::parse("batch:a;vocab:b"), options);
    const int id = session.compile(model.targets);
    const std::vector<Step>& steps = session.program(id).steps;
    const auto at = std::find_if(steps.begin(), steps.end(), [](const Step& s) { return s.is_joint(); });
    ASSERT_NE(at, steps.end());
    const int joint = static_cast<int>(at - steps.begin());
    auto release = std::make_shared<std::atomic<bool>>(false),
         released = std::make_shared<std::atomic<bool>>(false);
    SessionHooks::set_step_hook(session, [=](int rank, int step) -> bool {
      if (rank != 2 || step != joint) return true;
      if (throws) throw UserError("the disk is full");
      while (!release->load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      released->store(true);
      return true;
    });
    try {
      session.run(id, model.feeds());
      ADD_FAILURE() << "nobody noticed";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), StartsWith(throws ? "rank 2: the disk is full" : "rank 2 did not arrive at "));
    }
    release->store(true);
    while (!throws && !released->load()) std::this_thread::yield();
  }
}

}  // namespace
}  // namespace tessera::testing
