// Which layouts a model's tests go through.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include "tessera/error.h"
#include "tessera/layout.h"

namespace tessera::testing {

// Every assignment of the models' dimensions to the axes of a mesh that `lower_all` accepts: it lowers the
// test's programs under a layout; a UserError that two dimensions of a tensor share an axis makes the layout
// illegal, any other is a fault.
inline std::vector<std::string> legal_layouts(const Mesh& mesh,
                                              const std::function<void(const Layout&)>& lower_all) {
  std::vector<std::string> choices{""}, layouts{""};
  for (const Dim& axis : mesh.axes()) choices.push_back(axis.name);
  auto legal = [&](const std::string& layout) {
    try {
      lower_all(Layout::parse(layout));
      return true;
    } catch (const UserError& e) {
      if (std::string(e.what()).find("split over axis") == std::string::npos) throw;
      return false;
    }
  };
  for (const char* dim : {"batch", "vocab", "d_ff", "heads", "d_kv", "d_model", "length", "memory_length"}) {
    std::vector<std::string> longer;
    for (const std::string& layout : layouts) {
      for (const std::string& axis : choices) {
        std::string next = axis.empty() ? layout : fmt::format("{}{}:{};", layout, dim, axis);
        // A layout is legal only if each of its parts is.
        if (axis.empty() || legal(next)) longer.push_back(next);
      }
    }
    layouts = std::move(longer);
  }
  return layouts;
}

}  // namespace tessera::testing
