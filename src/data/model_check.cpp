// A reader of just as much of the protobuf wire format as the model file needs (sentencepiece_model.proto),
// and the checks: pieces, special ids, and the double array of the normaliser, whose indices SentencePiece
// follows unchecked.
#include "data/model_check.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "base/text.h"
#include "data/data_error.h"
#include "tessera/tokenizer.h"

namespace tessera::data {
namespace {

constexpr std::size_t kMaxPieces = 4 << 20;
constexpr std::size_t kMaxPieceBytes = 64 << 10;

struct Field {
  std::uint64_t number = 0;
  std::uint64_t value = 0;  // varint and fixed fields
  std::string_view bytes;   // length-delimited fields
};

enum class PieceType : std::uint64_t {
  Normal = 1,
  Unknown = 2,
  Control = 3,
  UserDefined = 4,
  Unused = 5,
  Byte = 6
};

class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}

  // The next field, or nothing at the end or at a fault (then failed() is true).
  std::optional<Field> next() {
    if (rest_.empty() || failed_) return std::nullopt;
    Field field;
    const std::uint64_t tag = varint();
    field.number = tag >> 3;
    switch (tag & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
        field.value = fixed(8);
        break;
      case 2:
        field.bytes = take(varint());
        break;
      case 5:
        field.value = fixed(4);
        break;
      default:
        failed_ = true;
    }
    if (field.number == 0) failed_ = true;
    return failed_ ? std::nullopt : std::optional<Field>(field);
  }
  bool failed() const { return failed_; }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) break;
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    failed_ = true;
    return 0;
  }
  std::string_view take(std::uint64_t size) {
    if (size > rest_.size()) {
      failed_ = true;
      return {};
    }
    const std::string_view part = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return part;
  }
  std::uint64_t fixed(std::size_t size) {
    std::uint64_t value = 0;
    const std::string_view part = take(size);
    if (!part.empty()) std::memcpy(&value, part.data(), part.size());
    return value;
  }

  std::string_view rest_;
  bool failed_ = false;
};

class ModelChecker {
 public:
  ModelChecker(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(printable(path)) {}

  void run() {
    WireReader model(bytes_);
    while (const auto field = model.next()) {
      if (field->number == 1) piece(field->bytes);
      if (field->number == 3 || field->number == 5) normalizer(field->bytes);
    }
    if (model.failed()) fail("it is damaged or not a SentencePiece model");
    if (pieces_ == 0) fail("it is not a SentencePiece model (no pieces)");
    if (pieces_ <= kUnknownId) fail(fmt::format("it has only {} pieces", pieces_));
    if (!special_ids_) {
      fail(
          "its special ids are not <pad> 0, </s> 1, <unk> 2; train it with pad_id = 0, eos_id = 1, unk_id = "
          "2, bos_id = -1");
    }
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    bad_data("tokenizer: cannot use '{}': {}", path_, why);
  }

  void piece(std::string_view message) {
    WireReader reader(message);
    std::string_view text;
    float score = 0;
    auto type = PieceType::Normal;
    while (const auto field = reader.next()) {
      if (field->number == 1) text = field->bytes;
      if (field->number == 2) score = std::bit_cast<float>(static_cast<std::uint32_t>(field->value));
      if (field->number == 3) type = static_cast<PieceType>(field->value);
    }
    const std::size_t id = pieces_++;
    if (reader.failed()) fail(fmt::format("piece {} is damaged", id));
    if (pieces_ > kMaxPieces) fail(fmt::format("it has more than {} pieces", kMaxPieces));
    if (text.empty()) fail(fmt::format("piece {} is empty", id));
    if (text.size() > kMaxPieceBytes)
      fail(fmt::format("piece {} has {} bytes; at most {} are allowed", id, text.size(), kMaxPieceBytes));
    if (!is_utf8(text) || text.find('\0') != text.npos) fail(fmt::format("piece {} is not UTF-8 text", id));
    if (!std::isfinite(score)) fail(fmt::format("the score of piece {} is not a finite number", id));
    if (type < PieceType::Normal || type > PieceType::Byte)
      fail(fmt::format("piece {} has an unknown type", id));
    if (!seen_.insert(text).second)
      fail(fmt::format("piece {} ('{}') occurs twice", id, printable(text, 40)));
    if (id == kPadId || id == kEosId) special_ids_ = special_ids_ && type == PieceType::Control;
    if (id == kUnknownId || type == PieceType::Unknown) {
      special_ids_ = special_ids_ && id == kUnknownId && type == PieceType::Unknown;
    }
    if (type == PieceType::Byte) byte_piece(text, id);
  }

  // "<0x41>": the library reads the digits unchecked.
  void byte_piece(std::string_view text, std::size_t id) const {
    bool good = text.size() == 6 && text.starts_with("<0x") && text.ends_with('>');
    for (std::size_t i = 3; good && i < 5; ++i)
      good = (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'A' && text[i] <= 'F');
    if (!good) fail(fmt::format("piece {} ('{}') is no byte", id, printable(text, 40)));
  }

  void normalizer(std::string_view message) {
    WireReader reader(message);
    while (const auto field = reader.next()) {
      if (field->number == 2 && !field->bytes.empty()) character_map(field->bytes);
    }
    if (reader.failed()) fail("its normaliser is damaged");
  }

  // u32 bytes of the double array, the array's u32 units, then NUL-terminated replacement texts. A search
  // starts at unit 0 and goes from a unit to (position ^ offset ^ byte), so every such place must be inside;
  // a leaf's value is a place in the texts.
  void character_map(std::string_view map) const {
    constexpr std::string_view kDamaged = "its character map is damaged";
    std::uint32_t array_bytes = 0;
    if (map.size() < sizeof array_bytes) fail(std::string(kDamaged));
    std::memcpy(&array_bytes, map.data(), sizeof array_bytes);
    const std::string_view texts_and_array = map.substr(sizeof array_bytes);
    if (array_bytes == 0 || array_bytes % 4 != 0 || array_bytes >= texts_and_array.size())
      fail(std::string(kDamaged));
    const std::string_view texts = texts_and_array.substr(array_bytes);
    if (texts.back() != '\0' || !is_utf8(texts)) fail(std::string(kDamaged));
    const std::uint32_t units = array_bytes / 4;
    for (std::uint32_t i = 0; i < units; ++i) {
      std::uint32_t unit = 0;
      std::memcpy(&unit, texts_and_array.data() + 4 * std::size_t{i}, sizeof unit);
      if (unit >> 31) {
        if ((unit & 0x7fffffffu) >= texts.size()) fail(std::string(kDamaged));
        continue;
      }
      const std::uint32_t offset = (unit >> 10) << ((unit & (1u << 9)) >> 6);
      if (((i ^ offset) | 0xffu) >= units) fail(std::string(kDamaged));
    }
  }

  std::string_view bytes_;
  std::string path_;
  std::size_t pieces_ = 0;
  bool special_ids_ = true;
  std::unordered_set<std::string_view> seen_;
};

}  // namespace

void check_model(std::string_view bytes, const std::string& path) {
  if (bytes.empty()) bad_data("tokenizer: cannot use '{}': the file is empty", printable(path));
  ModelChecker(bytes, path).run();
}

}  // namespace tessera::data
