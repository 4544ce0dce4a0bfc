// The output projection with its loss in blocks of rows: against the reference, in memory, in what it
// computes.
#include <gtest/gtest.h>

#include "lang/reference.h"
#include "support/peers.h"
#include "tessera/grad.h"
#include "tessera/nn.h"
#include "tessera/session.h"
#include "unit/cpu_harness.h"

namespace tessera::testing {
namespace {

struct LossCase {
  std::int64_t rows, classes, width;
};

// Fewer rows than a block, exactly one, one more (two unequal blocks), several.
constexpr LossCase kCases[] = {{1, 7, 24},    {5, 1, 3},    {3, 130, 1},
                               {512, 33, 16}, {513, 20, 9}, {1100, 45, 17}};

std::vector<Array> inputs_of(const LossCase& c, DType dtype) {
  const Shape rows{{"rows", c.rows}};
  const Dim width{"width", c.width}, vocab{"vocab", c.classes};
  return {random_array({rows.with(width), dtype}, 1), random_array({{vocab, width}, dtype}, 2),
          random_array({rows, DType::I32}, 3, -1.5, static_cast<double>(c.classes) + 1),
          random_array({rows, DType::F32}, 4, 0, 2)};
}

TEST(CpuLoss, MatchesTheReferenceInBlocksOfAnySize) {
  for (const LossCase& c : kCases) {
    for (const DType dtype : {DType::F32, DType::BF16}) {
      for (const auto& [smoothing, z_loss] : {std::pair{0.0, 0.0}, {0.1, 0.01}}) {
        const Attrs attrs = {
            {"dim", std::string("vocab")}, {"label_smoothing", smoothing}, {"z_loss", z_loss}};
        std::vector<Array> in = inputs_of(c, dtype);
        // The table's gradient sums a rounded term for every row.
        const double absolute =
            dtype == DType::F32 ? 1e-4 : 0x1p-7 * std::max(4.0, std::sqrt(static_cast<double>(c.rows)));
        expect_matches("linear_cross_entropy_sum", in, attrs, dtype == DType::F32 ? 1e-5 : 0x1p-7, absolute);
        in.pop_back();
        expect_matches("linear_cross_entropy", in, attrs, 1e-5, 1e-4);
      }
    }
  }
}

// A shard of the classes, by the fast kernel where it takes it, else by the reference.
std::vector<Array> run_shard(const Call& call, std::vector<Array> in, std::int64_t begin, std::int64_t end,
                             Peers* peers) {
  Box box{{begin, 0}, {end - begin, in[1].type.shape[1].size}};
  const Array table = part_of(in[1], box);
  std::vector<Array> out;
  for (const Type& type : call.out) out.emplace_back(type);
  if (out.size() == 4) out[3] = Array(table.type);
  std::vector<View> in_views, out_views;
  for (const Array& x : in) in_views.push_back(view_of(x));
  for (const Array& x : out) out_views.push_back(view_of(x));
  in_views[1] = make_view(const_cast<std::byte*>(table.data.data()), call.in[1], box);
  if (out.size() == 4) out_views[3] = make_view(out[3].data.data(), call.out[3], box);
  const KernelSite site{call, in_views, out_views, 1};
  KernelContext context{call, in_views, out_views, 0, 0, nullptr, peers};
  const CpuKernel* kernel = kernel_for(site);
  EXPECT_EQ(kernel == nullptr, begin == end);
  if (kernel == nullptr) {
    run_reference(*call.op, context);
    return out;
  }
  std::vector<Type> in_types, out_types;
  for (const View& v : in_views) in_types.push_back({v.shape, v.dtype});
  for (const View& v : out_views) out_types.push_back({v.shape, v.dtype});
  AlignedBuffer scratch(static_cast<std::size_t>(kernel->workspace(call, in_types, out_types, 1)));
  kernel->prepare(site)(context, scratch.data());
  return out;
}

// Shards of the classes that meet once a block, unequal ones and one without any, add up to the whole.
TEST(CpuLoss, ShardsOfTheClassesAddUp) {
  for (const LossCase& c : kCases) {
    for (const DType dtype : {DType::F32, DType::BF16}) {
      for (const bool training : {true, false}) {
        const Attrs attrs = {{"dim", std::string("vocab")}, {"label_smoothing", 0.1}, {"z_loss", 0.01}};
        std::vector<Array> in = inputs_of(c, dtype);
        if (!training) in.pop_back();
        const Call call =
            make_call(training ? "linear_cross_entropy_sum" : "linear_cross_entropy", in, attrs);
        SCOPED_TRACE(fmt::format("{} {}", to_string(call.in[0]), to_string(call.in[1])));
        const std::vector<std::int64_t> cuts{0, c.classes / 3, c.classes / 3, c.classes};
        std::vector<std::vector<Array>> parts(3);
        run_together(3, call.op->exchange(call).bytes, [&](int s, Peers* peers) {
          const auto at = static_cast<std::size_t>(s);
          parts[at] = run_shard(call, in, cuts[at], cuts[at + 1], peers);
        });
        const std::vector<Array> want = run_op(call, in);
        const double loose = dtype == DType::F32 ? 1e-3 : 0x1p-6 * std::max(4.0, std::sqrt(c.rows));
        for (std::size_t o = 0; o < want.size(); ++o) {
          Array sum(want[o].type);
          for (std::size_t s = 0; s < 3; ++s) {
            if (o == 3) {
              put_part(sum, parts[s][o], {{cuts[s], 0}, {cuts[s + 1] - cuts[s], c.width}});
              continue;
            }
            for (std::int64_t i = 0; i < sum.elements(); ++i) sum.set(i, sum.get(i) + parts[s][o].get(i));
          }
          EXPECT_EQ(difference(sum, want[o], dtype == DType::F32 ? 1e-5 : 0x1p-6, loose), "")
              << "output " << o;
        }
      }
    }
  }
}

// Gradients to every input through the kernel-made ones, with a factor, against those of the logits written
// out.
TEST(CpuLoss, GradientsCarryTheFactorThatArrives) {
  const Dim rows{"rows", 6}, width{"width", 5}, vocab{"vocab", 7};
  std::vector<std::vector<Array>> results;
  for (const bool projected : {true, false}) {
    Graph g;
    const Tensor x = g.input("x", {rows, width}, DType::F64),
                 table = g.input("table", {vocab, width}, DType::F64);
    const Tensor labels = g.input("labels", {rows}, DType::I32), w = g.input("w", {rows}, DType::F64);
    const CrossEntropy options{0.1, 0.02};
    const nn::Loss loss =
        projected ? nn::projected_loss(x, table, labels, options, w, true)
                  : nn::cross_entropy_loss(nn::output_projection(x, table), labels, "vocab", options, w);
    const Tensor twice = scale(loss.sum, 2.5);
    Tensors targets = gradients({twice}, {x, table, w});
    const Tensors plain = gradients({loss.sum}, {x, table, w});
    targets.insert(targets.end(), plain.begin(), plain.end());
    targets.push_back(loss.sum);
    targets.push_back(loss.weight);
    EvaluateOptions feeds;
    feeds.feeds = {{"x", random_array(x.type(), 1)},
                   {"table", random_array(table.type(), 2)},
                   {"labels", random_array(labels.type(), 3, 0, 7)},
                   {"w", random_array(w.type(), 4, 0, 2)}};
    results.push_back(evaluate(targets, feeds));
  }
  for (std::size_t i = 0; i < results[0].size(); ++i)
    EXPECT_EQ(difference(results[0][i], results[1][i], 1e-12, 1e-12), "") << i;
}

// Nothing of the size of the logits is in a training step where the vocabulary is whole.
TEST(CpuLoss, LogitsDoNotExistWhole) {
  const Dim batch{"batch", 8}, length{"length", 500}, width{"width", 4}, vocab{"vocab", 1000};
  Graph g;
  const Tensor x = g.parameter("x", {batch, length, width}, Initializer::normal(1)),
               table = g.parameter("table", {vocab, width}, Initializer::normal(1));
  const Tensor labels = g.input("labels", {batch, length}, DType::I32);
  const nn::Loss loss = nn::projected_loss(x, table, labels, {}, {}, true);
  const Tensors grads = gradients({loss.sum}, {x, table});
  for (const char* layout : {"batch:a", ""}) {
    Session session(g, Mesh::parse("a:2"), Layout::parse(layout));
    const int id =
        session.compile({loss.sum, loss.weight, reduce_sum(square(grads[0])), reduce_sum(square(grads[1]))});
    const std::int64_t logits = batch.size * length.size * vocab.size * 4;
    EXPECT_LT(session.plan(id).arena_bytes, logits / 4) << layout;
    for (const ProgramValue& v : session.program(id).values)
      EXPECT_FALSE(v.type.shape.has("vocab") && v.type.shape.has("length")) << v.name;
  }
}

}  // namespace
}  // namespace tessera::testing
