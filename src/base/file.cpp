// Files that close themselves and report failures with their path.
#include "base/file.h"

#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace tessera {

void throw_file_error(std::string_view what, const std::string& path, int error) {
  throw SystemError(fmt::format("cannot {} '{}': {}", what, printable(path),
                                std::generic_category().message(std::abs(error))));
}

void write_fully(Vfs& vfs, int handle, const std::string& path, const void* from, std::size_t bytes,
                 std::uint64_t offset) {
  const auto* p = static_cast<const char*>(from);
  while (bytes > 0) {
    const std::int64_t n = vfs.write_at(handle, p, bytes, offset);
    if (n == -EINTR) continue;
    if (n <= 0) throw_file_error("write", path, n == 0 ? ENOSPC : static_cast<int>(n));
    p += n;
    bytes -= static_cast<std::size_t>(n);
    offset += static_cast<std::uint64_t>(n);
  }
}

File File::open(Vfs& vfs, const std::string& path) {
  const int handle = vfs.open_to_read(path);
  if (handle < 0) throw_file_error("open", path, handle);
  File file(vfs, path, handle);
  FileInfo info;
  if (const int error = vfs.info(handle, info); error < 0) throw_file_error("examine", path, error);
  if (!info.regular)
    throw UserError(fmt::format("'{}' is not a regular file", printable(path)), ExitCode::BadData);
  return file;
}

File File::create(Vfs& vfs, const std::string& path) {
  const int handle = vfs.create(path);
  if (handle < 0) throw_file_error("create", path, handle);
  return File(vfs, path, handle);
}

File::File(File&& other) noexcept
    : vfs_(other.vfs_), path_(std::move(other.path_)), handle_(std::exchange(other.handle_, -1)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(vfs_, other.vfs_);
  std::swap(path_, other.path_);
  std::swap(handle_, other.handle_);
  return *this;
}

File::~File() {
  if (handle_ >= 0) vfs_->close(handle_);
}

std::uint64_t File::size() const {
  FileInfo info;
  if (const int error = vfs_->info(handle_, info); error < 0) throw_file_error("examine", path_, error);
  return info.bytes;
}

void File::read_at(void* to, std::size_t bytes, std::uint64_t offset) const {
  auto* p = static_cast<char*>(to);
  while (bytes > 0) {
    const std::int64_t n = vfs_->read_at(handle_, p, bytes, offset);
    if (n == -EINTR) continue;
    if (n < 0) throw_file_error("read", path_, static_cast<int>(n));
    if (n == 0) {
      throw UserError(fmt::format("'{}' ends at byte {} while being read", printable(path_), offset),
                      ExitCode::BadData);
    }
    p += n;
    bytes -= static_cast<std::size_t>(n);
    offset += static_cast<std::uint64_t>(n);
  }
}

void File::write_at(const void* from, std::size_t bytes, std::uint64_t offset) {
  write_fully(*vfs_, handle_, path_, from, bytes, offset);
}

void File::allocate(std::uint64_t bytes) {
  if (bytes == 0) return;
  int error = 0;
  while ((error = vfs_->allocate(handle_, bytes)) == -EINTR) {
  }
  if (error < 0) throw_file_error(fmt::format("reserve {} bytes for", bytes), path_, error);
}

void File::sync() {
  // Not repeated after a failure, EINTR included: the kernel may have dropped the data and forgotten the
  // error.
  if (const int error = vfs_->sync(handle_); error < 0) throw_file_error("sync", path_, error);
}

void File::close() {
  const int error = vfs_->close(std::exchange(handle_, -1));
  if (error < 0 && error != -EINTR) throw_file_error("close", path_, error);
}

std::string read_text(Vfs& vfs, const std::string& path, std::uint64_t limit) {
  const File file = File::open(vfs, path);
  const std::uint64_t bytes = file.size();
  if (bytes > limit) {
    throw UserError(fmt::format("'{}' has {} bytes; at most {} are allowed", printable(path), bytes, limit),
                    ExitCode::BadData);
  }
  std::string text(bytes, '\0');
  file.read_at(text.data(), bytes, 0);
  return text;
}

void write_new_file(Vfs& vfs, const std::string& path, std::string_view text) {
  File file = File::create(vfs, path);
  file.write_at(text.data(), text.size(), 0);
  file.sync();
  file.close();
}

std::string parent_folder(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

void make_folder(Vfs& vfs, const std::string& path) {
  if (const int error = vfs.make_folder(path); error < 0) throw_file_error("make the folder", path, error);
}

void sync_folder(Vfs& vfs, const std::string& path) {
  if (const int error = vfs.sync_folder(path); error < 0) throw_file_error("sync the folder", path, error);
}

int remove_tree(Vfs& vfs, const std::string& path) {
  FileInfo info;
  if (const int error = vfs.info(path, info); error < 0) return error;
  if (!info.folder) return vfs.remove_file(path);
  std::vector<std::string> names;
  int first_error = vfs.list(path, names);
  for (const std::string& name : names) {
    const int error = remove_tree(vfs, path + "/" + name);
    if (first_error == 0) first_error = error;
  }
  const int error = vfs.remove_folder(path);
  return first_error != 0 ? first_error : error;
}

}  // namespace tessera
