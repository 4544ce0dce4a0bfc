// Naive kernels of attention and its gradient, query by query, in double.
#include <algorithm>
#include <array>

#include "ops/attention.h"
#include "ops/loops.h"
#include "tessera/random.h"

namespace tessera {
namespace {

// The views of one call, by what they are; absent ones have no dimensions and no data.
struct Views {
  Views(const AttentionCall& a, std::span<const View> in) : q(in[0]), k(in[1]), v(in[2]) {
    for (std::size_t i = 0; i < optional.size(); ++i) {
      const int at = a.input(kAttentionInputs[i]);
      if (at >= 0) optional[i] = in[static_cast<std::size_t>(at)];
    }
  }

  View q, k, v;
  std::array<View, std::size(kAttentionInputs)> optional;  // in the order of kAttentionInputs
};

// Dropout of weights: the mask is that of the op `dropout` on a tensor of queries x memory.
class WeightMask {
 public:
  // `rows`: a view over the queries, as `log_sum`.
  WeightMask(const AttentionCall& a, const KernelContext& c, const View& rows, const View& k)
      : rate_(a.rate), index_(rows) {
    if (rate_.dropped == 0) return;
    TESSERA_ASSERT(c.key != nullptr, "random op '{}' runs without a key", c.call.name);
    key_ = random_key(c.seed, *c.key, c.step);
    const auto varies = [&](const std::string& name) {
      return a.noise.empty() || std::find(a.noise.begin(), a.noise.end(), name) != a.noise.end();
    };
    const auto memory = static_cast<std::size_t>(k.shape.find(a.memory));
    std::int64_t step = 1;
    if (varies(a.memory)) step_ = 1, step = k.full[memory];
    for (std::size_t d = rows.shape.count(); d-- > 0;) {
      index_.stride[d] = varies(rows.shape[d].name) ? step : 0;
      if (index_.stride[d] == 0) continue;
      first_ += rows.start[d] * step;
      step *= rows.full[d];
    }
    first_ += step_ * k.start[memory];
  }

  // As if the index of a query's first element were an offset in memory.
  const View& index() const { return index_; }
  // 0 where the weight is dropped, else what it is scaled by.
  double factor(std::int64_t row, std::int64_t memory) const {
    if (rate_.dropped == 0) return 1;
    const auto at = static_cast<std::uint64_t>(first_ + row + memory * step_);
    return rate_.drops(random_half_at(key_, at)) ? 0 : rate_.factor();
  }

 private:
  RandomKey key_{};
  DropoutRate rate_;
  View index_;
  std::int64_t first_ = 0, step_ = 0;
};

// Where the parts of one query begin in each view.
struct At {
  std::int64_t q, k, v, mask;
  std::array<std::int64_t, std::size(kAttentionInputs)> optional;
};

// The logits of one query; minus infinity where it does not see.
template <class T>
class Logits {
 public:
  Logits(const AttentionCall& a, const Views& views)
      : a_(a),
        views_(views),
        q_(views.q, a.feature),
        k_(views.k, a.feature),
        k_step_(stride_of(views.k, a.memory)),
        features_(views.q.shape.size(a.feature)) {
    for (std::size_t i = 0; i < optional_step_.size(); ++i) {
      optional_step_[i] =
          stride_of(views.optional[i], i + 1 == optional_step_.size() ? a.distance : a.memory);
    }
    if (has(5)) reach_ = (views.optional[5].shape.size(a.distance) - 1) / 2;
  }

  double operator()(const At& at, std::int64_t m) const {
    if (!visible(at, m)) return -INFINITY;
    const double product =
        sum_over(features_, [&](std::int64_t d) { return q_.at(at.q, d) * k_.at(at.k + m * k_step_, d); });
    return a_.scale * product + (has(5) ? bias(at, m) : 0);
  }

  // The index of the bias of this pair.
  std::int64_t distance(const At& at, std::int64_t m) const {
    return std::clamp<std::int64_t>(number(1, at, m) - number(0, at, 0), -reach_, reach_) + reach_;
  }

 private:
  bool has(std::size_t i) const { return views_.optional[i].data != nullptr; }
  std::int64_t number(std::size_t i, const At& at, std::int64_t m) const {
    const bool of_memory = i % 2 == 1 || i == 4;
    return views_.optional[i]
        .template as<std::int32_t>()[at.optional[i] + (of_memory ? m * optional_step_[i] : 0)];
  }
  bool visible(const At& at, std::int64_t m) const {
    if (a_.causal && number(0, at, m) < number(1, at, m)) return false;
    if (has(2) && number(2, at, m) != number(3, at, m)) return false;
    return !has(4) || number(4, at, m) != 0;
  }
  double bias(const At& at, std::int64_t m) const {
    return views_.optional[5].template as<Stat<T>>()[at.optional[5] + distance(at, m) * optional_step_[5]];
  }

  const AttentionCall& a_;
  const Views& views_;
  Line<T> q_, k_;
  std::int64_t k_step_, features_, reach_ = 0;
  std::array<std::int64_t, std::size(kAttentionInputs)> optional_step_{};
};

// Calls f(At, offsets in `more`) for every query.
template <class F, class... More>
void for_each_query(const Views& v, const View& index, F f, const More&... more) {
  const auto& o = v.optional;
  for_each_line(
      index.shape, "",
      [&](auto at) {
        std::array<std::int64_t, sizeof...(More)> further{};
        std::copy(at.begin() + 10, at.end(), further.begin());
        f(At{at[0], at[1], at[2], at[3], {at[4], at[5], at[6], at[7], at[8], at[9]}}, further);
      },
      v.q, v.k, v.v, index, o[0], o[1], o[2], o[3], o[4], o[5], more...);
}

}  // namespace

void kernel_attention(KernelContext& c) {
  const AttentionCall a(c.call);
  const Views views(a, c.in);
  const WeightMask mask(a, c, c.out[1], views.k);
  const std::int64_t memory = views.k.shape.size(a.memory), features = views.q.shape.size(a.feature);
  with_floating(c.in[0].dtype, [&]<class T>() {
    const Logits<T> logits(a, views);
    const Line<T> v(views.v, a.feature), y(c.out[0], a.feature);
    const std::int64_t v_step = stride_of(views.v, a.memory);
    std::vector<double> weight(static_cast<std::size_t>(memory));
    for_each_query(
        views, mask.index(),
        [&](const At& at, auto out) {
          double max = lowest_of(DType::F64), sum = 0;
          for (std::int64_t m = 0; m < memory; ++m) {
            double& x = weight[static_cast<std::size_t>(m)];
            x = logits(at, m);
            if (std::isnan(x) || x > max) max = x;
          }
          for (double& x : weight) sum += x = std::exp(x - max);
          for (std::int64_t m = 0; m < memory; ++m) {
            weight[static_cast<std::size_t>(m)] *= mask.factor(at.mask, m) / (sum == 0 ? 1 : sum);
          }
          for (std::int64_t d = 0; d < features; ++d) {
            y.set(out[0], d, sum_over(memory, [&](std::int64_t m) {
                    const double w = weight[static_cast<std::size_t>(m)];
                    return w == 0 ? 0 : w * v.at(at.v + m * v_step, d);
                  }));
          }
          c.out[1].as<Stat<T>>()[out[1]] = static_cast<Stat<T>>(sum == 0 ? 0 : std::log(sum) + max);
        },
        c.out[0], c.out[1]);
  });
}

namespace {

// Sums in double behind an output.
struct Sums {
  explicit Sums(const View& view) : out(view), sum(static_cast<std::size_t>(view.elements()), 0) {}
  double& at(std::int64_t offset) { return sum[static_cast<std::size_t>(offset)]; }
  template <class T>
  void store() const {
    for (std::size_t i = 0; i < sum.size(); ++i) out.as<T>()[i] = element_from<T>(sum[i]);
  }

  const View& out;
  std::vector<double> sum;
};

template <class T>
class Backward {
 public:
  Backward(const AttentionCall& a, const Views& views, const WeightMask& mask, const KernelContext& c)
      : a_(a),
        mask_(mask),
        logits_(a, views),
        q_(views.q, a.feature),
        k_(views.k, a.feature),
        v_(views.v, a.feature),
        y_(c.in[a.tail()], a.feature),
        dy_(c.in[a.tail() + 2], a.feature),
        log_sum_(c.in[a.tail() + 1].as<Stat<T>>()),
        dq_(c.out[0]),
        dk_(c.out[1]),
        dv_(c.out[2]),
        memory_(views.k.shape.size(a.memory)),
        features_(views.q.shape.size(a.feature)),
        k_step_(stride_of(views.k, a.memory)),
        v_step_(stride_of(views.v, a.memory)),
        bias_step_(stride_of(views.optional[5], a.distance)) {
    if (c.in.size() > a.tail() + 3) dlog_sum_ = c.in[a.tail() + 3].as<Stat<T>>();
    if (c.out.size() > 3) dbias_.emplace(c.out[3]);
  }

  // `row`: offsets in y and dy, in log_sum, in its gradient.
  void query(const At& at, const std::array<std::int64_t, 3>& row) {
    double level = sum_over(features_, [&](std::int64_t d) { return dy_.at(row[0], d) * y_.at(row[0], d); });
    if (dlog_sum_ != nullptr) level -= dlog_sum_[row[2]];
    for (std::int64_t m = 0; m < memory_; ++m) {
      const double weight = std::exp(logits_(at, m) - log_sum_[row[1]]);
      if (weight != 0) pair(at, row[0], m, weight, level);
    }
  }

  void store() const {
    for (const Sums* sums : {&dq_, &dk_, &dv_}) sums->template store<T>();
    if (dbias_) dbias_->template store<Stat<T>>();
  }

 private:
  void pair(const At& at, std::int64_t row, std::int64_t m, double weight, double level) {
    const double factor = mask_.factor(at.mask, m);
    const std::int64_t k = at.k + m * k_step_, v = at.v + m * v_step_;
    const double dweight =
        factor * sum_over(features_, [&](std::int64_t d) { return dy_.at(row, d) * v_.at(v, d); });
    const double dlogit = weight * (dweight - level);
    for (std::int64_t d = 0; d < features_; ++d) {
      dq_.at(at.q + d * q_.step) += a_.scale * dlogit * k_.at(k, d);
      dk_.at(k + d * k_.step) += a_.scale * dlogit * q_.at(at.q, d);
      dv_.at(v + d * v_.step) += factor * weight * dy_.at(row, d);
    }
    if (dbias_) dbias_->at(at.optional[5] + logits_.distance(at, m) * bias_step_) += dlogit;
  }

  const AttentionCall& a_;
  const WeightMask& mask_;
  Logits<T> logits_;
  Line<T> q_, k_, v_, y_, dy_;
  const Stat<T>* log_sum_;
  const Stat<T>* dlog_sum_ = nullptr;
  Sums dq_, dk_, dv_;
  std::optional<Sums> dbias_;
  std::int64_t memory_, features_, k_step_, v_step_, bias_step_;
};

}  // namespace

void kernel_attention_grad(KernelContext& c) {
  const AttentionCall a(c.call);
  const Views views(a, c.in);
  const View& log_sum = c.in[a.tail() + 1];
  const View dlog_sum = c.in.size() > a.tail() + 3 ? c.in[a.tail() + 3] : View{};
  const WeightMask mask(a, c, log_sum, views.k);
  with_floating(c.in[0].dtype, [&]<class T>() {
    Backward<T> backward(a, views, mask, c);
    for_each_query(
        views, mask.index(), [&](const At& at, const auto& row) { backward.query(at, row); },
        c.in[a.tail() + 2], log_sum, dlog_sum);
    backward.store();
  });
}

}  // namespace tessera
