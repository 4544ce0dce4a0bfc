// The manifest of a checkpoint from and to JSON, and the checks that make it trustworthy.
#include "io/manifest.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "base/checked.h"
#include "base/text.h"
#include "io/strict_json.h"
#include "io/tiling.h"

namespace tessera {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::int64_t kVersion = 1;
constexpr const char* kFormat = "tessera-checkpoint";

[[noreturn]] void reject(const std::string& path, std::string_view reason) {
  throw UserError(fmt::format("'{}': {}", printable(path), reason), ExitCode::BadData);
}

std::vector<std::int64_t> sizes_of(const Shape& shape) {
  std::vector<std::int64_t> sizes;
  for (const Dim& dim : shape) sizes.push_back(dim.size);
  return sizes;
}

// Safe to open beneath the checkpoint's folder: no path, nothing hidden.
bool is_plain_name(std::string_view name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= 128 && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), plain);
}

ordered_json to_json(const FileRecord& file) {
  return {{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}};
}

FileRecord file_from_json(const json& value, const std::string& path) {
  const JsonFields fields(value, path);
  fields.allow_only({"name", "bytes", "sha256"});
  FileRecord file{fields.text("name"), static_cast<std::uint64_t>(fields.integer("bytes")),
                  fields.text("sha256")};
  if (!is_plain_name(file.name)) {
    reject(path, fmt::format("file name '{}' is not made of at most 128 letters, digits, '.', '_' and '-'",
                             printable(file.name)));
  }
  if (file.sha256.size() != 64)
    reject(path, fmt::format("the hash of file '{}' has not 64 digits", file.name));
  return file;
}

ordered_json to_json(const TensorRecord& tensor) {
  ordered_json blocks = ordered_json::array();
  for (const BlockRecord& block : tensor.blocks) {
    blocks.push_back({{"file", block.file},
                      {"offset", block.region.offset},
                      {"start", block.region.box.start},
                      {"size", block.region.box.size},
                      {"crc", block.region.crc}});
  }
  return {{"name", tensor.info.name},
          {"dtype", to_string(tensor.info.type.dtype)},
          {"shape", to_string(tensor.info.type.shape)},
          {"hash", fmt::format("{:016x}", tensor.hash)},
          {"blocks", std::move(blocks)}};
}

Type type_from_json(const JsonFields& fields, const std::string& name, const std::string& path) {
  try {
    return {parse_shape(fields.text("shape")), parse_dtype(fields.text("dtype"))};
  } catch (const UserError& e) {
    reject(path, fmt::format("tensor '{}': {}", printable(name), e.what()));
  }
}

BlockRecord block_from_json(const json& value, const TensorInfo& tensor, const std::vector<FileRecord>& files,
                            const std::string& path) {
  const JsonFields fields(value, path);
  fields.allow_only({"file", "offset", "start", "size", "crc"});
  BlockRecord block;
  block.file = static_cast<std::size_t>(fields.integer("file"));
  block.region.offset = static_cast<std::uint64_t>(fields.integer("offset"));
  block.region.box = {fields.integers("start"), fields.integers("size")};
  for (std::int64_t crc : fields.integers("crc")) block.region.crc.push_back(static_cast<std::uint32_t>(crc));

  const auto fail = [&](std::string_view reason) {
    reject(path, fmt::format("tensor '{}': a block {}", printable(tensor.name), reason));
  };
  if (block.file >= files.size()) fail(fmt::format("lies in file {} of {}", block.file, files.size()));
  const Shape& shape = tensor.type.shape;
  const Box& box = block.region.box;
  if (box.start.size() != shape.count() || box.size.size() != shape.count()) {
    fail(fmt::format("has not the {} dimensions of the tensor", shape.count()));
  }
  for (std::size_t d = 0; d < shape.count(); ++d) {  // before any arithmetic on them
    if (box.start[d] > shape[d].size || box.size[d] > shape[d].size - box.start[d]) {
      fail(fmt::format("leaves the tensor in dimension '{}'", shape[d].name));
    }
  }
  const std::uint64_t bytes = block.region.bytes(size_of(tensor.type.dtype));
  const auto end = checked_add(block.region.offset, bytes);
  const FileRecord& file = files[block.file];
  if (!end || *end > file.bytes) fail(fmt::format("ends behind the {} bytes of '{}'", file.bytes, file.name));
  if (block.region.crc.size() != piece_count(bytes)) fail("has not one checksum for each 4 MiB");
  return block;
}

TensorRecord tensor_from_json(const json& value, const std::vector<FileRecord>& files,
                              const std::string& path) {
  const JsonFields fields(value, path);
  fields.allow_only({"name", "dtype", "shape", "hash", "blocks"});
  TensorRecord tensor;
  tensor.info.name = fields.text("name");
  tensor.info.type = type_from_json(fields, tensor.info.name, path);
  tensor.hash = fields.hexadecimal("hash");
  for (const json& block : fields.array("blocks")) {
    tensor.blocks.push_back(block_from_json(block, tensor.info, files, path));
  }
  return tensor;
}

void check_tiling(const TensorRecord& tensor, const std::string& path) {
  std::vector<Box> boxes;
  for (const BlockRecord& block : tensor.blocks) boxes.push_back(block.region.box);
  const std::string fault = tiling_fault(sizes_of(tensor.info.type.shape), boxes);
  if (!fault.empty()) {
    reject(path,
           fmt::format("tensor '{}' is not covered exactly once: {}", printable(tensor.info.name), fault));
  }
}

void check_files_once(const Manifest& manifest, const std::string& path) {
  std::set<std::string> names = {kManifestName, kManifestHashName};
  if (!names.insert(manifest.state.name).second) reject(path, "the state has the name of the manifest");
  for (const FileRecord& file : manifest.files) {
    if (!names.insert(file.name).second) reject(path, fmt::format("file '{}' occurs twice", file.name));
  }
}

// Two blocks on the same bytes would let one flipped bit, or one hostile file, stand for two tensors.
void check_regions_apart(const Manifest& manifest, const std::string& path) {
  std::vector<std::vector<std::pair<std::uint64_t, std::uint64_t>>> ranges(manifest.files.size());
  for (const TensorRecord& tensor : manifest.tensors) {
    for (const BlockRecord& block : tensor.blocks) {
      const std::uint64_t bytes = block.region.bytes(size_of(tensor.info.type.dtype));
      if (bytes > 0) ranges[block.file].emplace_back(block.region.offset, block.region.offset + bytes);
    }
  }
  for (std::size_t f = 0; f < ranges.size(); ++f) {
    std::sort(ranges[f].begin(), ranges[f].end());
    for (std::size_t i = 1; i < ranges[f].size(); ++i) {
      if (ranges[f][i].first < ranges[f][i - 1].second) {
        reject(path, fmt::format("two blocks lie on the same bytes of '{}'", manifest.files[f].name));
      }
    }
  }
}

}  // namespace

std::string format_report(const ShardReport& report) {
  ordered_json tensors = ordered_json::array();
  for (const TensorRecord& tensor : report.tensors) tensors.push_back(to_json(tensor));
  const ordered_json value = {
      {"file", to_json(report.file)}, {"finite", report.finite}, {"tensors", std::move(tensors)}};
  return value.dump();
}

ShardReport parse_report(std::string_view text) {
  const std::string path = "report of a rank";
  const json value = parse_strict_json(text, path);
  const JsonFields fields(value, path);
  ShardReport report{file_from_json(fields.object("file"), path), fields.boolean("finite"), {}};
  for (const json& tensor : fields.array("tensors")) {
    report.tensors.push_back(tensor_from_json(tensor, {report.file}, path));
  }
  return report;
}

Manifest merge_reports(const std::vector<std::string>& reports) {
  const std::string path = "checkpoint";
  Manifest manifest;
  std::map<std::string, TensorRecord> by_name;
  for (const std::string& text : reports) {
    ShardReport report = parse_report(text);
    manifest.finite &= report.finite;
    for (TensorRecord& part : report.tensors) {
      TensorRecord& whole = by_name[part.info.name];
      if (whole.info.name.empty()) whole.info = part.info;
      if (whole.info.type != part.info.type) {
        reject(path, fmt::format("tensor '{}' is {} in one shard but {} in '{}'", printable(part.info.name),
                                 to_string(whole.info.type), to_string(part.info.type), report.file.name));
      }
      whole.hash += part.hash;
      for (BlockRecord& block : part.blocks) {
        block.file = manifest.files.size();
        whole.blocks.push_back(std::move(block));
      }
    }
    manifest.files.push_back(std::move(report.file));
  }
  for (auto& [name, tensor] : by_name) {
    check_tiling(tensor, path);
    manifest.tensors.push_back(std::move(tensor));
  }
  return manifest;
}

std::string format_manifest(const Manifest& manifest) {
  const ordered_json head = {{"format", kFormat},         {"version", kVersion},
                             {"byte_order", "little"},    {"step", manifest.step},
                             {"mesh", manifest.mesh},     {"layout", manifest.layout},
                             {"finite", manifest.finite}, {"state", to_json(manifest.state)}};
  // A line for each file and each tensor: readable, and half the size of an indented dump.
  std::string text = head.dump();
  text.back() = ',';
  const auto list = [&](const char* key, const auto& records) {
    text += fmt::format("\n\"{}\":[", key);
    for (std::size_t i = 0; i < records.size(); ++i) text += (i ? ",\n" : "\n") + to_json(records[i]).dump();
    text += "\n]";
  };
  list("files", manifest.files);
  text += ",";
  list("tensors", manifest.tensors);
  return text + "}\n";
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  const json value = parse_strict_json(text, path);
  const JsonFields fields(value, path);
  if (fields.text("format") != kFormat) reject(path, "it is not the manifest of a Tessera checkpoint");
  if (const std::int64_t version = fields.integer("version"); version != kVersion) {
    reject(path, fmt::format("the checkpoint has format version {}, this program reads version {}", version,
                             kVersion));
  }
  if (const std::string order = fields.text("byte_order"); order != "little") {
    reject(path,
           fmt::format("the checkpoint has byte order '{}', this program reads 'little'", printable(order)));
  }
  fields.allow_only(
      {"format", "version", "byte_order", "step", "mesh", "layout", "finite", "state", "files", "tensors"});
  Manifest manifest;
  manifest.step = fields.integer("step");
  manifest.mesh = fields.text("mesh");
  manifest.layout = fields.text("layout");
  manifest.finite = fields.boolean("finite");
  manifest.state = file_from_json(fields.object("state"), path);
  for (const json& file : fields.array("files")) manifest.files.push_back(file_from_json(file, path));
  check_files_once(manifest, path);
  for (const json& tensor : fields.array("tensors")) {
    manifest.tensors.push_back(tensor_from_json(tensor, manifest.files, path));
    check_tiling(manifest.tensors.back(), path);
    const std::size_t n = manifest.tensors.size();
    if (n > 1 && manifest.tensors[n - 2].info.name >= manifest.tensors[n - 1].info.name) {
      reject(path, fmt::format("tensor '{}' occurs twice or out of order",
                               printable(manifest.tensors[n - 1].info.name)));
    }
  }
  check_regions_apart(manifest, path);
  return manifest;
}

}  // namespace tessera
