// Every file below a folder with its content: to see that a refusal changed none.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/file.h"

namespace tessera::testing {

inline std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string path = entry.path().string();
    all[path] = entry.is_regular_file() ? read_text(real_vfs(), path, 1 << 30) : "";
  }
  return all;
}

}  // namespace tessera::testing
