// safetensors files: named tensors behind a JSON header, the format in which other systems exchange weights.
// The reader treats every file as hostile: sizes are checked before memory is taken, and what is accepted has
// no hole, no overlap and no surprise. Both ends work by boxes, so that no rank needs a whole tensor.
//
//   SafetensorsReader file("model.safetensors");
//   for (const SafetensorsTensor& t : file.tensors()) ...;
//   file.read("encoder/w", Box{{0, 0}, {128, 512}}, buffer);
//
// Layer: io. Element types: F32, F64, BF16, I32 and BOOL; others are refused, never converted.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/box.h"
#include "tessera/dtype.h"

namespace tessera {

class Vfs;  // of src/base, for tests; nullptr is the machine's file system

struct SafetensorsTensor {
  std::string name;
  DType dtype = DType::F32;
  std::vector<std::int64_t> shape;
};

struct SafetensorsLimits {
  std::uint64_t header_bytes = 16u << 20;  // up to 100,000,000 is what other systems accept
  std::uint64_t tensors = 1'000'000;
  std::uint64_t metadata_entries = 10'000;
  std::uint64_t name_bytes = 1024;
  std::size_t dimensions = 16;
};

// Holds the file open. Throws UserError (BadData) for anything wrong with the file, SystemError when it
// cannot be read. Const functions may run on several threads at once.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path, const SafetensorsLimits& limits = {},
                             Vfs* vfs = nullptr);
  ~SafetensorsReader();
  SafetensorsReader(SafetensorsReader&&) noexcept;
  SafetensorsReader& operator=(SafetensorsReader&&) noexcept;

  const std::vector<SafetensorsTensor>& tensors() const;  // in the order of the data
  const SafetensorsTensor* find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const;

  // Reads `box` of a tensor into `to`, a row-major buffer of just that box. Throws UserError (Usage) when
  // there is no such tensor or the box does not lie in it. Memory beside `to`: at most 4 MiB.
  void read(std::string_view name, const Box& box, void* to) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Writes a new file under a temporary name beside `path`; close() syncs it and puts it in place of what was
// there. Without close(), or after an exception, nothing has changed. One thread.
class SafetensorsWriter {
 public:
  // Throws UserError for a name that occurs twice or that the reader would refuse.
  SafetensorsWriter(const std::string& path, std::vector<SafetensorsTensor> tensors,
                    const std::map<std::string, std::string>& metadata = {}, Vfs* vfs = nullptr);
  ~SafetensorsWriter();

  // `data` is a row-major buffer of `box`. Boxes may come in any order; together they tile every tensor.
  void write(std::string_view name, const Box& box, const void* data);

  // Throws UserError naming a tensor that was not written exactly once.
  void close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
