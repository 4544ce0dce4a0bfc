// Tables of Unicode properties, written by scripts/unicode_tables.py. Use data/utf8.h, which searches them.
#pragma once

#include <cstdint>
#include <span>

namespace tessera::data {

struct CodeRange {
  char32_t first, last;  // both included
};

// Every `step`-th code point of [first, last] becomes itself + delta in lower case.
struct LowerRun {
  char32_t first, last;
  std::int32_t step, delta;
};

extern const std::span<const CodeRange> kNumbers, kPunctuation, kSymbols;
extern const std::span<const LowerRun> kLowerRuns;

}  // namespace tessera::data
