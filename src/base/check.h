// The two check macros. The message is formatted (fmt) only on failure.
#pragma once

#include <fmt/format.h>

#include "tessera/error.h"

// The caller's mistake: throws UserError.
#define TESSERA_CHECK(condition, ...)                                         \
  do {                                                                        \
    if (!(condition)) throw ::tessera::UserError(::fmt::format(__VA_ARGS__)); \
  } while (false)

// A bug of ours: throws InternalError with file and line.
#define TESSERA_ASSERT(condition, ...)                                                               \
  do {                                                                                               \
    if (!(condition))                                                                                \
      throw ::tessera::InternalError(::fmt::format("internal error at {}:{}: {}; please report it",  \
                                                   __FILE__, __LINE__, ::fmt::format(__VA_ARGS__))); \
  } while (false)
