// Files behind an interface, so that tests can fail any call, stop the process at it, or cut the power. Above
// it: a file that closes itself, loops over short reads and writes, and throws SystemError with path and
// reason.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct FileInfo {
  bool regular = false;
  bool folder = false;
  std::uint64_t bytes = 0;
};

// One system call each. The results are those of the call, with -errno for a failure. Any thread.
class Vfs {
 public:
  virtual ~Vfs() = default;
  // Neither follows a symbolic link in the last part of the path, nor waits for the other end of a FIFO.
  virtual int open_to_read(const std::string& path) = 0;
  virtual int create(const std::string& path) = 0;  // to write; -EEXIST when there is one
  // Opens or makes the file, takes an exclusive advisory lock that ends with the process or with close, and
  // empties the file. -EWOULDBLOCK when another one holds it.
  virtual int lock(const std::string& path) = 0;
  virtual std::int64_t read_at(int file, void* to, std::size_t bytes, std::uint64_t offset) = 0;
  virtual std::int64_t write_at(int file, const void* from, std::size_t bytes, std::uint64_t offset) = 0;
  virtual int allocate(int file, std::uint64_t bytes) = 0;  // reserves room; 0 where the file system cannot
  virtual int sync(int file) = 0;
  virtual int close(int file) = 0;
  virtual int info(int file, FileInfo& info) = 0;
  virtual int info(const std::string& path,
                   FileInfo& info) = 0;  // of a link itself: neither regular nor folder
  virtual int sync_folder(const std::string& path) = 0;
  virtual int rename(const std::string& from, const std::string& to) = 0;      // replaces a file
  virtual int rename_new(const std::string& from, const std::string& to) = 0;  // -EEXIST when there is one
  virtual int exchange(const std::string& a, const std::string& b) = 0;        // both at once
  virtual int remove_file(const std::string& path) = 0;
  virtual int remove_folder(const std::string& path) = 0;  // an empty one
  virtual int make_folder(const std::string& path) = 0;
  virtual int list(const std::string& path, std::vector<std::string>& names) = 0;  // without . and .., sorted
  virtual int free_bytes(const std::string& path, std::uint64_t& bytes) = 0;
};

Vfs& real_vfs();

// "cannot write 'path': No space left on device". `error` is positive or negative errno.
[[noreturn]] void throw_file_error(std::string_view what, const std::string& path, int error);

// All bytes, through short writes and interruptions; for handles that no File owns.
void write_fully(Vfs& vfs, int handle, const std::string& path, const void* from, std::size_t bytes,
                 std::uint64_t offset);

class File {
 public:
  static File open(Vfs& vfs, const std::string& path);    // to read; throws if it is not a regular file
  static File create(Vfs& vfs, const std::string& path);  // to write; throws if there is one

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::string& path() const { return path_; }
  std::uint64_t size() const;
  void read_at(void* to, std::size_t bytes, std::uint64_t offset) const;  // all of them, or throws
  void write_at(const void* from, std::size_t bytes, std::uint64_t offset);
  void allocate(std::uint64_t bytes);
  void sync();
  void close();  // throws, unlike the destructor: a late write error must not be lost

 private:
  File(Vfs& vfs, std::string path, int handle) : vfs_(&vfs), path_(std::move(path)), handle_(handle) {}

  Vfs* vfs_;
  std::string path_;
  int handle_;
};

// Throws SystemError when the file cannot be read, UserError (BadData) when it is longer than `limit`.
std::string read_text(Vfs& vfs, const std::string& path, std::uint64_t limit);

// A new file, synced; its name becomes durable with sync_folder.
void write_new_file(Vfs& vfs, const std::string& path, std::string_view text);

// "a/b" of "a/b/c", "." of "c", "/" of "/c": what to sync to make a name durable.
std::string parent_folder(const std::string& path);

void make_folder(Vfs& vfs, const std::string& path);  // throws if there is one
void sync_folder(Vfs& vfs, const std::string& path);

// Removes a file, or a folder with everything in it; follows no links. Returns 0 or the first -errno, and
// goes on after a failure.
int remove_tree(Vfs& vfs, const std::string& path);

}  // namespace tessera
