// Finding the newest checkpoint that is wholly right.
#include <algorithm>
#include <charconv>

#include "base/check.h"
#include "base/log.h"
#include "base/text.h"
#include "io/checkpoint_files.h"
#include "tessera/checkpoint.h"

namespace tessera {

std::vector<CheckpointEntry> list_checkpoints(const std::string& dir, Vfs* vfs) {
  Vfs& files = vfs ? *vfs : real_vfs();
  std::vector<std::string> names;
  FileInfo info;
  if (files.info(dir, info) < 0) return {};
  if (const int error = files.list(dir, names); error < 0) throw_file_error("list", dir, error);
  std::vector<CheckpointEntry> entries;
  for (const std::string& name : names) {
    if (!name.starts_with("step-")) continue;
    std::int64_t step = 0;
    const auto [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
    const bool is_number = error == std::errc() && end == name.data() + name.size() && step >= 0;
    if (is_number && name == step_folder_name(step)) entries.push_back({step, dir + "/" + name});
  }
  std::sort(entries.begin(), entries.end(),
            [](const CheckpointEntry& a, const CheckpointEntry& b) { return a.step < b.step; });
  return entries;
}

NewestCheckpoint newest_valid(const std::string& dir, bool read_all, Vfs* vfs) {
  NewestCheckpoint newest;
  std::vector<CheckpointEntry> entries = list_checkpoints(dir, vfs);
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    std::vector<std::string> problems;
    try {
      const CheckpointReader reader(entry->path, {.allow_nonfinite = false, .vfs = vfs});
      if (reader.step() != entry->step) {
        problems.push_back(fmt::format("checkpoint '{}' is damaged: its manifest is of step {}",
                                       printable(entry->path), reader.step()));
      } else if (read_all) {
        problems = reader.verify(VerifyDepth::Files);
      }
    } catch (const Error& e) {
      problems.push_back(e.what());
    }
    if (problems.empty()) {
      newest.path = entry->path;
      break;
    }
    for (std::string& problem : problems) {
      log_warning("{}; trying the one before", problem);
      newest.warnings.push_back(std::move(problem));
    }
  }
  return newest;
}

}  // namespace tessera
