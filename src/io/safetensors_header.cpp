// The JSON header of a safetensors file. Order of the checks: the form, then each tensor by itself (shape
// times size is its range), then all together (no name twice, ranges contiguous from the first byte to the
// last).
#include "io/safetensors_header.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <unordered_set>

#include "base/check.h"
#include "base/checked.h"
#include "base/text.h"
#include "io/json_scanner.h"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::pair<const char*, DType> kTypes[] = {{"F32", DType::F32},
                                                    {"F64", DType::F64},
                                                    {"BF16", DType::BF16},
                                                    {"I32", DType::I32},
                                                    {"BOOL", DType::Bool}};

struct Range {
  std::uint64_t begin = 0, end = 0;
};

class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::uint64_t data_bytes, const SafetensorsLimits& limits,
               const std::string& path)
      : scanner_(text, path), limits_(limits), path_(path) {
    header_.data_bytes = data_bytes;
  }

  SafetensorsHeader parse() {
    scanner_.expect('{');
    bool has_metadata = false;
    if (!scanner_.accept('}')) {
      do {
        std::string name = scanner_.string(limits_.name_bytes);
        scanner_.expect(':');
        if (name == "__metadata__") {
          if (has_metadata) scanner_.fail("__metadata__ occurs twice");
          has_metadata = true;
          parse_metadata();
        } else {
          parse_tensor(std::move(name));
        }
      } while (scanner_.accept(','));
      scanner_.expect('}');
    }
    scanner_.expect_end();
    check_names();
    order_by_offset();
    return std::move(header_);
  }

 private:
  [[noreturn]] void reject(const std::string& name, std::string_view reason) const {
    throw UserError(fmt::format("'{}' is not a valid safetensors file: tensor '{}': {}", printable(path_),
                                printable(name), reason),
                    ExitCode::BadData);
  }

  void parse_metadata() {
    scanner_.expect('{');
    if (scanner_.accept('}')) return;
    do {
      std::string key = scanner_.string(limits_.name_bytes);
      scanner_.expect(':');
      std::string value = scanner_.string(limits_.header_bytes);
      if (header_.metadata.size() >= limits_.metadata_entries) scanner_.fail("too many metadata entries");
      if (!header_.metadata.emplace(std::move(key), std::move(value)).second)
        scanner_.fail("a metadata key twice");
    } while (scanner_.accept(','));
    scanner_.expect('}');
  }

  void parse_tensor(std::string name) {
    if (header_.tensors.size() >= limits_.tensors) scanner_.fail("too many tensors");
    check_name(name);
    SafetensorsTensor tensor{std::move(name), DType::F32, {}};
    Range range;
    bool has_type = false, has_shape = false, has_range = false;
    const auto once = [&](bool& seen, const std::string& key) {
      if (seen) reject(tensor.name, fmt::format("field '{}' occurs twice", key));
      seen = true;
    };
    scanner_.expect('{');
    do {
      const std::string key = scanner_.string(64);
      scanner_.expect(':');
      if (key == "dtype") {
        once(has_type, key);
        tensor.dtype = parse_type(tensor.name);
      } else if (key == "shape") {
        once(has_shape, key);
        parse_shape(tensor);
      } else if (key == "data_offsets") {
        once(has_range, key);
        range = parse_range();
      } else {
        reject(tensor.name, fmt::format("unknown field '{}'", printable(key)));
      }
    } while (scanner_.accept(','));
    scanner_.expect('}');
    if (!has_type || !has_shape || !has_range) reject(tensor.name, "dtype, shape or data_offsets is missing");
    check_range(tensor, range);
    header_.tensors.push_back(std::move(tensor));
    ranges_.push_back(range);
  }

  void check_name(const std::string& name) const {
    if (name.empty()) scanner_.fail("a tensor without a name");
    for (char c : name) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) reject(name, "a control character in the name");
    }
    const std::string bounded = "/" + name + "/";
    if (bounded.find("/../") != std::string::npos) reject(name, "'..' as a part of the name");
  }

  DType parse_type(const std::string& name) {
    const std::string text = scanner_.string(64);
    for (const auto& [spelling, type] : kTypes) {
      if (text == spelling) return type;
    }
    reject(name, fmt::format("element type '{}' is none of F32, F64, BF16, I32, BOOL", printable(text)));
  }

  void parse_shape(SafetensorsTensor& tensor) {
    scanner_.expect('[');
    if (scanner_.accept(']')) return;
    do {
      if (tensor.shape.size() >= limits_.dimensions) {
        reject(tensor.name, fmt::format("more than {} dimensions", limits_.dimensions));
      }
      tensor.shape.push_back(scanner_.integer());
    } while (scanner_.accept(','));
    scanner_.expect(']');
  }

  Range parse_range() {
    scanner_.expect('[');
    Range range;
    range.begin = static_cast<std::uint64_t>(scanner_.integer());
    scanner_.expect(',');
    range.end = static_cast<std::uint64_t>(scanner_.integer());
    scanner_.expect(']');
    return range;
  }

  void check_range(const SafetensorsTensor& tensor, const Range& range) const {
    if (range.end < range.begin || range.end > header_.data_bytes) {
      reject(tensor.name, fmt::format("bytes {} to {} do not lie in the {} bytes of data", range.begin,
                                      range.end, header_.data_bytes));
    }
    // The zero of an empty tensor does not hide an overflow of the other sizes.
    std::optional<std::uint64_t> bytes = size_of(tensor.dtype);
    bool is_empty = false;
    for (std::int64_t s : tensor.shape) {
      is_empty |= s == 0;
      if (bytes && s != 0) bytes = checked_multiply<std::uint64_t>(*bytes, static_cast<std::uint64_t>(s));
    }
    if (!bytes || *bytes > (std::uint64_t{1} << 62))
      reject(tensor.name, "the shape has more than 2^62 bytes");
    if (is_empty) bytes = 0;
    if (*bytes != range.end - range.begin) {
      reject(tensor.name,
             fmt::format("shape and type make {} bytes, data_offsets {}", *bytes, range.end - range.begin));
    }
  }

  void check_names() const {
    std::unordered_set<std::string_view> names;
    names.reserve(header_.tensors.size());
    for (const SafetensorsTensor& t : header_.tensors) {
      if (!names.insert(t.name).second) reject(t.name, "the name occurs twice");
    }
  }

  void order_by_offset() {
    std::vector<std::size_t> order(ranges_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(ranges_[a].begin, ranges_[a].end) < std::pair(ranges_[b].begin, ranges_[b].end);
    });
    std::vector<SafetensorsTensor> sorted;
    sorted.reserve(order.size());
    std::uint64_t end = 0;
    for (std::size_t i : order) {
      const std::string& name = header_.tensors[i].name;
      if (ranges_[i].begin < end)
        reject(name, fmt::format("its bytes overlap the tensor before (byte {})", end));
      if (ranges_[i].begin > end)
        reject(name, fmt::format("a hole of {} bytes before it", ranges_[i].begin - end));
      end = ranges_[i].end;
      header_.offset.push_back(ranges_[i].begin);
      sorted.push_back(std::move(header_.tensors[i]));
    }
    header_.tensors = std::move(sorted);
    if (end != header_.data_bytes) {
      throw UserError(fmt::format("'{}' is not a valid safetensors file: {} bytes after the last tensor",
                                  printable(path_), header_.data_bytes - end),
                      ExitCode::BadData);
    }
  }

  JsonScanner scanner_;
  const SafetensorsLimits& limits_;
  const std::string& path_;
  SafetensorsHeader header_;
  std::vector<Range> ranges_;
};

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                           const SafetensorsLimits& limits, const std::string& path) {
  return HeaderParser(json, data_bytes, limits, path).parse();
}

std::uint64_t tensor_bytes(const SafetensorsTensor& tensor) {
  std::uint64_t bytes = size_of(tensor.dtype);
  for (std::int64_t s : tensor.shape) bytes *= static_cast<std::uint64_t>(s);
  return bytes;
}

std::string format_safetensors_header(SafetensorsHeader& header) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!header.metadata.empty()) json["__metadata__"] = header.metadata;
  header.offset.clear();
  header.data_bytes = 0;
  for (const SafetensorsTensor& tensor : header.tensors) {
    const char* type = "";
    for (const auto& [spelling, dtype] : kTypes) {
      if (dtype == tensor.dtype) type = spelling;
    }
    const std::uint64_t begin = header.data_bytes;
    header.offset.push_back(begin);
    header.data_bytes += tensor_bytes(tensor);
    // Not operator[]: it searches the ordered object for the key, which is quadratic.
    json.get_ref<nlohmann::ordered_json::object_t&>().emplace_back(
        tensor.name,
        nlohmann::ordered_json{
            {"dtype", type}, {"shape", tensor.shape}, {"data_offsets", {begin, header.data_bytes}}});
  }
  std::string text = json.dump();
  text.append((64 - (8 + text.size()) % 64) % 64, ' ');
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + text;
}

}  // namespace tessera
