// A file system in memory that records every change, and can say what a power cut after any of them might
// leave: what was synced is there, and of the rest any subset, in order, with torn writes. Harsher than real
// file systems, which order more; so what survives here survives there.
#pragma once

#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"

namespace tessera {

class MemoryVfs final : public Vfs {
 public:
  MemoryVfs() : nodes_(1) { nodes_[0].folder = true; }

  // To prove that the tests see a missing sync.
  bool ignore_file_sync = false, ignore_folder_sync = false;

  std::size_t changes() const { return log_.size(); }

  // The state after a power cut behind the first `count` changes. `chance` gives numbers in [0, 1); a change
  // that was not synced survives with probability `survival`.
  std::unique_ptr<MemoryVfs> after_power_cut(std::size_t count, double survival,
                                             const std::function<double()>& chance) const {
    auto cut = std::make_unique<MemoryVfs>();
    cut->nodes_.resize(nodes_.size());
    for (std::size_t n = 0; n < nodes_.size(); ++n) cut->nodes_[n].folder = nodes_[n].folder;
    std::vector<std::size_t> synced(nodes_.size(), 0);  // changes of the node before this are durable
    for (std::size_t i = 0; i < count; ++i) {
      if (log_[i].kind == Kind::Sync) synced[log_[i].node] = i;
    }
    for (std::size_t i = 0; i < count; ++i) {
      const Change& change = log_[i];
      const bool durable = i < synced[change.node];
      if (!durable && chance() >= survival) continue;
      double kept = 1;
      if (!durable && change.kind == Kind::Write) kept = chance() < 0.5 ? 1 : chance();
      cut->replay(change, kept);
    }
    return cut;
  }

  int open_to_read(const std::string& path) override {
    const int node = find(path);
    return node < 0 ? node : open(static_cast<std::size_t>(node));
  }
  int create(const std::string& path) override {
    Place place;
    if (const int error = locate(path, place); error < 0) return error;
    if (entries(place).contains(place.name)) return -EEXIST;
    const std::size_t node = add_node(false);
    apply({Kind::Link, place.folder, place.name, "", node, 0});
    return open(node);
  }
  int lock(const std::string& path) override {
    const int node = find(path);
    return node < 0 ? create(path) : open(static_cast<std::size_t>(node));
  }
  std::int64_t read_at(int file, void* to, std::size_t bytes, std::uint64_t offset) override {
    const std::string& data = nodes_[handles_[file]].data;
    if (offset >= data.size()) return 0;
    const std::size_t n = std::min<std::size_t>(bytes, data.size() - offset);
    std::memcpy(to, data.data() + offset, n);
    return static_cast<std::int64_t>(n);
  }
  std::int64_t write_at(int file, const void* from, std::size_t bytes, std::uint64_t offset) override {
    apply({Kind::Write, handles_[file], std::string(static_cast<const char*>(from), bytes), "", 0, offset});
    return static_cast<std::int64_t>(bytes);
  }
  int allocate(int file, std::uint64_t bytes) override {
    apply({Kind::Allocate, handles_[file], "", "", 0, bytes});
    return 0;
  }
  int sync(int file) override {
    if (!ignore_file_sync) apply({Kind::Sync, handles_[file], "", "", 0, 0});
    return 0;
  }
  int close(int file) override {
    handles_.erase(file);
    return 0;
  }
  int info(int file, FileInfo& info) override {
    describe(handles_[file], info);
    return 0;
  }
  int info(const std::string& path, FileInfo& info) override {
    const int node = find(path);
    if (node < 0) return node;
    describe(static_cast<std::size_t>(node), info);
    return 0;
  }
  int sync_folder(const std::string& path) override {
    const int node = find(path);
    if (node < 0) return node;
    if (!ignore_folder_sync) apply({Kind::Sync, static_cast<std::size_t>(node), "", "", 0, 0});
    return 0;
  }
  int rename(const std::string& from, const std::string& to) override {
    return move(from, to, Kind::Rename, false);
  }
  int rename_new(const std::string& from, const std::string& to) override {
    return move(from, to, Kind::Rename, true);
  }
  int exchange(const std::string& a, const std::string& b) override {
    return find(b) < 0 ? -ENOENT : move(a, b, Kind::Exchange, false);
  }
  int remove_file(const std::string& path) override { return remove(path, false); }
  int remove_folder(const std::string& path) override { return remove(path, true); }
  int make_folder(const std::string& path) override {
    Place place;
    if (const int error = locate(path, place); error < 0) return error;
    if (entries(place).contains(place.name)) return -EEXIST;
    const std::size_t node = add_node(true);
    apply({Kind::Link, place.folder, place.name, "", node, 0});
    return 0;
  }
  int list(const std::string& path, std::vector<std::string>& names) override {
    const int node = find(path);
    if (node < 0) return node;
    names.clear();
    for (const auto& [name, child] : nodes_[static_cast<std::size_t>(node)].entries) names.push_back(name);
    return 0;
  }
  int free_bytes(const std::string&, std::uint64_t& bytes) override {
    bytes = std::uint64_t{1} << 40;
    return 0;
  }

 private:
  enum class Kind { Link, Unlink, Rename, Exchange, Write, Allocate, Sync };
  struct Change {
    Kind kind;
    std::size_t node;      // the file, or the folder whose entries change
    std::string a, b;      // names, or the bytes of a write
    std::size_t child;     // of Link
    std::uint64_t number;  // offset or size
  };
  struct Node {
    bool folder = false;
    std::string data;
    std::map<std::string, std::size_t> entries;
  };
  struct Place {
    std::size_t folder = 0;
    std::string name;
  };

  std::map<std::string, std::size_t>& entries(const Place& place) { return nodes_[place.folder].entries; }

  int locate(const std::string& path, Place& place) {
    const std::size_t slash = path.rfind('/');
    const int folder = slash == std::string::npos || slash == 0 ? 0 : find(path.substr(0, slash));
    if (folder < 0) return folder;
    place = {static_cast<std::size_t>(folder), path.substr(slash == std::string::npos ? 0 : slash + 1)};
    return nodes_[place.folder].folder ? 0 : -ENOTDIR;
  }
  int find(const std::string& path) {
    if (path == ".") return 0;
    Place place;
    if (const int error = locate(path, place); error < 0) return error;
    const auto found = entries(place).find(place.name);
    return found == entries(place).end() ? -ENOENT : static_cast<int>(found->second);
  }
  std::size_t add_node(bool folder) {
    nodes_.push_back({folder, "", {}});
    return nodes_.size() - 1;
  }
  int open(std::size_t node) {
    handles_[++last_handle_] = node;
    return last_handle_;
  }
  void describe(std::size_t node, FileInfo& info) const {
    info = {!nodes_[node].folder, nodes_[node].folder, nodes_[node].data.size()};
  }
  int move(const std::string& from, const std::string& to, Kind kind, bool fresh) {
    Place a, b;
    if (locate(from, a) < 0 || locate(to, b) < 0 || find(from) < 0) return -ENOENT;
    if (a.folder != b.folder) return -EXDEV;  // the code under test renames within one folder only
    if (fresh && find(to) >= 0) return -EEXIST;
    apply({kind, a.folder, a.name, b.name, 0, 0});
    return 0;
  }
  int remove(const std::string& path, bool folder) {
    Place place;
    const int node = find(path);
    if (node < 0 || locate(path, place) < 0) return -ENOENT;
    const Node& n = nodes_[static_cast<std::size_t>(node)];
    if (n.folder != folder) return folder ? -ENOTDIR : -EISDIR;
    if (!n.entries.empty()) return -ENOTEMPTY;
    apply({Kind::Unlink, place.folder, place.name, "", 0, 0});
    return 0;
  }
  void apply(Change change) {
    replay(change, 1);
    log_.push_back(std::move(change));
  }

  // What does not apply, because something before it was lost, has no effect.
  void replay(const Change& change, double kept) {
    Node& node = nodes_[change.node];
    const auto a = node.entries.find(change.a);
    switch (change.kind) {
      case Kind::Link:
        node.entries[change.a] = change.child;
        break;
      case Kind::Unlink:
        node.entries.erase(change.a);
        break;
      case Kind::Rename:
        if (a == node.entries.end()) break;
        node.entries[change.b] = a->second;
        node.entries.erase(change.a);
        break;
      case Kind::Exchange:
        if (a != node.entries.end() && node.entries.contains(change.b))
          std::swap(a->second, node.entries[change.b]);
        break;
      case Kind::Write: {
        const std::size_t n = static_cast<std::size_t>(static_cast<double>(change.a.size()) * kept);
        if (n == 0) break;
        if (node.data.size() < change.number + n) node.data.resize(change.number + n);
        std::memcpy(node.data.data() + change.number, change.a.data(), n);
        break;
      }
      case Kind::Allocate:
        if (node.data.size() < change.number) node.data.resize(change.number);
        break;
      case Kind::Sync:
        break;
    }
  }

  std::vector<Node> nodes_;
  std::map<int, std::size_t> handles_;
  int last_handle_ = 0;
  std::vector<Change> log_;
};

}  // namespace tessera
