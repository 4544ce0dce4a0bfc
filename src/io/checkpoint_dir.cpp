// The folder of a run's checkpoints: the lock, and the commit that is all or nothing.
//
// Order of a commit: every file is synced, then the folder that names them, then one rename puts the folder
// in place, then the parent is synced. A power cut before the rename leaves a temporary folder, which the
// next start removes.
#include <unistd.h>

#include <cerrno>
#include <random>
#include <system_error>

#include "base/check.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/text.h"
#include "io/checkpoint_files.h"
#include "io/manifest.h"
#include "io/strict_json.h"

namespace tessera {
namespace {

constexpr const char* kTemporaryPrefix = ".tmp-";
constexpr const char* kTrashPrefix = ".trash-";
constexpr const char* kLatestName = "LATEST";

// Makes the missing folders of a path, each durable in its parent.
void make_folders(Vfs& vfs, const std::string& path) {
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    const int error = vfs.make_folder(part);
    FileInfo info;
    // Not every existing ancestor may be written, or even be a plain folder: ask for it only where making it
    // failed.
    if (error < 0 && error != -EEXIST && vfs.info(part, info) < 0)
      throw_file_error("make the folder", part, error);
    if (error == 0) sync_folder(vfs, parent_folder(part));
    if (slash == std::string::npos) return;
  }
}

std::string host_name() {
  char name[256] = "?";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

std::string nonce() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

// Refusing a second job is the lock's purpose, so the message says who holds it.
int take_lock(Vfs& vfs, const std::string& dir) {
  const std::string path = dir + "/LOCK";
  const int lock = vfs.lock(path);
  if (lock == -EWOULDBLOCK) {
    std::string holder;
    try {
      holder = read_text(vfs, path, 1024);
    } catch (const Error&) {
      // The message without a name is still right.
    }
    throw UserError(
        fmt::format("checkpoint folder '{}' is in use by another job ({}); wait for it, end it, or choose "
                    "another folder",
                    printable(dir), holder.empty() ? "which is just starting" : printable(holder)));
  }
  if (lock < 0) throw_file_error("lock", path, lock);
  const std::string text = fmt::format("process {} on host {}", ::getpid(), host_name());
  try {
    write_fully(vfs, lock, path, text.data(), text.size(), 0);
  } catch (...) {
    vfs.close(lock);
    throw;
  }
  return lock;
}

}  // namespace

std::string step_folder_name(std::int64_t step) {
  return fmt::format("step-{:09}", step);
}

struct CheckpointDir::Impl {
  std::string path;
  CheckpointOptions options;
  Vfs& vfs;
  int lock = -1;

  ~Impl() {
    if (lock >= 0) vfs.close(lock);
  }

  std::string in(const std::string& name) const { return path + "/" + name; }

  // Leftovers of killed runs: only ours can be there, since the lock is held.
  void sweep() {
    std::vector<std::string> names;
    if (const int error = vfs.list(path, names); error < 0) throw_file_error("list", path, error);
    for (const std::string& name : names) {
      if (!name.starts_with(kTemporaryPrefix) && !name.starts_with(kTrashPrefix)) continue;
      if (const int error = remove_tree(vfs, in(name)); error < 0) {
        log_warning("cannot remove the leftover '{}': {}", printable(in(name)), error_text(error));
      }
    }
  }

  // The first save should not be what finds out that the folder is read-only.
  void probe() {
    const std::string name = in(std::string(kTemporaryPrefix) + "probe-" + nonce());
    write_new_file(vfs, name, "probe\n");
    if (const int error = vfs.remove_file(name); error < 0) throw_file_error("remove", name, error);
    sync_folder(vfs, path);
  }

  // A folder leaves its name at once and its files afterwards.
  void discard(const std::string& name) {
    const std::string trash = in(kTrashPrefix + nonce());
    int error = vfs.rename_new(in(name), trash);
    if (error == 0) error = vfs.sync_folder(path);
    if (error == 0) error = remove_tree(vfs, trash);
    if (error < 0)
      log_warning("cannot remove the old checkpoint '{}': {}", printable(in(name)), error_text(error));
  }

  // Returns true if an older folder of the same step now has the temporary name.
  bool put_in_place(const std::string& folder, const std::string& target) {
    const int error = vfs.rename_new(folder, target);
    if (error == 0) return false;
    if (error != -EEXIST) throw_file_error("rename the finished checkpoint to", target, error);
    if (const int failed = vfs.exchange(folder, target); failed < 0) {
      throw_file_error("replace the checkpoint", target, failed);
    }
    return true;
  }

  void write_latest(const std::string& name, const std::string& hash_line) {
    const std::string temporary = in(std::string(kTemporaryPrefix) + "latest-" + nonce());
    try {
      write_new_file(vfs, temporary, fmt::format("{} {}\n", name, hash_line.substr(0, 64)));
      if (const int error = vfs.rename(temporary, in(kLatestName)); error < 0) {
        throw_file_error("rename to", in(kLatestName), error);
      }
      sync_folder(vfs, path);
    } catch (const Error& e) {
      vfs.remove_file(temporary);
      log_warning("the hint LATEST is not up to date: {}", e.what());
    }
  }

  void retain(std::int64_t committed) {
    if (options.keep_last <= 0) return;
    std::vector<CheckpointEntry> older;
    for (CheckpointEntry& entry : list_checkpoints(path, &vfs)) {
      if (entry.step <= committed) older.push_back(std::move(entry));
    }
    const auto keep = static_cast<std::size_t>(options.keep_last);
    for (std::size_t i = 0; i + keep < older.size(); ++i) {
      const bool pinned = options.keep_every > 0 && older[i].step % options.keep_every == 0;
      if (!pinned) discard(step_folder_name(older[i].step));
    }
  }

  static std::string error_text(int error) { return std::generic_category().message(-error); }
};

CheckpointDir::CheckpointDir(const std::string& path, const CheckpointOptions& options) {
  TESSERA_CHECK(!path.empty(), "checkpoint: the folder's path is empty");
  Vfs& vfs = options.vfs ? *options.vfs : real_vfs();
  make_folders(vfs, path);
  impl_.reset(new Impl{path, options, vfs});
  impl_->lock = take_lock(vfs, path);
  impl_->sweep();
  impl_->probe();
}

CheckpointDir::~CheckpointDir() = default;

const std::string& CheckpointDir::path() const {
  return impl_->path;
}

std::string CheckpointDir::begin(std::int64_t step, std::uint64_t bytes) {
  TESSERA_CHECK(step >= 0, "checkpoint: step {} is negative", step);
  std::uint64_t room = 0;
  if (const int error = impl_->vfs.free_bytes(impl_->path, room); error < 0) {
    throw_file_error("ask for the free space of", impl_->path, error);
  }
  if (room < bytes) {
    throw SystemError(fmt::format("no room for checkpoint {} in '{}': it needs {} bytes, {} are free", step,
                                  printable(impl_->path), bytes, room));
  }
  const std::string folder = impl_->in(kTemporaryPrefix + step_folder_name(step) + "-" + nonce());
  make_folder(impl_->vfs, folder);
  return folder;
}

std::string CheckpointDir::commit(const std::string& folder, const CheckpointInfo& info,
                                  const std::vector<std::string>& reports) {
  const std::string name = step_folder_name(info.step), target = impl_->in(name);
  Vfs& vfs = impl_->vfs;
  bool replaced = false;
  std::string hash_line;
  try {
    Manifest manifest = merge_reports(reports);
    if (!manifest.finite && !impl_->options.allow_nonfinite) {
      throw SystemError(fmt::format("checkpoint {} is refused: a tensor holds NaN or infinity", info.step),
                        ExitCode::Numbers);
    }
    manifest.step = info.step;
    manifest.mesh = info.mesh;
    manifest.layout = info.layout;
    parse_strict_json(info.state, "state of the caller");
    manifest.state = {kStateName, info.state.size(), sha256_hex(info.state)};
    const std::string text = format_manifest(manifest);
    hash_line = manifest_hash_line(text);
    write_new_file(vfs, folder + "/" + kStateName, info.state);
    write_new_file(vfs, folder + "/" + kManifestName, text);
    write_new_file(vfs, folder + "/" + kManifestHashName, hash_line);
    sync_folder(vfs, folder);
    replaced = impl_->put_in_place(folder, target);
  } catch (...) {
    abandon(folder);
    throw;
  }
  sync_folder(vfs, impl_->path);
  if (replaced) abandon(folder);
  impl_->write_latest(name, hash_line);
  impl_->retain(info.step);
  return target;
}

void CheckpointDir::abandon(const std::string& folder) noexcept {
  try {
    const int error = remove_tree(impl_->vfs, folder);
    if (error < 0 && error != -ENOENT) {  // commit() may have removed it already
      log_warning("cannot remove '{}': {}", printable(folder), Impl::error_text(error));
    }
  } catch (const std::exception& e) {
    log_warning("cannot remove '{}': {}", printable(folder), e.what());
  }
}

}  // namespace tessera
