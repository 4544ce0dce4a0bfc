// What all backends do with a plan before they use it.
#include "comm/communicator.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "comm/pieces.h"

namespace tessera {
namespace {

// FNV-1a over the parts of a plan that all members share.
class Hash {
 public:
  void add(std::uint64_t value) {
    for (int i = 0; i < 8; ++i) add_byte(static_cast<unsigned char>(value >> (8 * i)));
  }
  void add(const std::string& text) {
    for (char c : text) add_byte(static_cast<unsigned char>(c));
    add(text.size());
  }
  std::uint64_t value() const { return value_; }

 private:
  void add_byte(unsigned char byte) { value_ = (value_ ^ byte) * 1099511628211ull; }
  std::uint64_t value_ = 14695981039346656037ull;
};

std::uint64_t fingerprint_of(const CollectivePlan& plan) {
  Hash hash;
  hash.add(plan.kind);
  hash.add(plan.what);
  hash.add(static_cast<std::uint64_t>(plan.dtype));
  hash.add(static_cast<std::uint64_t>(plan.combine));
  hash.add(static_cast<std::uint64_t>(plan.bytes));
  for (const BucketPart& part : plan.parts) {
    hash.add(part.what);
    hash.add(static_cast<std::uint64_t>(part.dtype));
    hash.add(static_cast<std::uint64_t>(part.bytes));
  }
  hash.add(plan.parts.size());
  for (int member : plan.group) hash.add(static_cast<std::uint64_t>(member));
  return hash.value();
}

void check(const CollectivePlan& plan, int rank, int size) {
  const std::vector<int>& group = plan.group;
  TESSERA_ASSERT(std::is_sorted(group.begin(), group.end()) &&
                     std::adjacent_find(group.begin(), group.end()) == group.end(),
                 "{} of {}: the group {} is not ascending", plan.kind, plan.what, fmt::join(group, ","));
  TESSERA_ASSERT(
      std::binary_search(group.begin(), group.end(), rank) && group.front() >= 0 && group.back() < size,
      "{} of {}: rank {} of {} is not in the group {}", plan.kind, plan.what, rank, size,
      fmt::join(group, ","));
  for (const Piece& piece : plan.pieces) {
    TESSERA_ASSERT(!piece.sources.empty() && (plan.combine != Combine::None || piece.sources.size() == 1),
                   "{} of {}: a piece with {} sources", plan.kind, plan.what, piece.sources.size());
    for (int source : piece.sources)
      TESSERA_ASSERT(std::binary_search(group.begin(), group.end(), source),
                     "{} of {}: takes from rank {}, which is not in the group {}", plan.kind, plan.what,
                     source, fmt::join(group, ","));
    TESSERA_ASSERT(piece.part < std::max<std::size_t>(1, plan.parts.size()), "{} of {}: no part {}",
                   plan.kind, plan.what, piece.part);
  }
}

// Small reductions are read whole by everyone.
constexpr std::int64_t kSmallBytes = 16 * 1024;

bool is_whole(const Piece& piece, const std::vector<int>& group) {
  return piece.sources == group && piece.from == 0 && piece.to == 0 && is_contiguous(piece);
}

// Of a bucket also what is small: its results may lie where its inputs are, without another meeting.
bool is_in_slices(const CollectivePlan& plan) {
  const bool bucket = !plan.parts.empty();
  if (plan.kind != "all_reduce" || plan.pieces.empty() || (!bucket && plan.pieces.size() > 1)) return false;
  const bool whole = std::all_of(plan.pieces.begin(), plan.pieces.end(),
                                 [&](const Piece& piece) { return is_whole(piece, plan.group); });
  const auto size = static_cast<std::int64_t>(size_of(plan.dtype));
  return whole && (bucket || elements(plan.pieces[0]) * size > kSmallBytes);
}

}  // namespace

std::string PreparedCollective::text() const {
  std::vector<std::string> whats;
  std::set<std::string> dtypes;
  for (const BucketPart& part : plan.parts) {
    whats.push_back(part.what);
    dtypes.insert(to_string(part.dtype));
  }
  if (plan.parts.empty()) whats = {plan.what}, dtypes = {to_string(plan.dtype)};
  return fmt::format("{} of {}, {} bytes of {} over ranks {}", plan.kind, fmt::join(whats, ", "), plan.bytes,
                     fmt::join(dtypes, ", "), fmt::join(plan.group, ","));
}

std::unique_ptr<PreparedCollective> prepare_collective(CollectivePlan plan, int rank, int size) {
  check(plan, rank, size);
  std::erase_if(plan.pieces, is_empty);
  for (Piece& piece : plan.pieces) simplify(piece);
  auto prepared = std::make_unique<PreparedCollective>();
  prepared->fingerprint = fingerprint_of(plan);
  prepared->in_slices = is_in_slices(plan);
  prepared->plan = std::move(plan);
  return prepared;
}

}  // namespace tessera
