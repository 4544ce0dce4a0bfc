// Hashes that do not depend on the layout: every element is hashed with its global position, and the hashes
// are added.
#include <algorithm>
#include <cstring>

#include "base/box_runs.h"
#include "base/check.h"
#include "base/philox.h"
#include "base/sha256.h"
#include "tessera/checkpoint.h"

namespace tessera {
namespace {

template <typename Word>
std::uint64_t hash_runs(const BoxRuns& runs, const void* data) {
  constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15ull;
  std::uint64_t sum = 0;
  runs.for_each([&](std::int64_t from, std::int64_t position) {
    const char* p = static_cast<const char*>(data) + static_cast<std::size_t>(from) * sizeof(Word);
    for (std::int64_t i = 0; i < runs.length(); ++i, p += sizeof(Word)) {
      Word word;
      std::memcpy(&word, p, sizeof(Word));
      sum += mix64(mix64(static_cast<std::uint64_t>(position + i) + kGolden) + word);
    }
  });
  return sum;
}

}  // namespace

std::uint64_t box_hash(const Type& type, const Box& box, const void* data, const Box& data_box) {
  Box whole;
  for (const Dim& dim : type.shape) {
    whole.start.push_back(0);
    whole.size.push_back(dim.size);
  }
  const BoxRuns runs(data_box, whole, box);
  switch (size_of(type.dtype)) {
    case 1:
      return hash_runs<std::uint8_t>(runs, data);
    case 2:
      return hash_runs<std::uint16_t>(runs, data);
    case 4:
      return hash_runs<std::uint32_t>(runs, data);
    default:
      return hash_runs<std::uint64_t>(runs, data);
  }
}

std::string state_hash(std::vector<TensorHash> tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorHash& a, const TensorHash& b) { return a.name < b.name; });
  Sha256 hash;
  for (const TensorHash& t : tensors) {
    const std::string line = fmt::format("{}\n{}\n{:016x}\n", t.name, to_string(t.type), t.hash);
    hash.update(line.data(), line.size());
  }
  return hash.hex();
}

}  // namespace tessera
