#include "exec/bare_products.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/clock.h"
#include "exec/cpu/dnnl_product.h"
#include "exec/rank_pool.h"
#include "spmd/steps.h"

namespace tessera {
namespace {

constexpr std::int64_t kScratch = std::int64_t{1} << 40;  // any amount

Contraction dense(const Product& p, DType dtype) {
  Contraction c;
  c.dtype = c.result = dtype;
  if (p.batch > 1) c.batch = {{p.batch, p.m * p.k, p.k * p.n, p.m * p.n}};
  c.m = {{p.m, p.k, 0, p.n}};
  c.n = {{p.n, 0, 1, 1}};
  c.k = {{p.k, 1, p.n, 0}};
  return c;
}

std::shared_ptr<DnnlProduct> make(const Product& p, DnnlProduct::Form form, int threads) {
  std::unique_ptr<DnnlProduct> product = DnnlProduct::make(dense(p, p.dtype), threads, kScratch, form);
  if (product == nullptr) product = DnnlProduct::make(dense(p, DType::F32), threads, kScratch, form);
  return product;
}

// Values of ordinary size, so that no product meets subnormal numbers.
AlignedBuffer filled(std::int64_t elements) {
  AlignedBuffer buffer(static_cast<std::size_t>(elements) * sizeof(float));
  for (std::int64_t i = 0; i < elements; ++i)
    buffer.as<float>()[i] = 0.25F + static_cast<float>(i % 7) * 0.125F;
  return buffer;
}

}  // namespace

struct BareProducts::Impl {
  // One rank's operands (shared by all products: only their sizes matter) and its primitives.
  struct RankProducts {
    AlignedBuffer a, b, c, scratch;
    // and how often each is computed; null: a size is 0
    std::vector<std::pair<std::shared_ptr<DnnlProduct>, double>> list;

    double run(DnnlProduct& product) {
      const double begin = now();
      product.run(a.data(), b.data(), c.data(), scratch.data());
      return now() - begin;
    }
  };

  RankPool pool;
  std::vector<RankProducts> ranks;
};

BareProducts::BareProducts(const std::vector<Product>& products, int ranks)
    : impl_(new Impl{RankPool(ranks, plan_pool(ranks, true)),
                     std::vector<Impl::RankProducts>(static_cast<std::size_t>(ranks))}) {
  const int threads = impl_->pool.threads();
  impl_->pool.run_all([&](int r) {
    Impl::RankProducts& rank = impl_->ranks[static_cast<std::size_t>(r)];
    using Form = DnnlProduct::Form;
    std::map<Product, std::map<Form, std::shared_ptr<DnnlProduct>>> distinct;
    std::int64_t a = 0, b = 0, c = 0, scratch = 0;
    for (const Product& p : products) {
      if (p.batch * p.m * p.n * p.k == 0) continue;
      auto& forms = distinct[p];
      if (!forms.empty()) continue;
      a = std::max(a, p.batch * p.m * p.k);
      c = std::max(c, p.batch * p.m * p.n);
      for (const Form form : {Form::Plain, Form::Packed}) {
        std::shared_ptr<DnnlProduct> product = make(p, form, threads);
        if (product == nullptr) continue;
        b = std::max(b, (product->weight_bytes() + 3) / 4);
        scratch = std::max(scratch, product->scratch_bytes());
        forms[form] = std::move(product);
      }
      TESSERA_CHECK(!forms.empty(), "oneDNN has no product of {}x{}x{}", p.m, p.n, p.k);
    }
    rank.a = filled(a), rank.b = filled(b), rank.c = filled(c);
    rank.scratch = AlignedBuffer(static_cast<std::size_t>(scratch));
    std::map<Product, std::shared_ptr<DnnlProduct>> best;
    for (auto& [p, forms] : distinct) {
      double least = INFINITY;
      for (auto& [form, product] : forms) {
        double seconds = INFINITY;
        for (int i = 0; i < 3; ++i) seconds = std::min(seconds, rank.run(*product));
        if (seconds < least) best[p] = product;
        least = std::min(least, seconds);
      }
    }
    for (const Product& p : products)
      rank.list.emplace_back(best.count(p) != 0 ? best.at(p) : nullptr, p.times);
  });
}

BareProducts::~BareProducts() = default;

std::vector<Product> products_of(const Program& program, const Step& step) {
  if (!runs_op(step) || step.call.op->products == nullptr) return {};
  return step.call.op->products(largest_call(program, step));
}

std::vector<Product> products_of(const Program& program) {
  std::vector<Product> products;
  for (const Step& step : program.steps)
    for (const Product& p : products_of(program, step)) products.push_back(p);
  return products;
}

double BareProducts::run() {
  const std::vector<double> seconds = run_each();
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

std::vector<double> BareProducts::run_each() {
  std::vector<std::vector<double>> seconds(impl_->ranks.size());
  impl_->pool.run_all([&](int r) {
    Impl::RankProducts& rank = impl_->ranks[static_cast<std::size_t>(r)];
    for (const auto& [product, times] : rank.list)
      seconds[static_cast<std::size_t>(r)].push_back(product == nullptr ? 0 : times * rank.run(*product));
  });
  std::vector<double> mean(seconds[0].size());
  for (const std::vector<double>& of_rank : seconds)
    for (std::size_t p = 0; p < mean.size(); ++p) mean[p] += of_rank[p] / static_cast<double>(seconds.size());
  return mean;
}

}  // namespace tessera
