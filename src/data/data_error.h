// Errors about data and tokenizer files: a UserError with ExitCode::BadData.
#pragma once

#include <fmt/format.h>

#include "tessera/error.h"

namespace tessera::data {

template <typename... Args>
[[noreturn]] void bad_data(fmt::format_string<Args...> format, Args&&... args) {
  throw UserError(fmt::format(format, std::forward<Args>(args)...), ExitCode::BadData);
}

}  // namespace tessera::data
