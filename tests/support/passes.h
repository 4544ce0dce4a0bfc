// Whole suites without passes: TESSERA_WITHOUT holds their names, with commas between them, or "all".
#pragma once

#include <cstdlib>
#include <set>
#include <sstream>
#include <string>

#include "tessera/session.h"

namespace tessera::testing {

inline std::set<std::string> every_pass() {
  std::set<std::string> names;
  for (const Pass& pass : passes()) names.insert(pass.name);
  return names;
}

inline std::set<std::string> passes_left_out() {
  const char* text = std::getenv("TESSERA_WITHOUT");
  if (text == nullptr) return {};
  if (std::string(text) == "all") return every_pass();
  std::set<std::string> names;
  std::istringstream list(text);
  for (std::string name; std::getline(list, name, ',');) names.insert(name);
  check_passes(names);
  return names;
}

inline LowerOptions lower_options() {
  LowerOptions options;
  options.without = passes_left_out();
  return options;
}

inline SessionOptions session_options() {
  SessionOptions options;
  options.lower = lower_options();
  return options;
}

}  // namespace tessera::testing
