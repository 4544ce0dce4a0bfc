// One rank's part of a checkpoint: a safetensors file with one tensor for each block, hashed while it is
// written.
#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "base/box_runs.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "base/sha256.h"
#include "base/text.h"
#include "io/manifest.h"
#include "io/safetensors_header.h"

namespace tessera {
namespace {

// True if an exponent is all ones: a test on bits, which no compiler flag can remove.
template <typename Word>
bool has_nonfinite(const std::byte* data, std::size_t bytes, Word exponent) {
  bool found = false;
  for (std::size_t i = 0; i < bytes; i += sizeof(Word)) {
    Word word;
    std::memcpy(&word, data + i, sizeof(Word));
    found |= (word & exponent) == exponent;
  }
  return found;
}

bool all_finite(const std::byte* data, std::size_t bytes, DType type) {
  switch (type) {
    case DType::F32:
      return !has_nonfinite<std::uint32_t>(data, bytes, 0x7f800000u);
    case DType::F64:
      return !has_nonfinite<std::uint64_t>(data, bytes, 0x7ff0000000000000u);
    case DType::BF16:
      return !has_nonfinite<std::uint16_t>(data, bytes, 0x7f80u);
    case DType::I32:
    case DType::Bool:
      return true;
  }
  return true;
}

void check_source(const BlockSource& block) {
  TESSERA_CHECK(!block.name.empty() && block.name.size() <= 768 && is_utf8(block.name),
                "checkpoint: the tensor name '{}' must be UTF-8 of 1 to 768 bytes", printable(block.name));
  std::vector<std::int64_t> sizes;
  for (const Dim& dim : block.type.shape) sizes.push_back(dim.size);
  const Box whole{std::vector<std::int64_t>(sizes.size(), 0), sizes};
  const auto within = [](const Box& inner, const Box& outer) {
    return inner.size.size() == outer.size.size() && intersect(inner, outer) == inner;
  };
  TESSERA_CHECK(within(block.box, whole) && (block.box.empty() || within(block.box, block.data_box)),
                "checkpoint: the block {} of tensor '{}' does not lie in {} and in its buffer {}",
                to_string(block.box), printable(block.name), to_string(block.type),
                to_string(block.data_box));
}

class ShardWriter {
 public:
  ShardWriter(Vfs& vfs, const std::string& folder, const std::string& name)
      : file_(File::create(vfs, folder + "/" + name)) {
    report_.file.name = name;
  }

  ShardReport write(const std::vector<BlockSource>& blocks) {
    SafetensorsHeader header;
    for (const BlockSource& block : blocks) {
      header.tensors.push_back({block.name + to_string(block.box), block.type.dtype, block.box.size});
    }
    header.metadata["format"] = "tessera-shard";
    const std::string text = format_safetensors_header(header);
    report_.file.bytes = text.size() + header.data_bytes;
    file_.allocate(report_.file.bytes);
    piece_ = AlignedBuffer(std::min(header.data_bytes, kPieceBytes));
    put(text.data(), text.size());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      write_block(blocks[i]);
      TESSERA_ASSERT(at_ == text.size() + header.offset[i] + tensor_bytes(header.tensors[i]),
                     "shard out of step");
    }
    file_.sync();
    file_.close();
    report_.file.sha256 = sha_.hex();
    return std::move(report_);
  }

 private:
  void write_block(const BlockSource& block) {
    TensorRecord record{{block.name, block.type}, 0, {}};
    record.hash = box_hash(block.type, block.box, block.data, block.data_box);
    BlockRecord place;
    place.region.box = block.box;
    place.region.offset = at_;
    const std::size_t element = size_of(block.type.dtype);
    std::size_t filled = 0;
    const auto flush = [&] {
      if (filled == 0) return;
      report_.finite = report_.finite && all_finite(piece_.data(), filled, block.type.dtype);
      place.region.crc.push_back(crc32c(piece_.data(), filled));
      put(piece_.data(), filled);
      filled = 0;
    };
    const BoxRuns runs(block.data_box, block.box, block.box);
    runs.for_each([&](std::int64_t from, std::int64_t) {
      const auto* p = static_cast<const std::byte*>(block.data) + static_cast<std::size_t>(from) * element;
      std::size_t left = static_cast<std::size_t>(runs.length()) * element;
      while (left > 0) {
        const std::size_t n = std::min<std::size_t>(left, piece_.size() - filled);
        std::memcpy(piece_.data() + filled, p, n);
        filled += n;
        p += n;
        left -= n;
        if (filled == piece_.size()) flush();
      }
    });
    flush();
    record.blocks.push_back(std::move(place));
    report_.tensors.push_back(std::move(record));
  }

  void put(const void* data, std::size_t bytes) {
    sha_.update(data, bytes);
    file_.write_at(data, bytes, at_);
    at_ += bytes;
  }

  File file_;
  Sha256 sha_;
  std::uint64_t at_ = 0;
  AlignedBuffer piece_;  // the elements that are written together
  ShardReport report_;
};

}  // namespace

std::string write_shard(const std::string& folder, int rank, int ranks,
                        const std::vector<BlockSource>& blocks, Vfs* vfs) {
  TESSERA_CHECK(rank >= 0 && rank < ranks, "checkpoint: rank {} is not one of {}", rank, ranks);
  std::vector<BlockSource> sorted;
  for (const BlockSource& block : blocks) {
    check_source(block);
    if (!block.box.empty() || block.type.shape.elements() == 0) sorted.push_back(block);
  }
  // The wider types first: then every block is aligned to its elements.
  std::stable_sort(sorted.begin(), sorted.end(), [](const BlockSource& a, const BlockSource& b) {
    return size_of(a.type.dtype) > size_of(b.type.dtype);
  });
  const std::string name = fmt::format("shard-{:05}-of-{:05}.safetensors", rank, ranks);
  return format_report(ShardWriter(vfs ? *vfs : real_vfs(), folder, name).write(sorted));
}

}  // namespace tessera
