// Reading one checkpoint: by boxes, with every piece checked.
#include <algorithm>
#include <cerrno>
#include <set>

#include "base/check.h"
#include "base/sha256.h"
#include "base/text.h"
#include "io/checkpoint_files.h"
#include "io/manifest.h"
#include "io/slices.h"

namespace tessera {
namespace {

std::vector<std::int64_t> sizes_of(const Shape& shape) {
  std::vector<std::int64_t> sizes;
  for (const Dim& dim : shape) sizes.push_back(dim.size);
  return sizes;
}

[[noreturn]] void damaged(const std::string& path, std::string_view reason) {
  throw UserError(fmt::format("checkpoint '{}' is damaged: {}", printable(path), reason), ExitCode::BadData);
}

File open_sized(Vfs& vfs, const std::string& path, const FileRecord& record) {
  File file = [&] {
    try {
      return File::open(vfs, path + "/" + record.name);
    } catch (const Error& e) {
      damaged(path, e.what());
    }
  }();
  if (const std::uint64_t bytes = file.size(); bytes != record.bytes) {
    damaged(path, fmt::format("file '{}' has {} bytes instead of {}", record.name, bytes, record.bytes));
  }
  return file;
}

std::string hash_file(const File& file, std::uint64_t bytes) {
  AlignedBuffer piece(std::min(bytes, kPieceBytes));
  Sha256 hash;
  for (std::uint64_t at = 0; at < bytes; at += kPieceBytes) {
    const std::uint64_t n = std::min(kPieceBytes, bytes - at);
    file.read_at(piece.data(), n, at);
    hash.update(piece.data(), n);
  }
  return hash.hex();
}

}  // namespace

std::string read_manifest_text(Vfs& vfs, const std::string& path) {
  const std::string hash_path = path + "/" + kManifestHashName, manifest_path = path + "/" + kManifestName;
  std::string text, hash;
  FileInfo folder;
  if (vfs.info(path, folder) == -ENOENT)
    throw UserError(fmt::format("there is no checkpoint '{}'", printable(path)), ExitCode::BadData);
  try {
    hash = read_text(vfs, hash_path, 1024);
    text = read_text(vfs, manifest_path, kMostManifestBytes);
  } catch (const Error& e) {
    damaged(path, e.what());
  }
  if (hash != manifest_hash_line(text)) {
    damaged(path,
            fmt::format("'{}' does not have the hash that stands in '{}'", kManifestName, kManifestHashName));
  }
  return text;
}

std::string manifest_hash_line(std::string_view manifest) {
  return fmt::format("{}  {}\n", sha256_hex(manifest), kManifestName);
}

struct CheckpointReader::Impl {
  std::string path;
  Vfs& vfs;
  Manifest manifest;
  std::vector<File> files;
  std::string state;
  std::vector<TensorInfo> tensors;

  const TensorRecord* find(std::string_view name) const {
    const auto at =
        std::lower_bound(manifest.tensors.begin(), manifest.tensors.end(), name,
                         [](const TensorRecord& t, std::string_view n) { return t.info.name < n; });
    return at != manifest.tensors.end() && at->info.name == name ? &*at : nullptr;
  }

  void read_block(const TensorRecord& tensor, const BlockRecord& block, const Box& part, void* to,
                  const Box& to_box) const {
    const auto bad_piece = [&](std::uint64_t piece) {
      damaged(path, fmt::format("file '{}', block {} of tensor '{}', piece {}: the checksum is wrong",
                                manifest.files[block.file].name, to_string(block.region.box),
                                printable(tensor.info.name), piece));
    };
    read_region(files[block.file], block.region, part, to, to_box, size_of(tensor.info.type.dtype),
                bad_piece);
  }

  void verify_file(std::size_t f) const {
    const FileRecord& record = manifest.files[f];
    if (hash_file(files[f], record.bytes) == record.sha256) return;
    damaged(path, fmt::format("file '{}' does not have the hash that stands in the manifest", record.name));
  }

  void verify_names() const {
    std::set<std::string> known = {kManifestName, kManifestHashName, manifest.state.name};
    for (const FileRecord& file : manifest.files) known.insert(file.name);
    std::vector<std::string> names;
    if (const int error = vfs.list(path, names); error < 0) throw_file_error("list", path, error);
    for (const std::string& name : names) {
      if (!known.contains(name)) {
        damaged(path, fmt::format("file '{}' does not belong to it", printable(name)));
      }
    }
  }

  void verify_contents(const TensorRecord& tensor) const {
    constexpr std::int64_t kSliceBytes = 16 << 20;
    const auto element = static_cast<std::int64_t>(size_of(tensor.info.type.dtype));
    std::uint64_t hash = 0;
    for (const BlockRecord& block : tensor.blocks) {
      for_each_slice(block.region.box, kSliceBytes / element, [&](const Box& slice) {
        AlignedBuffer buffer(static_cast<std::size_t>(slice.elements() * element));
        read_block(tensor, block, slice, buffer.data(), slice);
        hash += box_hash(tensor.info.type, slice, buffer.data(), slice);
      });
    }
    if (hash != tensor.hash) {
      damaged(path, fmt::format("tensor '{}' does not have the hash that stands in the manifest",
                                printable(tensor.info.name)));
    }
  }
};

CheckpointReader::CheckpointReader(const std::string& path, const CheckpointReadOptions& options) {
  Vfs& vfs = options.vfs ? *options.vfs : real_vfs();
  Manifest manifest = parse_manifest(read_manifest_text(vfs, path), path + "/" + kManifestName);
  if (!manifest.finite && !options.allow_nonfinite) {
    throw UserError(
        fmt::format("checkpoint '{}' holds values that are not finite; allow them explicitly to load it",
                    printable(path)),
        ExitCode::BadData);
  }
  const File state_file = open_sized(vfs, path, manifest.state);
  std::string state(manifest.state.bytes, '\0');
  state_file.read_at(state.data(), state.size(), 0);
  if (sha256_hex(state) != manifest.state.sha256) {
    damaged(path, fmt::format("file '{}' does not have the hash that stands in the manifest", kStateName));
  }
  impl_ = std::make_unique<Impl>(Impl{path, vfs, std::move(manifest), {}, std::move(state), {}});
  for (const FileRecord& file : impl_->manifest.files) impl_->files.push_back(open_sized(vfs, path, file));
  for (const TensorRecord& tensor : impl_->manifest.tensors) impl_->tensors.push_back(tensor.info);
}

CheckpointReader::~CheckpointReader() = default;
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader& CheckpointReader::operator=(CheckpointReader&&) noexcept = default;

const std::string& CheckpointReader::path() const {
  return impl_->path;
}
std::int64_t CheckpointReader::step() const {
  return impl_->manifest.step;
}
const std::string& CheckpointReader::mesh() const {
  return impl_->manifest.mesh;
}
const std::string& CheckpointReader::layout() const {
  return impl_->manifest.layout;
}
bool CheckpointReader::finite() const {
  return impl_->manifest.finite;
}
const std::string& CheckpointReader::state() const {
  return impl_->state;
}
const std::vector<TensorInfo>& CheckpointReader::tensors() const {
  return impl_->tensors;
}

const TensorInfo* CheckpointReader::find(std::string_view name) const {
  const TensorRecord* record = impl_->find(name);
  return record ? &record->info : nullptr;
}

void CheckpointReader::check_tensors(const std::vector<TensorInfo>& wanted) const {
  constexpr std::size_t kMostLines = 20;
  std::vector<std::string> faults;
  std::set<std::string_view> names;
  for (const TensorInfo& want : wanted) {
    names.insert(want.name);
    const TensorInfo* have = find(want.name);
    if (!have) {
      faults.push_back(fmt::format("missing: {} {}", printable(want.name), to_string(want.type)));
    } else if (have->type != want.type) {
      faults.push_back(fmt::format("differs: {} is {} here, {} in the model", printable(want.name),
                                   to_string(have->type), to_string(want.type)));
    }
  }
  for (const TensorInfo& have : impl_->tensors) {
    if (!names.contains(have.name)) {
      faults.push_back(fmt::format("not in the model: {} {}", printable(have.name), to_string(have.type)));
    }
  }
  if (faults.empty()) return;
  std::string message = fmt::format(
      "checkpoint '{}' does not fit the model ({} differences):", printable(impl_->path), faults.size());
  for (std::size_t i = 0; i < std::min(faults.size(), kMostLines); ++i) message += "\n  " + faults[i];
  if (faults.size() > kMostLines) message += fmt::format("\n  and {} more", faults.size() - kMostLines);
  throw UserError(message, ExitCode::BadData);
}

void CheckpointReader::read(std::string_view name, const Box& box, void* to) const {
  const TensorRecord* tensor = impl_->find(name);
  if (!tensor) {
    throw UserError(
        fmt::format("checkpoint '{}' has no tensor '{}'", printable(impl_->path), printable(name)),
        ExitCode::BadData);
  }
  const std::vector<std::int64_t> sizes = sizes_of(tensor->info.type.shape);
  const Box whole{std::vector<std::int64_t>(sizes.size(), 0), sizes};
  TESSERA_CHECK(box.size.size() == sizes.size() && intersect(box, whole) == box,
                "checkpoint '{}': the box {} does not lie in tensor '{}' {}", printable(impl_->path),
                to_string(box), printable(name), to_string(whole));
  for (const BlockRecord& block : tensor->blocks) {
    const Box part = intersect(block.region.box, box);
    if (!part.empty()) impl_->read_block(*tensor, block, part, to, box);
  }
}

std::string CheckpointReader::state_hash() const {
  std::vector<TensorHash> hashes;
  for (const TensorRecord& t : impl_->manifest.tensors) hashes.push_back({t.info.name, t.info.type, t.hash});
  return tessera::state_hash(std::move(hashes));
}

std::vector<std::string> CheckpointReader::verify(VerifyDepth depth) const {
  std::vector<std::string> problems;
  const auto collect = [&](auto&& check) {
    try {
      check();
    } catch (const Error& e) {
      problems.push_back(e.what());
    }
  };
  for (std::size_t f = 0; f < impl_->files.size(); ++f) collect([&] { impl_->verify_file(f); });
  collect([&] { impl_->verify_names(); });
  // With a damaged file the contents would only say the same again.
  if (depth == VerifyDepth::Files || !problems.empty()) return problems;
  for (const TensorRecord& tensor : impl_->manifest.tensors) collect([&] { impl_->verify_contents(tensor); });
  return problems;
}

}  // namespace tessera
