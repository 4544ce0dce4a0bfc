// Reading safetensors files with pread: a file that somebody shortens meanwhile gives an error, not a signal.
#include <unordered_map>

#include "base/check.h"
#include "base/file.h"
#include "base/text.h"
#include "io/region.h"
#include "io/safetensors_header.h"
#include "tessera/safetensors.h"

namespace tessera {

struct SafetensorsReader::Impl {
  File file;
  SafetensorsHeader header;
  std::uint64_t data_begin = 0;
  std::unordered_map<std::string_view, std::size_t> index;  // views into header.tensors

  std::size_t at(std::string_view name) const {
    const auto found = index.find(name);
    TESSERA_CHECK(found != index.end(), "'{}' has no tensor '{}'", printable(file.path()), printable(name));
    return found->second;
  }
};

namespace {

// The header's text. Nothing is allocated before its length has been compared with the file and the limit.
std::string read_header(const File& file, std::uint64_t limit) {
  const auto reject = [&](std::string_view reason) {
    throw UserError(fmt::format("'{}' is not a valid safetensors file: {}", printable(file.path()), reason),
                    ExitCode::BadData);
  };
  const std::uint64_t file_bytes = file.size();
  if (file_bytes < 8)
    reject(fmt::format("it has {} bytes, fewer than the 8 of the header's length", file_bytes));
  std::uint64_t length = 0;
  file.read_at(&length, 8, 0);
  if (length > limit)
    reject(fmt::format("the header has {} bytes, more than the limit of {}", length, limit));
  if (length > file_bytes - 8) {
    reject(fmt::format("the header has {} bytes, but the file ends after {}", length, file_bytes - 8));
  }
  std::string text(length, '\0');
  file.read_at(text.data(), length, 8);
  if (text.empty() || text[0] != '{') reject("the header does not begin with '{'");
  return text;
}

}  // namespace

SafetensorsReader::SafetensorsReader(const std::string& path, const SafetensorsLimits& limits, Vfs* vfs) {
  File file = File::open(vfs ? *vfs : real_vfs(), path);
  const std::string text = read_header(file, limits.header_bytes);
  const std::uint64_t data_begin = 8 + text.size();
  SafetensorsHeader header = parse_safetensors_header(text, file.size() - data_begin, limits, path);
  impl_ = std::make_unique<Impl>(Impl{std::move(file), std::move(header), data_begin, {}});
  for (std::size_t i = 0; i < impl_->header.tensors.size(); ++i)
    impl_->index[impl_->header.tensors[i].name] = i;
}

SafetensorsReader::~SafetensorsReader() = default;
SafetensorsReader::SafetensorsReader(SafetensorsReader&&) noexcept = default;
SafetensorsReader& SafetensorsReader::operator=(SafetensorsReader&&) noexcept = default;

const std::vector<SafetensorsTensor>& SafetensorsReader::tensors() const {
  return impl_->header.tensors;
}

const SafetensorsTensor* SafetensorsReader::find(std::string_view name) const {
  const auto found = impl_->index.find(name);
  return found == impl_->index.end() ? nullptr : &impl_->header.tensors[found->second];
}

const std::map<std::string, std::string>& SafetensorsReader::metadata() const {
  return impl_->header.metadata;
}

void SafetensorsReader::read(std::string_view name, const Box& box, void* to) const {
  const std::size_t i = impl_->at(name);
  const SafetensorsTensor& tensor = impl_->header.tensors[i];
  const std::size_t rank = tensor.shape.size();
  const Region whole{
      Box{std::vector<std::int64_t>(rank, 0), tensor.shape}, impl_->data_begin + impl_->header.offset[i], {}};
  TESSERA_CHECK(box.size.size() == rank && intersect(box, whole.box) == box,
                "'{}': the box {} does not lie in tensor '{}' {}", printable(impl_->file.path()),
                to_string(box), printable(name), to_string(whole.box));
  read_region(impl_->file, whole, box, to, box, size_of(tensor.dtype), [](std::uint64_t) {});
  if (tensor.dtype != DType::Bool) return;
  for (std::int64_t e = 0; e < box.elements(); ++e) {
    if (static_cast<const unsigned char*>(to)[e] > 1) {
      throw UserError(fmt::format("'{}': tensor '{}' of type BOOL has a byte other than 0 and 1",
                                  printable(impl_->file.path()), printable(name)),
                      ExitCode::BadData);
    }
  }
}

}  // namespace tessera
