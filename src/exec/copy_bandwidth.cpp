#include "exec/copy_bandwidth.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/clock.h"
#include "exec/rank_pool.h"
#include "exec/team.h"

namespace tessera {
namespace {

// Of source and destination of all ranks together: twice the last cache, where the system tells its size.
std::int64_t footprint() {
  constexpr std::int64_t kLeast = std::int64_t{128} << 20, kMost = std::int64_t{1} << 30;
  return std::clamp<std::int64_t>(2 * sysconf(_SC_LEVEL3_CACHE_SIZE), kLeast, kMost);
}

}  // namespace

struct CopyBandwidth::Impl {
  struct Block {
    AlignedBuffer from, to;
  };

  RankPool pool;
  std::int64_t bytes;  // of a rank's source
  std::vector<Block> blocks;
};

CopyBandwidth::CopyBandwidth(int ranks)
    : impl_(new Impl{RankPool(ranks, plan_pool(ranks, true)),
                     std::max<std::int64_t>(std::int64_t{1} << 20, footprint() / (2 * ranks)),
                     std::vector<Impl::Block>(static_cast<std::size_t>(ranks))}) {
  impl_->pool.run_all([&](int r) {
    Impl::Block& block = impl_->blocks[static_cast<std::size_t>(r)];
    const auto bytes = static_cast<std::size_t>(impl_->bytes);
    block = {AlignedBuffer(bytes), AlignedBuffer(bytes)};
    std::memset(block.from.data(), 1, bytes);
    std::memset(block.to.data(), 2, bytes);
  });
}

CopyBandwidth::~CopyBandwidth() = default;

double CopyBandwidth::run() {
  std::vector<double> rates(impl_->blocks.size());
  const int parts = impl_->pool.threads();
  impl_->pool.run_all([&](int r) {
    Impl::Block& block = impl_->blocks[static_cast<std::size_t>(r)];
    const double begin = now();
    for_each_part(parts, [&](int part) {
      const std::int64_t first = impl_->bytes * part / parts, last = impl_->bytes * (part + 1) / parts;
      std::memcpy(block.to.as<char>() + first, block.from.as<char>() + first,
                  static_cast<std::size_t>(last - first));
    });
    rates[static_cast<std::size_t>(r)] = 2 * static_cast<double>(impl_->bytes) / (now() - begin);
  });
  return std::accumulate(rates.begin(), rates.end(), 0.0) / static_cast<double>(rates.size());
}

}  // namespace tessera
