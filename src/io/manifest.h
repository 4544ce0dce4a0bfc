// The manifest of a checkpoint, and the report that each rank makes for it: which boxes of which tensors lie
// where.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/region.h"
#include "tessera/checkpoint.h"

namespace tessera {

inline constexpr const char* kManifestName = "MANIFEST.json";
inline constexpr const char* kManifestHashName = "MANIFEST.sha256";
inline constexpr const char* kStateName = "state.json";
inline constexpr std::uint64_t kMostManifestBytes = 64u << 20;

struct FileRecord {
  std::string name;
  std::uint64_t bytes = 0;
  std::string sha256;
};

struct BlockRecord {
  std::size_t file = 0;  // position in the list of files
  Region region;
};

struct TensorRecord {
  TensorInfo info;
  std::uint64_t hash = 0;  // layout-free: the sum of box_hash over the blocks
  std::vector<BlockRecord> blocks;
};

struct Manifest {
  std::int64_t step = 0;
  std::string mesh, layout;
  bool finite = true;
  FileRecord state;
  std::vector<FileRecord> files;
  std::vector<TensorRecord> tensors;  // by name
};

// What one rank wrote; blocks refer to file 0, the rank's own.
struct ShardReport {
  FileRecord file;
  bool finite = true;
  std::vector<TensorRecord> tensors;
};

std::string format_report(const ShardReport& report);
ShardReport parse_report(std::string_view text);

// Joins the reports by tensor; block i of the manifest names the file of its report. Throws UserError when
// two reports disagree about a tensor's type, or blocks do not cover a tensor exactly once.
Manifest merge_reports(const std::vector<std::string>& reports);

std::string format_manifest(const Manifest& manifest);

// Throws UserError (BadData) for anything that does not hold together: form, names, ranges, tiling. `path` is
// the manifest's, for the messages.
Manifest parse_manifest(std::string_view text, const std::string& path);

}  // namespace tessera
