// The file system of the machine.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/file.h"

namespace tessera {
namespace {

template <typename T>
T result(T value) {
  return value < 0 ? static_cast<T>(-errno) : value;
}

FileInfo describe(const struct stat& status) {
  return {S_ISREG(status.st_mode), S_ISDIR(status.st_mode), static_cast<std::uint64_t>(status.st_size)};
}

class RealVfs final : public Vfs {
 public:
  int open_to_read(const std::string& path) override {
    return result(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  }
  int create(const std::string& path) override {
    return result(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
  }
  int lock(const std::string& path) override {
    const int file = result(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (file < 0) return file;
    if (::flock(file, LOCK_EX | LOCK_NB) < 0 || ::ftruncate(file, 0) < 0) {
      const int error = -errno;
      ::close(file);
      return error;
    }
    return file;
  }
  std::int64_t read_at(int file, void* to, std::size_t bytes, std::uint64_t offset) override {
    return result(static_cast<std::int64_t>(::pread(file, to, bytes, static_cast<off_t>(offset))));
  }
  std::int64_t write_at(int file, const void* from, std::size_t bytes, std::uint64_t offset) override {
    return result(static_cast<std::int64_t>(::pwrite(file, from, bytes, static_cast<off_t>(offset))));
  }
  int allocate(int file, std::uint64_t bytes) override {
    const int error = result(::fallocate(file, 0, 0, static_cast<off_t>(bytes)));
    return error == -EOPNOTSUPP || error == -ENOSYS ? 0 : error;
  }
  int sync(int file) override { return result(::fsync(file)); }
  int close(int file) override { return result(::close(file)); }
  int info(int file, FileInfo& info) override {
    struct stat status;
    if (::fstat(file, &status) < 0) return -errno;
    info = describe(status);
    return 0;
  }
  int info(const std::string& path, FileInfo& info) override {
    struct stat status;
    if (::lstat(path.c_str(), &status) < 0) return -errno;
    info = describe(status);
    return 0;
  }
  int sync_folder(const std::string& path) override {
    const int folder = result(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder < 0) return folder;
    const int error = result(::fsync(folder));
    ::close(folder);
    return error;
  }
  int rename(const std::string& from, const std::string& to) override {
    return result(::rename(from.c_str(), to.c_str()));
  }
  int rename_new(const std::string& from, const std::string& to) override {
    const int error = result(::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE));
    if (error != -EINVAL && error != -ENOSYS) return error;
    // File systems without the flag, NFS for one: the callers hold a lock, so that looking first is enough.
    FileInfo existing;
    return info(to, existing) == 0 ? -EEXIST : rename(from, to);
  }
  int exchange(const std::string& a, const std::string& b) override {
    return result(::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE));
  }
  int remove_file(const std::string& path) override { return result(::unlink(path.c_str())); }
  int remove_folder(const std::string& path) override { return result(::rmdir(path.c_str())); }
  int make_folder(const std::string& path) override { return result(::mkdir(path.c_str(), 0755)); }
  int list(const std::string& path, std::vector<std::string>& names) override {
    DIR* folder = ::opendir(path.c_str());
    if (!folder) return -errno;
    names.clear();
    errno = 0;
    while (const dirent* entry = ::readdir(folder)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    const int error = -errno;
    ::closedir(folder);
    std::sort(names.begin(), names.end());
    return error;
  }
  int free_bytes(const std::string& path, std::uint64_t& bytes) override {
    struct statvfs status;
    if (::statvfs(path.c_str(), &status) < 0) return -errno;
    bytes = static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize;
    return 0;
  }
};

}  // namespace

Vfs& real_vfs() {
  static RealVfs vfs;
  return vfs;
}

}  // namespace tessera
