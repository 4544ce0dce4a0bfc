// One item of blockwise attention: loading of blocks, who sees whom, logits, dropout. Included once per
// vector target.
#if defined(TESSERA_EXEC_CPU_ATTENTION_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_EXEC_CPU_ATTENTION_INL_H
#undef TESSERA_EXEC_CPU_ATTENTION_INL_H
#else
#define TESSERA_EXEC_CPU_ATTENTION_INL_H
#endif

#include <algorithm>
#include <limits>

#include "base/philox-inl.h"
#include "exec/cpu/attention_blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {

static_assert(kHalfColumns == 2 * kVector && kHalfColumns <= kAttentionMaskColumns);

inline bool contains(const AttentionExtremes& x, std::int32_t segment) {
  return x.segment_low <= segment && segment <= x.segment_high;
}

template <class T>
class AttentionItem {
 public:
  AttentionItem(const AttentionPlan& plan, const AttentionRun& run, std::int64_t item, float* scratch)
      : plan_(plan),
        run_(run),
        layout_(plan.memory, plan.features, plan.distances, plan.backward, plan.drops()),
        scratch_(scratch),
        width_(layout_.width),
        mask_first_(run.first),
        mask_keys_(run.key) {
    for (std::size_t d = plan.dims.size(); d-- > 0; item /= plan.dims[d].count) {
      const std::int64_t i = item % plan.dims[d].count;
      for (std::size_t o = 0; o < offset_.size(); ++o) offset_[o] += i * plan.dims[d].step[o];
      mask_first_ += i * run.dim_step[d];
    }
    if (!has(kBias)) return;
    const float* bias = at<float>(kBias);
    for (std::int64_t i = 0; i < plan.distances; ++i) part(layout_.bias)[i] = bias[i * step(kBias).feature];
  }

 protected:
  bool has(AttentionOperand o) const { return run_.data[o] != nullptr; }
  const AttentionPlan::Step& step(AttentionOperand o) const { return plan_.step[o]; }
  template <class E = T>
  E* at(AttentionOperand o) const {
    return reinterpret_cast<E*>(run_.data[o]) + offset_[o];
  }
  float* part(std::int64_t offset) const { return scratch_ + offset; }
  // Row `r` of the memory in a part of the scratch.
  float* memory_row(std::int64_t offset, std::int64_t r) const { return scratch_ + offset + r * width_; }
  AttentionExtremes* extremes() const { return reinterpret_cast<AttentionExtremes*>(part(layout_.extremes)); }
  std::int32_t number(AttentionOperand o, std::int64_t i) const {
    return at<std::int32_t>(o)[i * step(o).row];
  }
  // Positions in a block of the memory.
  int memory_in(std::int64_t b) const {
    return static_cast<int>(std::min<std::int64_t>(kBlock, plan_.memory - b * kBlock));
  }

  // Prepares the blocks [begin, end) of the memory.
  void look_at_memory(std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b)
      extremes()[b] = extremes_of(kMemoryPositions, kMemorySegments, b * kBlock, memory_in(b));
  }

  // Keys and values of a block of the memory.
  void load_memory(std::int64_t b) {
    if (extremes()[b].loaded) return;
    const std::int64_t first = b * kBlock;
    for (const auto& [o, to] : {std::pair(kK, layout_.k), std::pair(kV, layout_.v)}) {
      load_rows(at(o) + first * step(o).row, step(o), memory_in(b), rounded_up(memory_in(b), kTileRows),
                plan_.features, width_, 1, memory_row(to, first));
    }
    extremes()[b].loaded = true;
  }

  // Queries of block `b`, times the scale, as rows and as columns.
  void load_queries(std::int64_t b) {
    first_query_ = b * kBlock;
    queries_ = static_cast<int>(std::min<std::int64_t>(kBlock, plan_.queries - first_query_));
    load_query_rows(kQ, plan_.scale, layout_.q, layout_.q_columns);
    const auto load_numbers = [&](AttentionOperand o, std::int32_t* to) {
      for (int i = 0; has(o) && i < kBlock; ++i) to[i] = i < queries_ ? number(o, first_query_ + i) : 0;
    };
    load_numbers(kQueryPositions, positions_);
    load_numbers(kQuerySegments, segments_);
    for (int p = 0; p * kPanel < queries_; ++p) {
      const int count = std::min(kPanel, queries_ - p * kPanel);
      panel_[p] = extremes_of(kQueryPositions, kQuerySegments, first_query_ + p * kPanel, count);
    }
    all_ = extremes_of(kQueryPositions, kQuerySegments, first_query_, queries_);
  }

  // Rows of the block of queries, and the same as columns.
  void load_query_rows(AttentionOperand o, float factor, std::int64_t rows, std::int64_t columns) {
    const int padded = rounded_up(queries_, kPanel);
    load_rows(at(o) + first_query_ * step(o).row, step(o), queries_, padded, plan_.features, width_, factor,
              part(rows));
    transpose_block(part(rows), padded, width_, part(columns));
  }

  // False when the block of queries sees nothing of block `b` of the memory.
  bool meet(std::int64_t b, BlockPair& pair) const {
    const AttentionExtremes& memory = extremes()[b];
    if (memory.all_padding) return false;
    bool masked = memory.some_padding;
    if (plan_.causal) {
      if (all_.position_high < memory.position_low) return false;
      masked = masked || all_.position_low < memory.position_high;
    }
    if (has(kQuerySegments)) {
      if (all_.segment_high < memory.segment_low || all_.segment_low > memory.segment_high) return false;
      masked = masked || std::min(all_.segment_low, memory.segment_low) !=
                             std::max(all_.segment_high, memory.segment_high);
    }
    pair.block = b;
    pair.first = b * kBlock;
    pair.queries = queries_;
    pair.memory = memory_in(b);
    pair.panels = (queries_ + kPanel - 1) / kPanel;
    pair.masked = masked;
    for (int p = 0; p < pair.panels; ++p) pair.seen[p] = {0, pair.memory};
    return !masked || narrow(pair);
  }

  // The logits of a pair into a tile; minus infinity where a query does not see.
  void logits(const BlockPair& pair, float* tile) const {
    products(pair, layout_.k, part(layout_.q_columns), tile);
    if (has(kBias)) add_bias(pair, tile);
    if (pair.masked) hide(pair, tile);
  }

  // tile[m][q] = row m of the memory part times column q.
  void products(const BlockPair& pair, std::int64_t rows, const float* columns, float* tile) const {
    const int features = static_cast<int>(plan_.features);
    for (int q = 0; q < pair.panels * kPanel; q += kTileColumns<float>) {
      const Range seen = pair.seen[q / kPanel];
      if (seen.empty()) continue;
      for (int m = seen.begin / kTileRows * kTileRows; m < seen.end; m += kTileRows) {
        tile_at<TileForm::Rows>(memory_row(rows, pair.first + m), width_, columns + q, kBlock,
                                tile + m * kBlock + q, kBlock, features, false);
      }
    }
  }

  // sums[q] += the tile's column q times the rows of the memory part.
  void add_products(const BlockPair& pair, const float* tile, std::int64_t rows, float* sums) const {
    for (std::int64_t d = 0; d < plan_.features; d += kTileColumns<float>) {
      for (int q = 0; q < pair.queries; q += kTileRows) {
        const Range seen = pair.memory_seen(q, q + kTileRows);
        if (seen.empty()) continue;
        tile_at<TileForm::Columns>(tile + seen.begin * kBlock + q, kBlock,
                                   memory_row(rows, pair.first + seen.begin) + d, width_,
                                   sums + q * width_ + d, width_, seen.size(), true);
      }
    }
  }

  // Zeros at what `seen` leaves out, so that whole blocks can be multiplied.
  static void clear_unseen(const BlockPair& pair, float* tile) {
    if (!pair.masked) return;
    for (int p = 0; p < pair.panels; ++p) {
      const Range& seen = pair.seen[p];
      for (int m = 0; m < pair.memory; ++m) {
        if (m >= seen.begin && m < seen.end) continue;
        std::fill_n(tile + m * kBlock + p * kPanel, kPanel, 0.0F);
      }
    }
  }

  // The index of the bias for memory position `at` and queries [q, q + kVector).
  auto distances_at(std::int32_t at, int q) const {
    namespace hn = hwy::HWY_NAMESPACE;
    const IntTag di;
    const auto reach = static_cast<std::int32_t>(plan_.distances / 2);
    const auto distance = hn::Sub(hn::Set(di, at), hn::Load(di, positions_ + q));
    return hn::Add(hn::Max(hn::Min(distance, hn::Set(di, reach)), hn::Set(di, -reach)), hn::Set(di, reach));
  }

  // The bias's index that all of a pair share, or -1.
  std::int64_t common_distance(const BlockPair& pair) const {
    const AttentionExtremes& memory = extremes()[pair.block];
    const std::int64_t reach = plan_.distances / 2;
    if (std::int64_t{memory.position_low} - all_.position_high >= reach) return 2 * reach;
    return std::int64_t{memory.position_high} - all_.position_low <= -reach ? 0 : -1;
  }

  // The half-words of the dropout mask for two vectors of queries: of memory position m at(m).
  struct MaskColumns {
    const std::uint16_t* halves;
    int pitch;

    const std::uint16_t* at(int m) const { return halves + m * pitch; }
  };

  // Draws them for queries [q, q + 2 kVector) of the pair and memory positions `seen`. Columns of queries
  // that share one mask are drawn for the first queries of a pair; call for these first.
  MaskColumns draw(const BlockPair& pair, Range seen, int q) const {
    auto* tile = reinterpret_cast<std::uint16_t*>(part(layout_.mask));
    constexpr int kPitch = static_cast<int>(kHalfColumns);
    const MaskColumns columns{tile, run_.memory_step == 0 ? 0 : kPitch};
    if (run_.query_step == 0) seen = q == 0 ? Range{0, pair.memory} : Range{};
    if (seen.empty()) return columns;
    const int from = seen.begin / 8 * 8;  // rows that begin with a counter stay aligned
    std::uint64_t first[kHalfColumns];
    for (int i = 0; i < kPitch; ++i) {
      first[i] = static_cast<std::uint64_t>(mask_first_ + (pair.first + from) * run_.memory_step +
                                            (first_query_ + q + i) * run_.query_step);
    }
    if (run_.memory_step == 0) {
      philox_half_columns(mask_keys_, first, 1, tile);
    } else {
      philox_half_columns(mask_keys_, first, static_cast<std::size_t>(seen.end - from), tile + from * kPitch);
    }
    return columns;
  }

  // Lanes of weights that are kept.
  auto kept(const std::uint16_t* halves) const {
    return kept_halves(FloatTag(), halves, plan_.dropout.dropped);
  }

  const AttentionPlan& plan_;
  const AttentionRun& run_;
  const AttentionScratch layout_;
  float* scratch_;
  std::int64_t width_;
  std::int64_t first_query_ = 0;
  int queries_ = 0;
  alignas(64) std::int32_t positions_[kBlock] = {}, segments_[kBlock] = {};  // of the block of queries

 private:
  AttentionExtremes extremes_of(AttentionOperand positions, AttentionOperand segments, std::int64_t first,
                                std::int64_t count) const {
    constexpr std::int32_t kLow = std::numeric_limits<std::int32_t>::min(),
                           kHigh = std::numeric_limits<std::int32_t>::max();
    AttentionExtremes x{kHigh, kLow, kHigh, kLow, false, false, false};
    const bool ids = positions == kMemoryPositions && has(kMemoryIds);
    std::int64_t padding = 0;
    for (std::int64_t i = first; i < first + count; ++i) {
      if (has(positions)) {
        x.position_low = std::min(x.position_low, number(positions, i));
        x.position_high = std::max(x.position_high, number(positions, i));
      }
      if (has(segments)) {
        x.segment_low = std::min(x.segment_low, number(segments, i));
        x.segment_high = std::max(x.segment_high, number(segments, i));
      }
      if (ids && number(kMemoryIds, i) == 0) ++padding;
    }
    x.some_padding = padding > 0, x.all_padding = padding == count;
    return x;
  }

  bool may_see(const AttentionExtremes& queries, std::int64_t m) const {
    if (plan_.causal && queries.position_high < number(kMemoryPositions, m)) return false;
    if (has(kQuerySegments) && !contains(queries, number(kMemorySegments, m))) return false;
    return !has(kMemoryIds) || number(kMemoryIds, m) != 0;
  }

  // Finds what each panel may see; false when that is nothing.
  bool narrow(BlockPair& pair) const {
    bool any = false;
    for (int p = 0; p < pair.panels; ++p) {
      Range& seen = pair.seen[p];
      while (!seen.empty() && !may_see(panel_[p], pair.first + seen.begin)) ++seen.begin;
      while (!seen.empty() && !may_see(panel_[p], pair.first + seen.end - 1)) --seen.end;
      any = any || !seen.empty();
    }
    return any;
  }

  // Calls f(address in the tile, memory position, query) for every vector of what the pair sees.
  template <class F>
  void for_each_vector(const BlockPair& pair, float* tile, F f) const {
    for (int p = 0; p < pair.panels; ++p) {
      for (int m = pair.seen[p].begin; m < pair.seen[p].end; ++m) {
        for (int q = p * kPanel; q < (p + 1) * kPanel; q += kVector)
          f(tile + m * kBlock + q, pair.first + m, q);
      }
    }
  }

  void add_bias(const BlockPair& pair, float* tile) const {
    namespace hn = hwy::HWY_NAMESPACE;
    const FloatTag d;
    const float* bias = part(layout_.bias);
    const std::int64_t common = common_distance(pair);
    for_each_vector(pair, tile, [&](float* to, std::int64_t m, int q) HWY_ATTR {
      const auto term = common >= 0 ? hn::Set(d, bias[common])
                                    : hn::GatherIndex(d, bias, distances_at(number(kMemoryPositions, m), q));
      hn::Store(hn::Add(hn::Load(d, to), term), d, to);
    });
  }

  void hide(const BlockPair& pair, float* tile) const {
    namespace hn = hwy::HWY_NAMESPACE;
    const FloatTag d;
    const IntTag di;
    const auto hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
    for_each_vector(pair, tile, [&](float* to, std::int64_t m, int q) HWY_ATTR {
      auto x = hn::Load(d, to);
      if (plan_.causal) {
        const auto later = hn::Lt(hn::Load(di, positions_ + q), hn::Set(di, number(kMemoryPositions, m)));
        x = hn::IfThenElse(hn::RebindMask(d, later), hidden, x);
      }
      if (has(kQuerySegments)) {
        const auto same = hn::Eq(hn::Load(di, segments_ + q), hn::Set(di, number(kMemorySegments, m)));
        x = hn::IfThenElse(hn::RebindMask(d, same), x, hidden);
      }
      if (has(kMemoryIds) && number(kMemoryIds, m) == 0) x = hidden;
      hn::Store(x, d, to);
    });
  }

  PerOperand<std::int64_t> offset_{};
  std::int64_t mask_first_;
  PhiloxKeys mask_keys_;
  AttentionExtremes panel_[kPanels] = {}, all_{};  // of panels and of the whole block of queries
};

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#endif
