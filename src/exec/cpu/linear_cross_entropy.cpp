// An output projection with its cross-entropy, a block of rows at a time: only one block's logits exist. In
// training a block's gradients follow at once, so that its logits are made once; the table's gradient is
// summed over the blocks in f32. Shards of split rows meet once a block.
#include <algorithm>
#include <optional>

#include "exec/cpu/cross_entropy.h"
#include "exec/cpu/narrow.h"
#include "exec/cpu/product.h"
#include "exec/cpu/records.h"
#include "exec/cpu/rows.h"

namespace tessera {
namespace {

struct Sizes {
  std::int64_t rows = 0, classes = 0, width = 0;
  DType dtype = DType::F32;

  Sizes(const Call& call, const Shape& x, const Shape& table, DType type)
      : classes(table.size(call.attrs.text("dim"))), width(x[x.count() - 1].size), dtype(type) {
    rows = width == 0 ? 0 : x.elements() / width;
  }
  std::int64_t at_once() const { return RowBlocks(rows).largest(); }
  // Rows of the gradient lie in those of the logits.
  std::int64_t gradient_pitch() const { return classes * 4 / static_cast<std::int64_t>(size_of(dtype)); }
};

Contraction product_of(const Sizes& s, DType result, ContractionDim m, ContractionDim n, ContractionDim k) {
  Contraction c;
  c.dtype = s.dtype;
  c.result = result;
  c.m = {m}, c.n = {n}, c.k = {k};
  return c;
}

// logits = x . table^T, in f32.
Contraction logits_product(const Sizes& s, std::int64_t rows) {
  return product_of(s, DType::F32, {rows, s.width, 0, s.classes}, {s.classes, 0, s.width, 1},
                    {s.width, 1, 1, 0});
}
Contraction x_product(const Sizes& s, std::int64_t rows) {
  return product_of(s, s.dtype, {rows, s.gradient_pitch(), 0, s.width}, {s.width, 0, 1, 1},
                    {s.classes, 1, s.width, 0});
}
Contraction table_product(const Sizes& s, std::int64_t rows, bool first) {
  Contraction c = product_of(s, DType::F32, {s.classes, 1, 0, s.width}, {s.width, 0, 1, 1},
                             {rows, s.gradient_pitch(), s.width, 0});
  c.accumulate = !first;
  return c;
}

// The parts of the workspace, in bytes.
class Scratch {
 public:
  Scratch(const Sizes& s, bool training, int threads) {
    const std::int64_t rows = s.at_once();
    const bool half = s.dtype == DType::BF16;
    logits = take(rows * s.classes * 4);
    log_z = training ? -1 : take(rows * 4);
    part = take(rows * static_cast<std::int64_t>(sizeof(RowPart<float>)));
    at_target = take(rows * 4);
    smoothed = take(rows * 4);
    sums = training && half ? take(s.classes * s.width * 4) : -1;
    std::int64_t most = MatrixProduct::workspace(logits_product(s, rows), threads);
    if (training) {
      most = std::max(most, MatrixProduct::workspace(x_product(s, rows), threads));
      most = std::max(most, MatrixProduct::workspace(table_product(s, rows, true), threads));
    }
    products = take(most);
  }

  std::int64_t logits = 0, log_z = 0, part = 0, at_target = 0, smoothed = 0, sums = 0, products = 0,
               bytes = 0;

 private:
  std::int64_t take(std::int64_t size) {
    const std::int64_t at = bytes;
    bytes += (size + 63) / 64 * 64;
    return at;
  }
};

bool supports(const KernelSite& site) {
  const Shape &x = site.in[0].shape, &table = site.in[1].shape;
  if (!is_half_or_single(site.in[0].dtype) || x.elements() == 0 || table.elements() == 0) return false;
  if (x.count() == 0 || table[0].name != site.call.attrs.text("dim") || !is_last(x, table[1].name))
    return false;
  for (std::size_t i = 2; i < site.in.size(); ++i)
    if (!is_statistic(x, site.in[i].shape)) return false;
  return true;
}

template <bool kTraining>
std::int64_t workspace(const Call& call, const std::vector<Type>& in, const std::vector<Type>&, int threads) {
  return Scratch(Sizes(call, in[0].shape, in[1].shape, in[0].dtype), kTraining, threads).bytes;
}

CrossEntropyPlan row_plan(const KernelSite& site, const Sizes& s) {
  CrossEntropyPlan plan;
  plan.gradient = s.dtype;
  plan.length = s.classes;
  plan.classes = site.call.in[1].shape[0].size;
  const double smoothing = site.call.attrs.number("label_smoothing");
  plan.on = 1 - smoothing;
  plan.off = smoothing / static_cast<double>(plan.classes);
  plan.z_loss = site.call.attrs.number("z_loss");
  return plan;
}

// The kernel of either op, made ready.
template <bool kTraining>
class Projection {
 public:
  explicit Projection(const KernelSite& site)
      : s_(site.call, site.in[0].shape, site.in[1].shape, site.in[0].dtype),
        plan_(row_plan(site, s_)),
        scratch_(s_, kTraining, site.threads),
        blocks_(s_.rows),
        threads_(site.threads) {
    for (std::int64_t block = 0; block < blocks_.count; ++block) {
      const std::int64_t rows = blocks_.rows_of(block);
      Products& p = products_[rows == blocks_.size ? 0 : 1];
      if (!p.logits) p.logits.emplace(logits_product(s_, rows), threads_);
      if (!kTraining) continue;
      if (!p.x) p.x.emplace(x_product(s_, rows), threads_);
      std::optional<MatrixProduct>& table = block == 0 ? p.first_table : p.table;
      if (!table) table.emplace(table_product(s_, rows, block == 0), threads_);
    }
  }

  void run(const KernelContext& c, char* scratch) const {
    double total = 0;
    for (std::int64_t block = 0, row = 0; block < blocks_.count; ++block) {
      run_block(c, scratch, block, row);
      if (kTraining) {
        const float *loss = c.out[1].as<float>() + row, *weight = c.in[3].as<float>() + row;
        for (std::int64_t r = 0; r < blocks_.rows_of(block); ++r)
          total += static_cast<double>(loss[r]) * static_cast<double>(weight[r]);
      }
      row += blocks_.rows_of(block);
    }
    if (!kTraining) return;
    *c.out[0].as<float>() = static_cast<float>(total);
    if (s_.dtype == DType::BF16) narrow_table(c, scratch);
  }

 private:
  struct Products {
    std::optional<MatrixProduct> logits, x, first_table, table;
  };

  void run_block(const KernelContext& c, char* scratch, std::int64_t block, std::int64_t row) const {
    const std::int64_t count = blocks_.rows_of(block);
    const Products& p = products_[count == blocks_.size ? 0 : 1];
    const auto width = static_cast<std::int64_t>(size_of(s_.dtype)) * s_.width;
    const char* x = static_cast<const char*>(c.in[0].data) + row * width;
    auto* logits = reinterpret_cast<float*>(scratch + scratch_.logits);
    void* products = scratch + scratch_.products;
    p.logits->run(x, c.in[1].data, logits, products);
    CrossEntropyRows rows = rows_at(c, scratch, row);
    over_rows(count, threads_, [&](std::int64_t begin, std::int64_t end, int) {
      if (c.peers != nullptr) {
        cross_entropy_parts(plan_, rows, logits, begin, end);
      } else if (kTraining) {
        cross_entropy_both(plan_, rows, logits, begin, end);
      } else {
        cross_entropy_over(plan_, rows, begin, end);
      }
    });
    if (c.peers != nullptr) {
      rows.all = static_cast<const RowPart<float>*>(c.peers->all_gather(rows.part));
      over_rows(count, threads_, [&](std::int64_t begin, std::int64_t end, int) {
        cross_entropy_wholes(plan_, rows, logits, begin, end);
      });
    }
    if (!kTraining) return;
    p.x->run(logits, c.in[1].data, static_cast<char*>(c.out[2].data) + row * width, products);
    void* table = s_.dtype == DType::BF16 ? static_cast<void*>(scratch + scratch_.sums) : c.out[3].data;
    (block == 0 ? *p.first_table : *p.table).run(logits, x, table, products);
  }

  CrossEntropyRows rows_at(const KernelContext& c, char* scratch, std::int64_t row) const {
    const auto floats = [&](std::int64_t at) { return reinterpret_cast<float*>(scratch + at); };
    CrossEntropyRows rows;
    rows.logits = floats(scratch_.logits);
    rows.targets = c.in[2].as<std::int32_t>() + row;
    rows.loss = c.out[kTraining ? 1 : 0].as<float>() + row;
    if (kTraining) {
      rows.dloss = c.in[3].as<float>() + row;
      rows.gradient = floats(scratch_.logits);
      rows.gradient_pitch = s_.gradient_pitch();
    } else {
      rows.log_z_out = floats(scratch_.log_z);
      rows.best = c.out[1].as<std::int32_t>() + row;
    }
    rows.start = c.in[1].start[0];
    if (c.peers == nullptr) return rows;
    rows.part = reinterpret_cast<RowPart<float>*>(scratch + scratch_.part);
    rows.at_target = floats(scratch_.at_target);
    rows.smoothed = floats(scratch_.smoothed);
    rows.pitch = blocks_.largest();
    rows.shards = c.peers->count();
    rows.leads = c.peers->index() == 0;
    return rows;
  }

  void narrow_table(const KernelContext& c, const char* scratch) const {
    const auto* sums = reinterpret_cast<const float*>(scratch + scratch_.sums);
    over_rows(s_.classes, threads_, [&](std::int64_t begin, std::int64_t end, int) {
      narrow_sums(sums + begin * s_.width, c.out[3].as<bf16>() + begin * s_.width, (end - begin) * s_.width);
    });
  }

  Sizes s_;
  CrossEntropyPlan plan_;
  Scratch scratch_;
  RowBlocks blocks_;
  int threads_;
  Products products_[2];  // for the shorter blocks, for the longer ones
};

template <bool kTraining>
PreparedKernel prepare(const KernelSite& site) {
  return [projection = std::make_shared<Projection<kTraining>>(site)](const KernelContext& c, void* scratch) {
    projection->run(c, static_cast<char*>(scratch));
  };
}

}  // namespace

const CpuKernel kLinearCrossEntropyKernel = {.op = "linear_cross_entropy",
                                             .supports = supports,
                                             .workspace = workspace<false>,
                                             .prepare = prepare<false>};
const CpuKernel kLinearCrossEntropySumKernel = {.op = "linear_cross_entropy_sum",
                                                .supports = supports,
                                                .workspace = workspace<true>,
                                                .prepare = prepare<true>};

}  // namespace tessera
