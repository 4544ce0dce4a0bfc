// Every op through a Session, fast kernels and threads included, against the sequential simulation of the
// same program with the records' reference kernels: all element types, uneven sizes, one- and two-dimensional
// meshes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "support/op_param.h"
#include "support/samples.h"
#include "support/simulate.h"
#include "tessera/error.h"
#include "tessera/session.h"

namespace tessera::testing {
namespace {

struct Built {
  Graph graph;
  std::vector<Tensor> outputs;
  std::map<std::string, Array> feeds;
};

void build(const SampleCase& c, const std::vector<Array>& inputs, Built& b) {
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < c.in.size(); ++i) {
    const std::string name = fmt::format("in{}", i);
    tensors.push_back(b.graph.input(name, c.in[i].shape, c.in[i].dtype));
    b.feeds[name] = inputs[i];
  }
  b.outputs = b.graph.add(*c.op, tensors, c.attrs, {}, "op");
}

// No split, then each dimension over one axis, then pairs of neighbours over two, the first pair also over
// eight ranks.
std::vector<std::pair<std::string, std::string>> layouts_of(const Call& call) {
  std::set<std::string> names;
  for (const Type& t : call.in)
    for (const Dim& d : t.shape) names.insert(d.name);
  for (const Type& t : call.out)
    for (const Dim& d : t.shape) names.insert(d.name);
  std::vector<std::pair<std::string, std::string>> layouts{{"", ""}};
  for (const std::string& name : names) layouts.emplace_back("a:3", name + ":a");
  for (auto first = names.begin(); first != names.end() && std::next(first) != names.end(); ++first)
    layouts.emplace_back("a:2;b:2", *first + ":b;" + *std::next(first) + ":a");
  if (names.size() > 1)
    layouts.emplace_back("a:4;b:2", *names.begin() + ":a;" + *std::next(names.begin()) + ":b");
  return layouts;
}

double spacing(DType type) {
  return type == DType::F64 ? 0x1p-52 : type == DType::F32 ? 0x1p-23 : 0x1p-7;
}

std::string compare(const SampleCase& c, const Array& got, const Array& want, bool integers, double terms) {
  const bool exact = c.op->exact && (c.op->random || (integers && c.op->scalar == nullptr));
  if (exact || !is_floating(want.type.dtype))
    return same_bits(got, want) ? "" : "bits differ: " + difference(got, want, 0, 0);
  const double bound = 4 * std::max(c.op->ulps, 4 * std::sqrt(terms)) * spacing(want.type.dtype);
  return difference(got, want, bound, bound * 4);
}

class Executor : public EveryOp {
 protected:
  void run_layout(const SampleCase& c, Built& b, const std::string& mesh, const std::string& layout,
                  bool integers) {
    SCOPED_TRACE(fmt::format("{} mesh {} layout {}", c.text(), mesh, layout));
    SessionOptions options;
    options.seed = 11;
    options.deadline_seconds = 60;
    Session session(b.graph, Mesh::parse(mesh), Layout::parse(layout), options);
    int id = -1;
    try {
      id = session.compile(b.outputs);
    } catch (const UserError& e) {
      ASSERT_NE(std::string(e.what()).find("split over axis"), std::string::npos) << e.what();
      return;
    }
    SimulateOptions oracle{b.feeds, {}, &b.graph, 11, 3};
    const Simulated want = simulate(session.program(id), oracle);
    FeedMap feeds;
    for (const auto& [name, array] : b.feeds) {
      tessera::Array fed(array.type);
      fed.data = array.data;
      feeds[name] = fed;
    }
    RunOptions run;
    run.step = 3;
    const Results results = session.run(id, feeds, run);
    double terms = 1;
    for (const Type& t : c.call().in) terms = std::max(terms, static_cast<double>(t.shape.elements()));
    for (std::size_t o = 0; o < want.fetches.size(); ++o) {
      const tessera::Array got = results.gather(o);
      Array same(got.type);
      same.data = got.data;
      ASSERT_EQ(compare(c, same, want.fetches[o], integers, terms), "") << "output " << o << "\n"
                                                                        << to_string(session.program(id));
    }
  }
};

TEST_P(Executor, GivesWhatTheReferenceGives) {
  for (const SampleCase& sample : cases_of(op())) {
    if (sample.attrs.has("parts") || op().aligned != nullptr)
      GTEST_SKIP() << "covered through the op that expands to it";
    for (Fill fill : {Fill::Integers, Fill::Reals}) {
      Built b;
      build(sample, inputs_of(sample, fill), b);
      for (const auto& [mesh, layout] : layouts_of(sample.call())) {
        if (fill == Fill::Integers && mesh != "a:3")
          continue;  // whole numbers for exactness where sums are split
        run_layout(sample, b, mesh, layout, fill == Fill::Integers);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TESSERA_FOR_EVERY_OP(Executor);

}  // namespace
}  // namespace tessera::testing
