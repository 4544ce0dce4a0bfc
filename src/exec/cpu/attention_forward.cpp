// Blockwise attention, forward: per block of queries a pass over the blocks of the memory that it sees, with
// the maximum and the sum of exponentials so far.
#include <cmath>

#include "base/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/attention_forward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "exec/cpu/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
class ForwardItem : public AttentionItem<T> {
 public:
  using AttentionItem<T>::AttentionItem;

  void run(const AttentionPart& work) {
    if (work.query_begin >= this->plan_.query_blocks()) return;
    this->look_at_memory(0, this->plan_.memory_blocks());
    for (std::int64_t b = work.query_begin; b < this->plan_.query_blocks(); b += work.query_step) block(b);
  }

 private:
  void block(std::int64_t b) {
    this->load_queries(b);
    float *tile = this->part(this->layout_.weights), *sums = this->part(this->layout_.sums);
    std::fill_n(sums, rounded_up(this->queries_, kTileRows) * this->width_, 0.0F);
    std::fill_n(max_, kBlock, std::numeric_limits<float>::lowest());
    std::fill_n(sum_, kBlock, 0.0F);
    for (std::int64_t m = 0; m < this->plan_.memory_blocks(); ++m) {
      BlockPair pair;
      if (!this->meet(m, pair)) continue;
      this->load_memory(m);
      this->logits(pair, tile);
      soften(pair, tile);
      this->clear_unseen(pair, tile);
      rescale(sums);
      this->add_products(pair, tile, this->layout_.v, sums);
    }
    finish(sums);
  }

  // Logits become exp(logit - maximum so far), dropped weights zeros; factor_ is by what older sums shrink.
  void soften(const BlockPair& pair, float* tile) {
    for (int q = 0; q < pair.panels * kPanel; q += 2 * kVector) {
      const Range seen = pair.seen[q / kPanel];
      if (this->plan_.drops()) {
        soften_columns<true>(seen, q, tile + q, this->draw(pair, seen, q));
      } else {
        soften_columns<false>(seen, q, tile + q, {});
      }
    }
  }

  // Two vectors of queries.
  template <bool kDrop>
  void soften_columns(Range seen, int q, float* tile, typename AttentionItem<T>::MaskColumns mask) {
    const FloatTag d;
    const auto old0 = hn::Load(d, max_ + q), old1 = hn::Load(d, max_ + q + kVector);
    auto max0 = old0, max1 = old1;
    for (int m = seen.begin; m < seen.end; ++m) {
      max0 = hn::Max(hn::Load(d, tile + m * kBlock), max0);
      max1 = hn::Max(hn::Load(d, tile + m * kBlock + kVector), max1);
    }
    const auto factor0 = vector_exp(d, hn::Sub(old0, max0)), factor1 = vector_exp(d, hn::Sub(old1, max1));
    auto sum0 = hn::Mul(hn::Load(d, sum_ + q), factor0),
         sum1 = hn::Mul(hn::Load(d, sum_ + q + kVector), factor1);
    for (int m = seen.begin; m < seen.end; ++m) {
      float* row = tile + m * kBlock;
      auto x0 = vector_exp(d, hn::Sub(hn::Load(d, row), max0));
      auto x1 = vector_exp(d, hn::Sub(hn::Load(d, row + kVector), max1));
      sum0 = hn::Add(sum0, x0);
      sum1 = hn::Add(sum1, x1);
      if constexpr (kDrop) {
        x0 = hn::IfThenElseZero(this->kept(mask.at(m)), x0);
        x1 = hn::IfThenElseZero(this->kept(mask.at(m) + kVector), x1);
      }
      hn::Store(x0, d, row);
      hn::Store(x1, d, row + kVector);
    }
    hn::Store(max0, d, max_ + q);
    hn::Store(max1, d, max_ + q + kVector);
    hn::Store(factor0, d, factor_ + q);
    hn::Store(factor1, d, factor_ + q + kVector);
    hn::Store(sum0, d, sum_ + q);
    hn::Store(sum1, d, sum_ + q + kVector);
  }

  void rescale(float* sums) const {
    const FloatTag d;
    for (int q = 0; q < this->queries_; ++q) {
      if (factor_[q] == 1) continue;
      const auto factor = hn::Set(d, factor_[q]);
      float* row = sums + q * this->width_;
      for (std::int64_t i = 0; i < this->width_; i += kVector)
        hn::Store(hn::Mul(hn::Load(d, row + i), factor), d, row + i);
    }
  }

  void finish(float* sums) const {
    const auto scale = static_cast<float>(this->plan_.dropout.factor());
    for (int q = 0; q < this->queries_; ++q) {
      const std::int64_t query = this->first_query_ + q;
      const bool none = sum_[q] == 0;
      store_row(sums + q * this->width_, none ? 0 : scale / sum_[q], this->plan_.features,
                this->step(kY).feature, this->at(kY) + query * this->step(kY).row);
      this->template at<float>(kLogSum)[query * this->step(kLogSum).row] =
          none ? 0 : std::log(sum_[q]) + max_[q];
    }
  }

  alignas(64) float max_[kBlock], sum_[kBlock], factor_[kBlock];  // per query
};

}  // namespace

void attention_forward(const AttentionPlan& plan, const AttentionRun& run, const AttentionPart& work,
                       float* scratch) {
  if (plan.dtype == DType::F32) {
    ForwardItem<float>(plan, run, work.item, scratch).run(work);
  } else {
    ForwardItem<bf16>(plan, run, work.item, scratch).run(work);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {

HWY_EXPORT(attention_forward);

void attend_part(const AttentionPlan& plan, const AttentionRun& run, const AttentionPart& work,
                 float* scratch) {
  HWY_DYNAMIC_DISPATCH(attention_forward)(plan, run, work, scratch);
}

}  // namespace tessera
#endif
