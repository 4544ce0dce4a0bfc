// A file system that fails: at the n-th call by an error, or by the death of the process, or at every call by
// transferring little.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/file.h"

namespace tessera {

class FaultVfs final : public Vfs {
 public:
  explicit FaultVfs(Vfs& under) : under_(under) {}

  int calls() const { return calls_; }
  void fail_at(int call, int error) { at_ = calls_ + call, error_ = error; }  // the first call is 1
  void kill_at(int call) { at_ = calls_ + call, error_ = 0; }  // half of a write happens before
  void stutter() { stutter_ = true; }  // one to three bytes at a time, every second transfer interrupted

  int open_to_read(const std::string& path) override { return hit() ? hit_ : under_.open_to_read(path); }
  int create(const std::string& path) override { return hit() ? hit_ : under_.create(path); }
  int lock(const std::string& path) override { return hit() ? hit_ : under_.lock(path); }
  std::int64_t read_at(int file, void* to, std::size_t bytes, std::uint64_t offset) override {
    if (hit()) return hit_;
    if (stutter_ && calls_ % 2 == 0) return -EINTR;
    return under_.read_at(file, to, limited(bytes), offset);
  }
  std::int64_t write_at(int file, const void* from, std::size_t bytes, std::uint64_t offset) override {
    if (calls_ + 1 == at_ && error_ == 0) under_.write_at(file, from, bytes / 2, offset);
    if (hit()) return hit_;
    if (stutter_ && calls_ % 2 == 0) return -EINTR;
    return under_.write_at(file, from, limited(bytes), offset);
  }
  int allocate(int file, std::uint64_t bytes) override { return hit() ? hit_ : under_.allocate(file, bytes); }
  int sync(int file) override { return hit() ? hit_ : under_.sync(file); }
  int close(int file) override {
    const int result = under_.close(file);  // the descriptor is gone even if close reports an error
    return hit() ? hit_ : result;
  }
  int info(int file, FileInfo& info) override { return hit() ? hit_ : under_.info(file, info); }
  int info(const std::string& path, FileInfo& info) override {
    return hit() ? hit_ : under_.info(path, info);
  }
  int sync_folder(const std::string& path) override { return hit() ? hit_ : under_.sync_folder(path); }
  int rename(const std::string& a, const std::string& b) override {
    return hit() ? hit_ : under_.rename(a, b);
  }
  int rename_new(const std::string& a, const std::string& b) override {
    return hit() ? hit_ : under_.rename_new(a, b);
  }
  int exchange(const std::string& a, const std::string& b) override {
    return hit() ? hit_ : under_.exchange(a, b);
  }
  int remove_file(const std::string& path) override { return hit() ? hit_ : under_.remove_file(path); }
  int remove_folder(const std::string& path) override { return hit() ? hit_ : under_.remove_folder(path); }
  int make_folder(const std::string& path) override { return hit() ? hit_ : under_.make_folder(path); }
  int list(const std::string& path, std::vector<std::string>& names) override {
    return hit() ? hit_ : under_.list(path, names);
  }
  int free_bytes(const std::string& path, std::uint64_t& bytes) override {
    return hit() ? hit_ : under_.free_bytes(path, bytes);
  }

 private:
  bool hit() {
    if (++calls_ != at_) return false;
    if (error_ == 0) ::kill(::getpid(), SIGKILL);
    hit_ = -error_;
    return true;
  }
  std::size_t limited(std::size_t bytes) const {
    return stutter_ ? std::min<std::size_t>(bytes, 1 + static_cast<std::size_t>(calls_ % 3)) : bytes;
  }

  Vfs& under_;
  int calls_ = 0, at_ = 0, error_ = 0, hit_ = 0;
  bool stutter_ = false;
};

}  // namespace tessera
