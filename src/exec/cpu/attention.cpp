// Attention and its gradient on a CPU: what a call looks like to the loops over blocks, and how threads share
// it. A thread takes whole items, or, when there are too few of them, blocks of every item. Either way every
// sum is added up in the same order, so that the bits do not depend on the number of threads.
#include "exec/cpu/attention.h"

#include <cstring>
#include <memory>

#include "base/check.h"
#include "exec/cpu/records.h"
#include "exec/team.h"
#include "tessera/random.h"

namespace tessera {

// attention_forward.cpp, attention_backward.cpp
void attend_part(const AttentionPlan& plan, const AttentionRun& run, const AttentionPart& work,
                 float* scratch);
void attend_part_backward(const AttentionPlan& plan, const AttentionRun& run, const AttentionPart& work,
                          float* scratch);

namespace {

// The record's inputs and outputs by operand; -1: absent.
struct AttentionPlaces {
  PerOperand<int> in, out;

  AttentionPlaces(const Call& call, bool backward) {
    in.fill(-1), out.fill(-1);
    in[kQ] = 0, in[kK] = 1, in[kV] = 2;
    const Strings& with = call.attrs.texts("with");
    for (std::size_t i = 0; i < with.size(); ++i) in[named(with[i])] = 3 + static_cast<int>(i);
    const int tail = 3 + static_cast<int>(with.size());
    if (!backward) {
      out[kY] = 0, out[kLogSum] = 1;
      return;
    }
    in[kY] = tail, in[kLogSum] = tail + 1, in[kDy] = tail + 2;
    if (static_cast<int>(call.in.size()) > tail + 3) in[kDlogSum] = tail + 3;
    out[kDq] = 0, out[kDk] = 1, out[kDv] = 2;
    if (in[kBias] >= 0) out[kDbias] = 3;
  }

  const View* view(AttentionOperand o, std::span<const View> ins, std::span<const View> outs) const {
    if (in[o] >= 0) return &ins[static_cast<std::size_t>(in[o])];
    return out[o] >= 0 ? &outs[static_cast<std::size_t>(out[o])] : nullptr;
  }

 private:
  static AttentionOperand named(const std::string& name) {
    constexpr std::pair<const char*, AttentionOperand> kNames[] = {
        {"query_positions", kQueryPositions}, {"memory_positions", kMemoryPositions},
        {"query_segments", kQuerySegments},   {"memory_segments", kMemorySegments},
        {"memory_ids", kMemoryIds},           {"distance_bias", kBias}};
    for (const auto& [known, operand] : kNames) {
      if (name == known) return operand;
    }
    TESSERA_ASSERT(false, "attention has no input '{}'", name);
  }
};

AttentionOperand operand(std::size_t i) {
  return static_cast<AttentionOperand>(i);
}

std::int64_t step_along(const View& view, const std::string& dim) {
  const int d = view.shape.find(dim);
  return d < 0 ? 0 : view.stride[static_cast<std::size_t>(d)];
}

std::int64_t distances_of(const Call& call, const std::vector<Type>& in) {
  const int bias = AttentionPlaces(call, false).in[kBias];
  if (bias < 0) return 0;
  return in[static_cast<std::size_t>(bias)].shape.size(call.attrs.text("distance"));
}

bool supports_attention(const KernelSite& site) {
  const View& q = site.in[0];
  const bool type = q.dtype == DType::F32 || q.dtype == DType::BF16;
  return type && q.elements() > 0 && site.in[1].elements() > 0 && q.shape.count() <= kAttentionDims + 2;
}

template <bool kBackward>
std::int64_t attention_workspace(const Call& call, const std::vector<Type>& in, const std::vector<Type>&,
                                 int threads) {
  const Shape &q = in[0].shape, &k = in[1].shape;
  const std::int64_t queries = q.size(call.attrs.text("query")),
                     features = q.size(call.attrs.text("feature"));
  const std::int64_t distances = distances_of(call, in);
  const AttentionScratch scratch(k.size(call.attrs.text("memory")), features, distances, kBackward,
                                 DropoutRate(call.attrs.number("rate")).dropped > 0);
  const std::int64_t items =
      q.without(call.attrs.text("query")).without(call.attrs.text("feature")).elements();
  const std::int64_t tables = kBackward ? (items + queries / kAttentionBlock + 1) * distances : 0;
  return threads * scratch.floats * static_cast<std::int64_t>(sizeof(float)) +
         tables * static_cast<std::int64_t>(sizeof(double));
}

class PreparedAttention {
 public:
  PreparedAttention(const KernelSite& site, bool backward)
      : places_(site.call, backward),
        memory_(site.call.attrs.text("memory")),
        noise_(site.call.attrs.texts("noise")),
        threads_(site.threads) {
    const Attrs& attrs = site.call.attrs;
    const std::string &query = attrs.text("query"), &feature = attrs.text("feature");
    const View &q = site.in[0], &k = site.in[1];
    plan_.dtype = q.dtype;
    plan_.queries = q.shape.size(query);
    plan_.memory = k.shape.size(memory_);
    plan_.features = q.shape.size(feature);
    plan_.causal = attrs.flag("causal");
    plan_.backward = backward;
    plan_.scale = static_cast<float>(attrs.number("scale"));
    plan_.dropout = DropoutRate(attrs.number("rate"));
    for (const Dim& dim : q.shape) {
      if (dim.name == query || dim.name == feature) continue;
      plan_.dims.push_back({dim.size, {}});
      names_.push_back(dim.name);
      plan_.items *= dim.size;
    }
    for (std::size_t i = 0; i < kAttentionOperands; ++i) {
      const View* view = places_.view(operand(i), site.in, site.out);
      if (view == nullptr) continue;
      const bool table = i == kBias || i == kDbias;
      if (table) plan_.distances = view->shape.size(attrs.text("distance"));
      plan_.step[i].row = view->shape.has(query) ? step_along(*view, query) : step_along(*view, memory_);
      plan_.step[i].feature = step_along(*view, table ? attrs.text("distance") : feature);
      for (std::size_t d = 0; d < names_.size(); ++d) plan_.dims[d].step[i] = step_along(*view, names_[d]);
    }
    floats_ = AttentionScratch(plan_.memory, plan_.features, plan_.distances, backward, plan_.drops()).floats;
  }

  void forward(const KernelContext& c, void* workspace) const {
    const AttentionRun run = run_of(c, c.out[1]);
    auto* scratch = static_cast<float*>(workspace);
    if (whole_items(1, 1)) {
      return for_each_part(threads_, [&](int part) {
        for (std::int64_t item = part; item < plan_.items; item += threads_)
          attend_part(plan_, run, {.item = item}, scratch + part * floats_);
      });
    }
    for (std::int64_t item = 0; item < plan_.items; ++item) {
      for_each_part(threads_, [&](int part) {
        attend_part(plan_, run, {.item = item, .query_begin = part, .query_step = threads_},
                    scratch + part * floats_);
      });
    }
  }

  void backward(const KernelContext& c, void* workspace) const {
    const View& log_sum = c.in[static_cast<std::size_t>(places_.in[kLogSum])];
    const AttentionRun run = run_of(c, log_sum);
    auto* scratch = static_cast<float*>(workspace);
    auto* bias_sums = reinterpret_cast<double*>(scratch + threads_ * floats_);
    std::fill_n(bias_sums, plan_.items * plan_.distances, 0.0);
    if (whole_items(5, 7)) {
      for_each_part(threads_, [&](int part) {
        for (std::int64_t item = part; item < plan_.items; item += threads_) {
          attend_part_backward(plan_, run,
                               {.item = item,
                                .memory_end = plan_.memory_blocks(),
                                .bias_sum = bias_sums + item * plan_.distances},
                               scratch + part * floats_);
        }
      });
    } else {
      for (std::int64_t item = 0; item < plan_.items; ++item) in_two_passes(run, item, scratch, bias_sums);
    }
    if (places_.out[kDbias] >= 0) store_bias(run, bias_sums);
  }

 private:
  // Whether threads should take whole items, given the work per block of either way.
  bool whole_items(std::int64_t whole, std::int64_t in_blocks) const {
    const auto rounds = [&](std::int64_t n) { return (n + threads_ - 1) / threads_; };
    const std::int64_t blocks = plan_.query_blocks();
    return rounds(plan_.items) * blocks * whole <= plan_.items * rounds(blocks) * in_blocks;
  }

  // First the gradients of queries, blocks of queries apart; then those of keys and values, blocks of the
  // memory apart.
  void in_two_passes(const AttentionRun& run, std::int64_t item, float* scratch, double* bias_sums) const {
    double* blocks = bias_sums + plan_.items * plan_.distances;
    const std::int64_t memory = plan_.memory_blocks();
    for_each_part(threads_, [&](int part) {
      attend_part_backward(plan_, run,
                           {.item = item,
                            .query_begin = part,
                            .query_step = threads_,
                            .memory_end = memory,
                            .dkv = false,
                            .bias_blocks = blocks},
                           scratch + part * floats_);
    });
    for_each_part(threads_, [&](int part) {
      attend_part_backward(plan_, run,
                           {.item = item,
                            .memory_begin = memory * part / threads_,
                            .memory_end = memory * (part + 1) / threads_,
                            .dq = false},
                           scratch + part * floats_);
    });
    for (std::int64_t b = 0; b < plan_.query_blocks(); ++b) {
      for (std::int64_t i = 0; i < plan_.distances; ++i)
        bias_sums[item * plan_.distances + i] += blocks[b * plan_.distances + i];
    }
  }

  // Items that share a row of the bias are added up in order, into the first of them.
  void store_bias(const AttentionRun& run, double* sums) const {
    auto* out = reinterpret_cast<float*>(run.data[kDbias]);
    for (std::int64_t item = 0; item < plan_.items; ++item) {
      std::int64_t row = 0, first = 0, items = 1, rest = item;
      for (std::size_t d = plan_.dims.size(); d-- > 0; rest /= plan_.dims[d].count) {
        const std::int64_t i = rest % plan_.dims[d].count, step = plan_.dims[d].step[kDbias];
        row += i * step;
        if (step != 0) first += i * items;
        items *= plan_.dims[d].count;
      }
      for (std::int64_t i = 0; i < plan_.distances; ++i) {
        double& sum = sums[first * plan_.distances + i];
        if (item != first) sum += sums[item * plan_.distances + i];
        out[row + i * plan_.step[kDbias].feature] = static_cast<float>(sum);
      }
    }
  }

  // `rows`: a view over the queries. A windowed run moves it within the whole tensor.
  AttentionRun run_of(const KernelContext& c, const View& rows) const {
    AttentionRun run;
    for (std::size_t i = 0; i < kAttentionOperands; ++i) {
      if (const View* view = places_.view(operand(i), c.in, c.out))
        run.data[i] = static_cast<char*>(view->data);
    }
    if (!plan_.drops()) return run;
    TESSERA_ASSERT(c.key != nullptr, "attention '{}' runs without a key", c.call.name);
    run.key = random_key(c.seed, *c.key, c.step).value;
    const auto varies = [&](const std::string& name) {
      return noise_.empty() || std::find(noise_.begin(), noise_.end(), name) != noise_.end();
    };
    std::int64_t step = 1;
    if (varies(memory_)) {
      const View& k = c.in[1];
      const auto d = static_cast<std::size_t>(k.shape.find(memory_));
      run.memory_step = 1;
      run.first = k.start[d];
      step = k.full[d];
    }
    for (std::size_t d = rows.shape.count(), item_dim = plan_.dims.size(); d-- > 0;) {
      const std::string& name = rows.shape[d].name;
      const bool of_item = item_dim > 0 && name == names_[item_dim - 1];
      if (of_item) --item_dim;
      if (!varies(name)) continue;
      (of_item ? run.dim_step[item_dim] : run.query_step) = step;
      run.first += rows.start[d] * step;
      step *= rows.full[d];
    }
    return run;
  }

  AttentionPlan plan_;
  AttentionPlaces places_;
  std::vector<std::string> names_;  // of plan_.dims
  std::string memory_;
  Strings noise_;
  int threads_;
  std::int64_t floats_ = 0;  // of a thread's scratch
};

template <bool kBackward>
PreparedKernel prepare_attention(const KernelSite& site) {
  return [prepared = std::make_shared<const PreparedAttention>(site, kBackward)](const KernelContext& c,
                                                                                 void* workspace) {
    if constexpr (kBackward) {
      prepared->backward(c, workspace);
    } else {
      prepared->forward(c, workspace);
    }
  };
}

}  // namespace

const CpuKernel kAttentionKernel = {.op = "attention",
                                    .supports = supports_attention,
                                    .workspace = attention_workspace<false>,
                                    .prepare = prepare_attention<false>};
const CpuKernel kAttentionGradKernel = {.op = "attention_grad",
                                        .supports = supports_attention,
                                        .workspace = attention_workspace<true>,
                                        .prepare = prepare_attention<true>};

}  // namespace tessera
