// Blockwise attention, backward: the weights are computed again from the log of their sums. Per block of
// queries a pass over the blocks of the memory; gradients of queries are summed per block, those of keys and
// values in scratch.
#include <cmath>

#include "base/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/attention_backward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "exec/cpu/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
class BackwardItem : public AttentionItem<T> {
 public:
  using AttentionItem<T>::AttentionItem;

  void run(const AttentionPart& work) {
    if (work.memory_begin >= work.memory_end || work.query_begin >= this->plan_.query_blocks()) return;
    this->look_at_memory(work.memory_begin, work.memory_end);
    first_row_ = work.memory_begin * kBlock;
    end_row_ = std::min(work.memory_end * kBlock, this->plan_.memory);
    for (std::int64_t sums : {this->layout_.dk, this->layout_.dv}) {
      const std::int64_t rows = rounded_up(static_cast<int>(end_row_ - first_row_), kTileRows);
      std::fill_n(this->memory_row(sums, first_row_), rows * this->width_, 0.0F);
    }
    for (std::int64_t b = work.query_begin; b < this->plan_.query_blocks(); b += work.query_step)
      block(b, work);
    if (!work.dkv) return;
    store_memory(kDk, this->layout_.dk);
    store_memory(kDv, this->layout_.dv);
  }

 private:
  void block(std::int64_t b, const AttentionPart& work) {
    this->load_queries(b);
    load_gradients();
    float* sums = this->part(this->layout_.sums);
    if (work.dq) std::fill_n(sums, rounded_up(this->queries_, kTileRows) * this->width_, 0.0F);
    const bool biased = work.dq && this->has(kDbias);
    double* table = nullptr;
    if (biased) {
      table = work.bias_blocks != nullptr ? work.bias_blocks + b * this->plan_.distances
                                          : reinterpret_cast<double*>(this->part(this->layout_.dbias));
      std::fill_n(table, this->plan_.distances, 0.0);
    }
    for (std::int64_t m = work.memory_begin; m < work.memory_end; ++m) {
      BlockPair pair;
      if (!this->meet(m, pair)) continue;
      this->load_memory(m);
      add_pair(pair, work, sums, table);
    }
    if (work.dq) store_queries(sums);
    if (biased && work.bias_sum != nullptr) {
      for (std::int64_t i = 0; i < this->plan_.distances; ++i) work.bias_sum[i] += table[i];
    }
  }

  // dy of the block as rows and columns, times the scale of kept weights, and per query log_sum and what is
  // subtracted from the gradients of its weights: the sum of y dy, less the gradient of log_sum.
  void load_gradients() {
    const auto scale = static_cast<float>(this->plan_.dropout.factor());
    this->load_query_rows(kDy, scale, this->layout_.dy, this->layout_.dy_columns);
    for (int q = 0; q < kBlock; ++q) {
      if (q >= this->queries_) {  // such a column has no weights
        level_[q] = 0, log_sum_[q] = std::numeric_limits<float>::infinity();
        continue;
      }
      const std::int64_t query = this->first_query_ + q;
      log_sum_[q] = this->template at<float>(kLogSum)[query * this->step(kLogSum).row];
      level_[q] = output_product(this->at(kY) + query * this->step(kY).row, q) / scale;
      if (this->has(kDlogSum)) {
        level_[q] -= this->template at<float>(kDlogSum)[query * this->step(kDlogSum).row];
      }
    }
  }

  // The sum of y dy of query q, with dy as it was loaded.
  float output_product(const T* y, int q) const {
    const FloatTag d;
    const std::int64_t features = this->plan_.features;
    const float* dy = this->part(this->layout_.dy) + q * this->width_;
    const auto with = [&](const auto* row) HWY_ATTR {
      return sum_row(d, features, [&](std::int64_t i) HWY_ATTR {
        return hn::Mul(read(d, row, i, features), hn::Load(d, dy + i));
      });
    };
    if (this->step(kY).feature == 1) {
      if (q + kAhead < this->queries_) fetch_row(y + kAhead * this->step(kY).row, features);
      return with(y);
    }
    float* row = this->part(this->layout_.sums);
    load_rows(y, this->step(kY), 1, 1, features, this->width_, 1, row);
    return with(row);
  }

  void add_pair(const BlockPair& pair, const AttentionPart& work, float* sums, double* table) {
    float *weights = this->part(this->layout_.weights), *dlogits = this->part(this->layout_.dlogits);
    this->logits(pair, weights);
    this->products(pair, this->layout_.v, this->part(this->layout_.dy_columns), dlogits);
    for (int q = 0; q < pair.panels * kPanel; q += 2 * kVector) {
      const Range seen = pair.seen[q / kPanel];
      if (this->plan_.drops()) {
        combine<true>(seen, q, weights + q, dlogits + q, this->draw(pair, seen, q));
      } else {
        combine<false>(seen, q, weights + q, dlogits + q, {});
      }
    }
    this->clear_unseen(pair, weights);
    this->clear_unseen(pair, dlogits);
    if (work.dkv) {
      add_memory(pair, weights, this->part(this->layout_.dy), this->layout_.dv);
      add_memory(pair, dlogits, this->part(this->layout_.q), this->layout_.dk);
    }
    if (work.dq) this->add_products(pair, dlogits, this->layout_.k, sums);
    if (table != nullptr) add_bias_gradient(pair, dlogits, table);
  }

  // Two vectors of queries: logits become (dropped) weights, the other tile the gradients of the logits. The
  // scale of what is kept is in dy already.
  template <bool kDrop>
  void combine(Range seen, int q, float* weights, float* dlogits,
               typename AttentionItem<T>::MaskColumns mask) const {
    const FloatTag d;
    for (int v = 0; v < 2; ++v, q += kVector, weights += kVector, dlogits += kVector) {
      const auto log_sum = hn::Load(d, log_sum_ + q), level = hn::Load(d, level_ + q);
      for (int m = seen.begin; m < seen.end; ++m) {
        const auto weight = vector_exp(d, hn::Sub(hn::Load(d, weights + m * kBlock), log_sum));
        auto dropped = weight, gradient = hn::Load(d, dlogits + m * kBlock);
        if constexpr (kDrop) {
          const auto kept = this->kept(mask.at(m) + v * kVector);
          dropped = hn::IfThenElseZero(kept, weight);
          gradient = hn::IfThenElseZero(kept, gradient);
        }
        hn::Store(dropped, d, weights + m * kBlock);
        hn::Store(hn::Mul(weight, hn::Sub(gradient, level)), d, dlogits + m * kBlock);
      }
    }
  }

  // Row m of the sums += row m of the tile times the rows of the queries.
  void add_memory(const BlockPair& pair, const float* tile, const float* rows, std::int64_t sums) const {
    for (std::int64_t d = 0; d < this->plan_.features; d += kTileColumns<float>) {
      for (int m = 0; m < pair.memory; m += kTileRows) {
        const Range seeing = pair.queries_seeing(m, m + kTileRows);
        if (seeing.empty()) continue;
        tile_at<TileForm::Rows>(
            tile + m * kBlock + seeing.begin, kBlock, rows + seeing.begin * this->width_ + d, this->width_,
            this->memory_row(sums, pair.first + m) + d, this->width_, seeing.size(), true);
      }
    }
  }

  void add_bias_gradient(const BlockPair& pair, const float* dlogits, double* table) const {
    const std::int64_t common = this->common_distance(pair);
    alignas(64) std::int32_t index[kVector];
    for (int m = 0; m < pair.memory; ++m) {
      const float* row = dlogits + m * kBlock;
      if (common >= 0) {
        float sum = 0;
        for (int q = 0; q < pair.queries; ++q) sum += row[q];
        table[common] += sum;
        continue;
      }
      const std::int32_t position = this->number(kMemoryPositions, pair.first + m);
      for (int q = 0; q < pair.queries; q += kVector) {
        hn::Store(this->distances_at(position, q), IntTag(), index);
        const int count = std::min(kVector, pair.queries - q);
        for (int i = 0; i < count; ++i) table[index[i]] += row[q + i];
      }
    }
  }

  void store_queries(float* sums) const {
    for (int q = 0; q < this->queries_; ++q) {
      store_row(sums + q * this->width_, this->plan_.scale, this->plan_.features, this->step(kDq).feature,
                this->at(kDq) + (this->first_query_ + q) * this->step(kDq).row);
    }
  }

  // The queries were scaled already.
  void store_memory(AttentionOperand o, std::int64_t sums) const {
    for (std::int64_t r = first_row_; r < end_row_; ++r) {
      store_row(this->memory_row(sums, r), 1, this->plan_.features, this->step(o).feature,
                this->at(o) + r * this->step(o).row);
    }
  }

  std::int64_t first_row_ = 0, end_row_ = 0;           // of the memory
  alignas(64) float level_[kBlock], log_sum_[kBlock];  // per query
};

}  // namespace

void attention_backward(const AttentionPlan& plan, const AttentionRun& run, const AttentionPart& work,
                        float* scratch) {
  if (plan.dtype == DType::F32) {
    BackwardItem<float>(plan, run, work.item, scratch).run(work);
  } else {
    BackwardItem<bf16>(plan, run, work.item, scratch).run(work);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {

HWY_EXPORT(attention_backward);

void attend_part_backward(const AttentionPlan& plan, const AttentionRun& run, const AttentionPart& work,
                          float* scratch) {
  HWY_DYNAMIC_DISPATCH(attention_backward)(plan, run, work, scratch);
}

}  // namespace tessera
#endif
