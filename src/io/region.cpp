// Reading boxes out of a box that lies in a file.
#include "io/region.h"

#include <algorithm>
#include <cstring>

#include "base/box_runs.h"
#include "base/crc32c.h"

namespace tessera {
namespace {

// Holds the piece that was read last. Runs come in the order of the file, so that each piece is read once.
class PieceReader {
 public:
  PieceReader(const File& file, const Region& region, std::size_t element,
              const std::function<void(std::uint64_t)>& damaged)
      : file_(file),
        region_(region),
        bytes_(region.bytes(element)),
        damaged_(damaged),
        buffer_(std::min(bytes_, kPieceBytes)) {}

  void copy(std::uint64_t from, char* to, std::uint64_t bytes) {
    while (bytes > 0) {
      load(from / kPieceBytes);
      const std::uint64_t within = from % kPieceBytes;
      const std::uint64_t n = std::min(bytes, kPieceBytes - within);
      std::memcpy(to, buffer_.data() + within, n);
      from += n;
      to += n;
      bytes -= n;
    }
  }

 private:
  void load(std::uint64_t piece) {
    if (piece == loaded_) return;
    const std::uint64_t begin = piece * kPieceBytes, n = std::min(kPieceBytes, bytes_ - begin);
    file_.read_at(buffer_.data(), n, region_.offset + begin);
    if (!region_.crc.empty() && crc32c(buffer_.data(), n) != region_.crc[piece]) damaged_(piece);
    loaded_ = piece;
  }

  const File& file_;
  const Region& region_;
  std::uint64_t bytes_;
  const std::function<void(std::uint64_t)>& damaged_;
  AlignedBuffer buffer_;
  std::uint64_t loaded_ = ~std::uint64_t{0};
};

}  // namespace

void read_region(const File& file, const Region& region, const Box& part, void* to, const Box& to_box,
                 std::size_t element, const std::function<void(std::uint64_t)>& damaged) {
  const BoxRuns runs(region.box, to_box, part);
  if (runs.length() == 0) return;
  PieceReader reader(file, region, element, damaged);
  const std::uint64_t run_bytes = static_cast<std::uint64_t>(runs.length()) * element;
  runs.for_each([&](std::int64_t from, std::int64_t write) {
    reader.copy(static_cast<std::uint64_t>(from) * element,
                static_cast<char*>(to) + static_cast<std::size_t>(write) * element, run_bytes);
  });
}

}  // namespace tessera
