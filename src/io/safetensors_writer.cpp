// Writing safetensors files by boxes, under a temporary name until they are whole.
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "base/box_runs.h"
#include "base/check.h"
#include "base/file.h"
#include "base/text.h"
#include "io/safetensors_header.h"
#include "io/tiling.h"
#include "tessera/safetensors.h"

namespace tessera {
namespace {

Box whole_box(const SafetensorsTensor& tensor) {
  return {std::vector<std::int64_t>(tensor.shape.size(), 0), tensor.shape};
}

}  // namespace

struct SafetensorsWriter::Impl {
  Vfs& vfs;
  std::string path;
  std::string temporary;
  SafetensorsHeader header;
  std::uint64_t data_begin = 0;
  std::unordered_map<std::string_view, std::size_t> index;  // views into header.tensors
  std::vector<std::vector<Box>> written;
  std::optional<File> file;  // empty once closed
  bool in_place = false;

  ~Impl() {
    if (in_place) return;
    file.reset();
    vfs.remove_file(temporary);
  }
};

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<SafetensorsTensor> tensors,
                                     const std::map<std::string, std::string>& metadata, Vfs* vfs) {
  // The wider types first: then every tensor is aligned to its elements.
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
                     return size_of(a.dtype) > size_of(b.dtype);
                   });
  SafetensorsHeader header{std::move(tensors), {}, metadata, 0};
  const std::string text = format_safetensors_header(header);
  // The reader's checks, so that nothing is written which cannot be read.
  parse_safetensors_header(std::string_view(text).substr(8), header.data_bytes, {}, path);

  Vfs& files = vfs ? *vfs : real_vfs();
  std::string temporary = fmt::format("{}.tmp-{}", path, ::getpid());
  files.remove_file(temporary);  // of an earlier process with this number
  File file = File::create(files, temporary);
  impl_.reset(
      new Impl{files, path, std::move(temporary), std::move(header), text.size(), {}, {}, std::move(file)});
  impl_->file->allocate(text.size() + impl_->header.data_bytes);
  impl_->file->write_at(text.data(), text.size(), 0);
  impl_->written.resize(impl_->header.tensors.size());
  for (std::size_t i = 0; i < impl_->header.tensors.size(); ++i)
    impl_->index[impl_->header.tensors[i].name] = i;
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::write(std::string_view name, const Box& box, const void* data) {
  const auto found = impl_->index.find(name);
  TESSERA_CHECK(found != impl_->index.end() && impl_->file,
                "'{}': tensor '{}' was not announced, or the file is closed", printable(impl_->path),
                printable(name));
  const SafetensorsTensor& tensor = impl_->header.tensors[found->second];
  const Box whole = whole_box(tensor);
  TESSERA_CHECK(box.size.size() == whole.size.size() && intersect(box, whole) == box,
                "'{}': the box {} does not lie in tensor '{}' {}", printable(impl_->path), to_string(box),
                printable(name), to_string(whole));
  const std::size_t element = size_of(tensor.dtype);
  const std::uint64_t begin = impl_->data_begin + impl_->header.offset[found->second];
  const BoxRuns runs(box, whole, box);
  runs.for_each([&](std::int64_t from, std::int64_t to) {
    impl_->file->write_at(static_cast<const char*>(data) + static_cast<std::size_t>(from) * element,
                          static_cast<std::size_t>(runs.length()) * element,
                          begin + static_cast<std::uint64_t>(to) * element);
  });
  impl_->written[found->second].push_back(box);
}

void SafetensorsWriter::close() {
  for (std::size_t i = 0; i < impl_->written.size(); ++i) {
    const SafetensorsTensor& tensor = impl_->header.tensors[i];
    const std::string fault = tiling_fault(tensor.shape, impl_->written[i]);
    TESSERA_CHECK(fault.empty(), "'{}': tensor '{}': {}", printable(impl_->path), printable(tensor.name),
                  fault);
  }
  impl_->file->sync();
  impl_->file->close();
  impl_->file.reset();
  if (const int error = impl_->vfs.rename(impl_->temporary, impl_->path); error < 0) {
    throw_file_error("rename the finished file to", impl_->path, error);
  }
  impl_->in_place = true;
  sync_folder(impl_->vfs, parent_folder(impl_->path));
}

}  // namespace tessera
