// safetensors files: round trips by boxes, and every kind of hostile header.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "io/safetensors_header.h"
#include "tessera/error.h"
#include "tessera/random.h"
#include "tessera/safetensors.h"
#include "unit/io_checkpoint_model.h"
#include "unit/io_temporary_folder.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Safetensors : public ::testing::Test {
 protected:
  // The error of reading a file with this header and so many bytes of data, without the common beginning.
  std::string error_of(const std::string& header, std::size_t data_bytes,
                       const SafetensorsLimits& limits = {}) const {
    const std::uint64_t length = header.size();
    return error_of_bytes(
        std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(data_bytes, '\0'),
        limits);
  }
  std::string error_of_bytes(const std::string& bytes, const SafetensorsLimits& limits = {}) const {
    const std::string path = folder_ / "t.safetensors";
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    std::string message;
    try {
      SafetensorsReader reader(path, limits);
    } catch (const UserError& e) {
      EXPECT_EQ(e.code(), ExitCode::BadData);
      message = e.what();
    }
    const std::string prefix = "'" + path + "' is not a valid safetensors file: ";
    if (message.empty()) return "";
    EXPECT_THAT(message, ::testing::StartsWith(prefix));
    return message.substr(prefix.size());
  }

  const TemporaryFolder folder_;
};

std::string tensor(const std::string& name, const std::string& type, const std::string& shape,
                   std::int64_t begin, std::int64_t end) {
  return "\"" + name + "\":{\"dtype\":\"" + type + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

TEST_F(Safetensors, RoundTripByBoxesOfEveryType) {
  const std::string path = folder_ / "m.safetensors";
  std::vector<SafetensorsTensor> tensors;
  for (const TensorInfo& t : model_tensors())
    tensors.push_back({t.name, t.type.dtype, whole_box(t.type.shape).size});
  {
    SafetensorsWriter writer(path, tensors, {{"made by", "a test\n\xC3\xA9\""}});
    for (const TensorInfo& t : model_tensors()) {
      const std::vector<char> all = model_values(t, 1);
      for (const Box& box : t.type.shape.is_scalar() ? std::vector<Box>{Box{}} : tile(t.type.shape, 3, 1)) {
        std::vector<char> part(static_cast<std::size_t>(box.elements()) * size_of(t.type.dtype));
        copy_box(all.data(), whole_box(t.type.shape), part.data(), box, box, size_of(t.type.dtype));
        writer.write(t.name, box, part.data());
      }
    }
    writer.close();
  }
  const SafetensorsReader reader(path);
  EXPECT_EQ(reader.metadata().at("made by"), "a test\n\xC3\xA9\"");
  EXPECT_EQ(reader.tensors().size(), tensors.size());
  for (const TensorInfo& t : model_tensors()) {
    const std::vector<char> all = model_values(t, 1);
    const std::size_t element = size_of(t.type.dtype);
    for (const Box& box : t.type.shape.is_scalar() ? std::vector<Box>{Box{}} : tile(t.type.shape, 4, 0)) {
      std::vector<char> have(static_cast<std::size_t>(box.elements()) * element), want(have.size());
      reader.read(t.name, box, have.data());
      copy_box(all.data(), whole_box(t.type.shape), want.data(), box, box, element);
      EXPECT_EQ(have, want) << t.name << to_string(box);
    }
  }
}

// The bytes that other programs expect, from the description of the format.
TEST_F(Safetensors, BytesOfASmallFile) {
  SafetensorsWriter writer(folder_ / "s", {{"b", DType::Bool, {2}}, {"w", DType::F32, {1, 2}}});
  const float w[] = {1.0f, -2.0f};
  const char b[] = {1, 0};
  writer.write("b", Box{{0}, {2}}, b);
  writer.write("w", Box{{0, 0}, {1, 2}}, w);
  writer.close();
  const std::string bytes = read_text(real_vfs(), folder_ / "s", 1000);
  const std::string header = R"({"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                             R"("b":{"dtype":"BOOL","shape":[2],"data_offsets":[8,10]}})";
  EXPECT_EQ(bytes.substr(8, header.size()), header);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ((8 + length) % 64, 0u);
  EXPECT_EQ(bytes.substr(8 + header.size(), length - header.size()),
            std::string(length - header.size(), ' '));
  EXPECT_EQ(bytes.substr(8 + length), std::string("\0\0\x80\x3f\0\0\0\xc0\1\0", 10));
}

TEST_F(Safetensors, AnEmptyFileOfTensors) {
  EXPECT_EQ(error_of("{}", 0), "");
  EXPECT_EQ(error_of(" {}", 0), "the header does not begin with '{'");
  EXPECT_EQ(error_of("{}   ", 0), "");
  EXPECT_EQ(error_of("{}", 1), "1 bytes after the last tensor");
}

TEST_F(Safetensors, HeaderLengths) {
  const auto with_length = [&](std::uint64_t length) {
    return error_of_bytes(std::string(reinterpret_cast<const char*>(&length), 8) + "{}");
  };
  EXPECT_EQ(error_of_bytes(""), "it has 0 bytes, fewer than the 8 of the header's length");
  EXPECT_EQ(error_of_bytes("1234567"), "it has 7 bytes, fewer than the 8 of the header's length");
  EXPECT_EQ(with_length(0), "the header does not begin with '{'");
  EXPECT_EQ(with_length(1), "header byte 1: ends where '\"' is due");
  EXPECT_EQ(with_length(3), "the header has 3 bytes, but the file ends after 2");
  EXPECT_EQ(with_length((16u << 20) + 1), "the header has 16777217 bytes, more than the limit of 16777216");
  EXPECT_EQ(with_length(std::uint64_t{1} << 63),
            "the header has 9223372036854775808 bytes, more than the limit of 16777216");
  EXPECT_EQ(with_length(~std::uint64_t{0}),
            "the header has 18446744073709551615 bytes, more than the limit of 16777216");
}

TEST_F(Safetensors, Ranges) {
  const std::string a = tensor("a", "F32", "[2]", 0, 8);
  EXPECT_EQ(error_of("{" + a + "}", 8), "");
  EXPECT_EQ(error_of("{" + a + "," + tensor("b", "F32", "[2]", 4, 12) + "}", 12),
            "tensor 'b': its bytes overlap the tensor before (byte 8)");
  EXPECT_EQ(error_of("{" + a + "," + tensor("b", "F32", "[2]", 0, 8) + "}", 8),
            "tensor 'b': its bytes overlap the tensor before (byte 8)");
  EXPECT_EQ(error_of("{" + tensor("b", "F32", "[2]", 12, 20) + "," + a + "}", 20),
            "tensor 'b': a hole of 4 bytes before it");
  EXPECT_EQ(error_of("{" + tensor("a", "F32", "[2]", 8, 0) + "}", 8),
            "tensor 'a': bytes 8 to 0 do not lie in the 8 bytes of data");
  EXPECT_EQ(error_of("{" + a + "}", 7), "tensor 'a': bytes 0 to 8 do not lie in the 7 bytes of data");
  EXPECT_EQ(error_of("{" + a + "}", 9), "1 bytes after the last tensor");
  EXPECT_EQ(error_of("{" + tensor("a", "F32", "[2]", 0, 4) + "}", 4),
            "tensor 'a': shape and type make 8 bytes, data_offsets 4");
  // In another order than that of the data, and an empty one in between: fine.
  EXPECT_EQ(error_of("{" + tensor("b", "BF16", "[3]", 8, 14) + "," + tensor("e", "F64", "[5,0]", 8, 8) + "," +
                         a + "}",
                     14),
            "");
}

TEST_F(Safetensors, Shapes) {
  const auto shape = [&](const std::string& text) {
    return error_of("{" + tensor("a", "F32", text, 0, 0) + "}", 0);
  };
  EXPECT_EQ(shape("[0]"), "");
  EXPECT_EQ(shape("[4294967296,4294967296]"),
            "tensor 'a': the shape has more than 2^62 bytes");  // wraps to 0
  EXPECT_EQ(shape("[4611686018427387904]"), "tensor 'a': the shape has more than 2^62 bytes");
  EXPECT_EQ(shape("[4294967296,0,4294967296]"), "tensor 'a': the shape has more than 2^62 bytes");
  EXPECT_THAT(shape("[9223372036854775808]"), HasSubstr("a number beyond 2^63 - 1"));
  EXPECT_THAT(shape("[99999999999999999999999]"), HasSubstr("a number beyond 2^63 - 1"));
  for (const char* text : {"[-1]", "[\"4\"]", "[null]", "[]]", "[1,]", "4", "[[1]]", "[ ]x"}) {
    EXPECT_NE(shape(text), "") << text;
  }
  EXPECT_THAT(shape("[-1]"), HasSubstr("no plain non-negative integer where one is due"));
  EXPECT_THAT(shape("[1.5]"), HasSubstr("a number that is no plain integer"));
  EXPECT_THAT(shape("[1e3]"), HasSubstr("a number that is no plain integer"));
  EXPECT_THAT(shape("[01]"), HasSubstr("a number with a leading zero"));
  EXPECT_EQ(shape("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,0]"), "tensor 'a': more than 16 dimensions");
}

TEST_F(Safetensors, TypesAndFields) {
  for (const char* type : {"F16", "F8_E4M3", "F4", "I64", "U8", "f32", ""}) {
    EXPECT_EQ(error_of("{" + tensor("a", type, "[0]", 0, 0) + "}", 0),
              "tensor 'a': element type '" + std::string(type) + "' is none of F32, F64, BF16, I32, BOOL");
  }
  EXPECT_EQ(error_of(R"({"a":{"dtype":"F32","shape":[0]}})", 0),
            "tensor 'a': dtype, shape or data_offsets is missing");
  EXPECT_EQ(error_of(R"({"a":{"dtype":"F32","dtype":"F32","shape":[0],"data_offsets":[0,0]}})", 0),
            "tensor 'a': field 'dtype' occurs twice");
  EXPECT_EQ(error_of(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0],"x":1}})", 0),
            "tensor 'a': unknown field 'x'");
  EXPECT_NE(error_of(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0,0]}})", 0), "");
  EXPECT_NE(error_of(R"({"a":[]})", 0), "");
  EXPECT_NE(error_of(R"([])", 0), "");
}

TEST_F(Safetensors, Names) {
  const auto name = [&](const std::string& text) {
    return error_of("{" + tensor(text, "F32", "[0]", 0, 0) + "}", 0);
  };
  EXPECT_EQ(name("encoder/layer_0/w"), "");
  EXPECT_EQ(name("\\u00e9\\ud83d\\ude00/\\\"x\\/"), "");
  EXPECT_EQ(name("caf\xC3\xA9"), "");
  EXPECT_EQ(name(std::string(1024, 'x')), "");
  EXPECT_EQ(name(std::string(1025, 'x')), "header byte 1027: a string of more than 1024 bytes");
  EXPECT_EQ(name("a/../b"), "tensor 'a/../b': '..' as a part of the name");
  EXPECT_EQ(name(".."), "tensor '..': '..' as a part of the name");
  EXPECT_EQ(name("a..b"), "");
  EXPECT_EQ(name("a\\u0000b"), "tensor 'a\\x00b': a control character in the name");
  EXPECT_EQ(name("a\\u001b[2J"), "tensor 'a\\x1b[2J': a control character in the name");
  EXPECT_THAT(name("a\nb"), HasSubstr("a control character inside a string"));
  for (const char* bad : {"\xFF", "\xC0\x80", "\xED\xA0\x80", "\xE2\x82"}) {
    EXPECT_THAT(name(bad), HasSubstr("a string that is not UTF-8"));
  }
  for (const char* half : {"\\ud800", "\\ude00", "\\ud800\\u0041", "\\ud800x"}) {
    EXPECT_THAT(name(half), HasSubstr("half of a surrogate pair"));
  }
  EXPECT_THAT(name("\\x41"), HasSubstr("an unknown escape in a string"));
  EXPECT_THAT(name("\\u12g4"), HasSubstr("a \\u escape without four hexadecimal digits"));
  EXPECT_THAT(name(""), HasSubstr("a tensor without a name"));
  const std::string a = tensor("a", "F32", "[0]", 0, 0);
  EXPECT_EQ(error_of("{" + a + "," + a + "}", 0), "tensor 'a': the name occurs twice");
  EXPECT_EQ(error_of("{" + a + "," + tensor("\\u0061", "F32", "[0]", 0, 0) + "}", 0),
            "tensor 'a': the name occurs twice");
}

TEST_F(Safetensors, Metadata) {
  EXPECT_EQ(error_of(R"({"__metadata__":{}})", 0), "");
  EXPECT_EQ(error_of(R"({"__metadata__":{"a":"b","c":"d"}})", 0), "");
  EXPECT_THAT(error_of(R"({"__metadata__":{"a":"b","a":"d"}})", 0), HasSubstr("a metadata key twice"));
  EXPECT_THAT(error_of(R"({"__metadata__":{},"__metadata__":{}})", 0),
              HasSubstr("__metadata__ occurs twice"));
  EXPECT_THAT(error_of(R"({"__metadata__":{"a":1}})", 0), HasSubstr("'1' where '\"' is due"));
  EXPECT_THAT(error_of(R"({"__metadata__":{"a":{"b":"c"}}})", 0), HasSubstr("'{' where '\"' is due"));
}

// Of the processor, not of the clock: other programs do not count.
template <typename F>
double seconds(F&& f) {
  const std::clock_t start = std::clock();
  f();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

// Headers of the largest size allowed, made to take long or much memory.
TEST_F(Safetensors, HeaderBombs) {
  constexpr std::size_t kMost = 16u << 20;
  std::string many = "{";
  for (int i = 0; many.size() + 80 < kMost; ++i) {
    many += (i ? "," : "") + tensor(std::to_string(i), "F32", "[1]", 0, 4);
  }
  std::string keys = "{\"__metadata__\":{";
  for (int i = 0; keys.size() + 40 < kMost; ++i) keys += (i ? ",\"" : "\"") + std::to_string(i) + "\":\"\"";
  const std::string text = "{\"__metadata__\":{\"" + std::string(kMost - 100, 'x');
  EXPECT_LT(seconds([&] { EXPECT_THAT(error_of(many + "}", 4), HasSubstr("overlap the tensor before")); }),
            5);
  EXPECT_LT(seconds([&] { EXPECT_THAT(error_of(keys + "}}", 0), HasSubstr("too many metadata entries")); }),
            1);
  EXPECT_LT(seconds([&] { EXPECT_THAT(error_of(text, 0), HasSubstr("a string of more than 1024 bytes")); }),
            1);
  EXPECT_LT(seconds([&] { EXPECT_NE(error_of("{\"a\":" + std::string(kMost - 10, '['), 0), ""); }), 1);
  EXPECT_LT(seconds([&] { EXPECT_NE(error_of("{\"a\":{" + std::string(kMost - 10, ' '), 0), ""); }), 1);
  EXPECT_THAT(error_of("{" + tensor("a", "F32", "[0]", 0, 0) + "," + tensor("b", "F32", "[0]", 0, 0) + "}", 0,
                       {.tensors = 1}),
              HasSubstr("too many tensors"));
}

// Every header that is cut off or has one changed byte is read or refused, never more; run under sanitizers
// too.
TEST_F(Safetensors, ChangedHeadersDoNotCrash) {
  const std::string good = R"({"__metadata__":{"k":"v\u00e9"},)" +
                           tensor("a\\n\xC3\xA9", "F32", "[2,3]", 0, 24) + "," +
                           tensor("b", "BOOL", "[]", 24, 25) + "}";
  int accepted = 0;
  const auto attempt = [&](const std::string& header) {
    try {
      const SafetensorsHeader parsed = parse_safetensors_header(header, 25, {}, "x");
      std::uint64_t total = 0;
      for (const SafetensorsTensor& t : parsed.tensors) total += tensor_bytes(t);
      EXPECT_EQ(total, 25u) << header;
      ++accepted;
    } catch (const UserError&) {
      // Refused, as most of them must be.
    }
  };
  const std::string fixed = R"({"__metadata__":{"k":"v\u00e9"},)" +
                            tensor("a\xC3\xA9", "F32", "[2,3]", 0, 24) + "," +
                            tensor("b", "BOOL", "[]", 24, 25) + "}";
  EXPECT_THROW(parse_safetensors_header(good, 25, {}, "x"), UserError);  // its name holds a line feed
  for (std::size_t i = 0; i < fixed.size(); ++i) {
    attempt(fixed.substr(0, i));
    for (int byte = 0; byte < 256; ++byte) {
      std::string changed = fixed;
      changed[i] = static_cast<char>(byte);
      attempt(changed);
      attempt(fixed.substr(0, i) + static_cast<char>(byte) + fixed.substr(i));
    }
    attempt(fixed.substr(0, i) + fixed.substr(i + 1));
  }
  EXPECT_GT(accepted, 1000);  // other letters in names and values
}

TEST_F(Safetensors, BoolIsZeroOrOne) {
  const std::string header = "{" + tensor("m", "BOOL", "[3]", 0, 3) + "}";
  const std::uint64_t length = header.size();
  std::ofstream(folder_ / "b", std::ios::binary)
      << std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string("\0\2\1", 3);
  const SafetensorsReader reader(folder_ / "b");
  char out[3];
  reader.read("m", Box{{2}, {1}}, out);
  EXPECT_EQ(out[0], 1);
  try {
    reader.read("m", Box{{0}, {3}}, out);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_EQ(e.what(), "'" + (folder_ / "b") + "': tensor 'm' of type BOOL has a byte other than 0 and 1");
  }
}

TEST_F(Safetensors, FileShortenedWhileOpen) {
  const std::string header = "{" + tensor("m", "F32", "[100]", 0, 400) + "}";
  EXPECT_EQ(error_of(header, 400), "");
  const SafetensorsReader reader(folder_ / "t.safetensors");
  std::filesystem::resize_file(folder_ / "t.safetensors", 8 + header.size() + 10);
  float out[100];
  EXPECT_THROW(reader.read("m", Box{{0}, {100}}, out), UserError);
}

TEST_F(Safetensors, WriterRefusesWhatIsNotWhole) {
  const std::string path = folder_ / "w";
  std::ofstream(path) << "old";
  const float w[6] = {};
  const auto message = [&](auto&& action) -> std::string {
    try {
      action();
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  };
  {
    SafetensorsWriter writer(path, {{"w", DType::F32, {2, 3}}});
    writer.write("w", Box{{0, 0}, {2, 2}}, w);
    EXPECT_EQ(message([&] { writer.close(); }),
              "'" + path + "': tensor 'w': the blocks hold 4 of 6 elements");
    writer.write("w", Box{{0, 1}, {2, 2}}, w);
    EXPECT_EQ(message([&] { writer.close(); }),
              "'" + path + "': tensor 'w': blocks [0:2, 0:2] and [0:2, 1:3] overlap");
    EXPECT_EQ(message([&] {
                writer.write("w", Box{{1, 0}, {2, 3}}, w);
              }),
              "'" + path + "': the box [1:3, 0:3] does not lie in tensor 'w' [0:2, 0:3]");
    EXPECT_EQ(message([&] { writer.write("v", Box{}, w); }),
              "'" + path + "': tensor 'v' was not announced, or the file is closed");
  }
  EXPECT_EQ(message([&] {
              SafetensorsWriter(path, {{"w", DType::F32, {1}}, {"w", DType::F32, {1}}});
            }),
            "'" + path + "' is not a valid safetensors file: tensor 'w': the name occurs twice");
  EXPECT_EQ(read_text(real_vfs(), path, 10), "old");
  std::vector<std::string> names;
  real_vfs().list(folder_.path(), names);
  EXPECT_THAT(names, ElementsAre("w"));  // no temporary file is left
}

}  // namespace
}  // namespace tessera
