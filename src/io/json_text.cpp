// Pieces of JSON text.
#include "io/json_text.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace tessera {

using nlohmann::json;

std::string json_string(std::string_view text) {
  return json(std::string(text)).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string json_number(double value) {
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
  return json(value).dump();
}

}  // namespace tessera
