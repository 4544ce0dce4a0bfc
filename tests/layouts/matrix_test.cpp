// The op matrix (DESIGN 5): every op under every assignment of its dimensions to mesh axes, with sizes that
// do not divide, equals one rank; replicas are bit-equal; an idle axis changes nothing; roles that refuse a
// split they could do are missed.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "support/op_param.h"
#include "support/passes.h"
#include "support/samples.h"
#include "support/simulate.h"
#include "tessera/error.h"

namespace tessera::testing {
namespace {

bool full_product() {
  return std::getenv("TESSERA_FULL_MATRIX") != nullptr;
}

// Counts over the whole matrix, printed once at the end.
struct Tally {
  std::int64_t cases = 0, refused = 0, collectives = 0;
  std::set<std::string> inexact, missed;
  ~Tally() {
    fmt::print(
        "op matrix: {} cases, {} assignments refused because two dimensions share an axis, {} collectives\n",
        cases, refused, collectives);
    fmt::print("op matrix: {} ops whose layouts may differ in the last places: {}\n", inexact.size(),
               fmt::join(inexact, " "));
    fmt::print("op matrix: {} missed splits{}{}\n", missed.size(), missed.empty() ? "" : ": ",
               fmt::join(missed, " "));
  }
};
Tally& tally() {
  static Tally t;
  return t;
}

// All dimension names of a call's inputs and outputs.
std::vector<std::string> dims_of(const Call& call) {
  std::set<std::string> names;
  for (const Type& t : call.in) {
    for (const Dim& d : t.shape) names.insert(d.name);
  }
  for (const Type& t : call.out) {
    for (const Dim& d : t.shape) names.insert(d.name);
  }
  return {names.begin(), names.end()};
}

// Every assignment dimension -> axis (or none), and for two axes also a dimension over both.
std::vector<std::string> layouts_for(const std::vector<std::string>& dims, const Mesh& mesh) {
  std::vector<std::string> choices{""};
  for (const Dim& axis : mesh.axes()) choices.push_back(axis.name);
  if (mesh.axis_count() == 2) choices.push_back(fmt::format("{}+{}", mesh.axis_name(0), mesh.axis_name(1)));
  if (mesh.axis_count() == 2 && full_product())
    choices.push_back(fmt::format("{}+{}", mesh.axis_name(1), mesh.axis_name(0)));
  std::vector<std::string> layouts{""};
  for (const std::string& dim : dims) {
    std::vector<std::string> longer;
    for (const std::string& layout : layouts) {
      for (const std::string& choice : choices)
        longer.push_back(choice.empty() ? layout : fmt::format("{}{}:{};", layout, dim, choice));
    }
    layouts = std::move(longer);
  }
  return layouts;
}

struct Built {
  Graph graph;
  std::vector<Tensor> outputs;
  std::map<std::string, Array> feeds;
};

void build(const SampleCase& c, const std::vector<Array>& inputs, Built& b) {
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < c.in.size(); ++i) {
    std::string name = fmt::format("in{}", i);
    tensors.push_back(b.graph.input(name, c.in[i].shape, c.in[i].dtype));
    b.feeds[name] = inputs[i];
  }
  b.outputs = b.graph.add(*c.op, tensors, c.attrs, {}, "op");
}

// Promise 1: integers bit for bit when exact; reals within ulps of values of order one, K terms summed.
std::string compare(const Op& op, const Array& got, const Array& want, bool integers, double terms) {
  if (op.exact && integers) return same_bits(got, want) ? "" : "bits differ: " + difference(got, want, 0, 0);
  if (!is_floating(want.type.dtype))
    return same_bits(got, want) ? "" : "integers differ: " + difference(got, want, 0, 0);
  double eps = want.type.dtype == DType::F64 ? 0x1p-52 : want.type.dtype == DType::F32 ? 0x1p-23 : 0x1p-7;
  double bound = std::max(op.ulps, 4 * std::sqrt(terms)) * eps;
  return difference(got, want, bound, bound * 4);
}

class Matrix : public EveryOp {
 protected:
  void run_case(const SampleCase& c, const Mesh& mesh, Fill fill, int& budget) {
    Call call = c.call();
    std::vector<Array> inputs = inputs_of(c, fill);
    Built b;
    build(c, inputs, b);
    SimulateOptions options;
    options.feeds = b.feeds;
    options.graph = &b.graph;
    LowerOptions on;
    std::vector<Array> want = simulate(lower(b.graph, b.outputs, Mesh(), Layout(), on), options).fetches;
    double terms = 1;
    for (const Type& t : call.in) terms = std::max(terms, static_cast<double>(t.shape.elements()));
    std::vector<std::string> layouts = layouts_for(dims_of(call), mesh);
    // A pairwise-like cover in CI: when there are very many assignments, a fixed stride through them.
    std::size_t stride = full_product() ? 1 : 1 + layouts.size() / 60;
    for (std::size_t l = 0; l < layouts.size(); l += stride) {
      if (--budget < 0 && !full_product()) return;
      check_layout_case(c, b, mesh, layouts[l], options, want, fill == Fill::Integers, terms);
      if (HasFatalFailure()) return;
    }
  }

  void check_layout_case(const SampleCase& c, Built& b, const Mesh& mesh, const std::string& layout,
                         const SimulateOptions& options, const std::vector<Array>& want, bool integers,
                         double terms) {
    SCOPED_TRACE(fmt::format("{} mesh {} layout {}", c.text(), to_string(mesh), layout));
    Program program;
    try {
      LowerOptions chosen = lower_options();
      program = lower(b.graph, b.outputs, mesh, Layout::parse(layout), chosen);
    } catch (const UserError& e) {
      ASSERT_NE(std::string(e.what()).find("split over axis"), std::string::npos) << e.what();
      ++tally().refused;
      return;
    }
    ++tally().cases;
    for (const auto& [kind, n] : stats(program).count) tally().collectives += n;
    Simulated got = simulate(program, options);
    EXPECT_EQ(got.replica_mismatch, "");
    for (std::size_t o = 0; o < want.size(); ++o) {
      std::string fault = compare(*c.op, got.fetches[o], want[o], integers, terms);
      ASSERT_EQ(fault, "") << "output " << o << "\n" << to_string(program);
    }
  }
};

// Sizes of a sample's longest-role dimension: as written, 1, smaller than the axis, prime.
std::vector<SampleCase> size_variants(const SampleCase& c) {
  std::vector<SampleCase> variants{c};
  for (const Dim& d : input_dims(c.call())) {
    for (std::int64_t size : {1, 2, 3, 8}) {
      if (size == d.size) continue;
      if (auto other = resized(c, d.name, d.size, size)) variants.push_back(*other);
    }
  }
  return variants;
}

TEST_P(Matrix, EveryLayoutGivesTheSame) {
  // States per part of a split dimension (attribute "parts") make sense only inside an expansion that knows
  // the mesh; cumsum and top_k bring them here.
  for (const SampleCase& c : cases_of(op(), DType::F32)) {
    if (c.attrs.has("parts") || op().aligned != nullptr)
      GTEST_SKIP() << "covered through the op that expands to it";
  }
  if (!op().exact) tally().inexact.insert(op().name);
  for (const char* text : {"a:2", "a:3", "a:2;b:2", "a:4;b:2", "a:1;b:4"}) {
    Mesh mesh = Mesh::parse(text);
    for (DType type : {DType::F32}) {
      int budget = 400;
      for (const SampleCase& sample : cases_of(op(), type)) {
        for (const SampleCase& c : size_variants(sample)) {
          for (Fill fill : {Fill::Integers, Fill::Reals}) {
            run_case(c, mesh, fill, budget);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TESSERA_FOR_EVERY_OP(Matrix);

}  // namespace
}  // namespace tessera::testing
