// The JSON header of a safetensors file, from and to text.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/safetensors.h"

namespace tessera {

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;
  std::vector<std::uint64_t> offset;  // of each tensor, from the start of the data; they are contiguous
  std::map<std::string, std::string> metadata;
  std::uint64_t data_bytes = 0;
};

// Throws UserError (BadData) that begins with the path. `data_bytes` is what the file has behind the header.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                           const SafetensorsLimits& limits, const std::string& path);

// Length and header, padded so that the data begins at a multiple of 64 bytes; fills in the offsets. The
// tensors are laid out in their order.
std::string format_safetensors_header(SafetensorsHeader& header);

std::uint64_t tensor_bytes(const SafetensorsTensor& tensor);

}  // namespace tessera
