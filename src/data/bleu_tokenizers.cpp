// The word splitters of BLEU. Each follows its regular expressions pass by pass, because the passes see each
// other's spaces; bytes suffice for 13a, whose classes are all ASCII.
#include <array>

#include "data/utf8.h"
#include "tessera/metrics.h"

namespace tessera {
namespace {

using data::decode_utf8;
using data::Decoded;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_stop(char c) {
  return c == '.' || c == ',';
}

// ASCII punctuation that always stands alone; not the apostrophe, comma, hyphen and period.
bool is_lone(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') ||
         (c >= '(' && c <= '+') || (c >= ':' && c <= '@') || c == '/';
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (std::size_t at = 0;;) {
    const std::size_t hit = text.find(from, at);
    out.append(text.substr(at, hit - at));
    if (hit == std::string_view::npos) return out;
    out.append(to);
    at = hit + from.size();
  }
}

std::string spaced_lone(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (is_lone(c)) {
      out.append({' ', c, ' '});
    } else {
      out.push_back(c);
    }
  }
  return out;
}

// Rewrites every non-overlapping pair of neighbours that `match` accepts, from left to right, with spaces
// before, between and after as asked.
template <class Match>
std::string spaced_pairs(std::string_view text, bool before, bool after, Match match) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (i + 1 < text.size() && match(text[i], text[i + 1])) {
      if (before) out.push_back(' ');
      out.append({text[i], ' ', text[i + 1]});
      if (after) out.push_back(' ');
      i += 2;
    } else {
      out.push_back(text[i++]);
    }
  }
  return out;
}

std::string tokenize_13a(std::string_view segment) {
  static constexpr std::array<std::array<std::string_view, 2>, 7> kReplacements = {{{"<skipped>", ""},
                                                                                    {"-\n", ""},
                                                                                    {"\n", " "},
                                                                                    {"&quot;", "\""},
                                                                                    {"&amp;", "&"},
                                                                                    {"&lt;", "<"},
                                                                                    {"&gt;", ">"}}};
  std::string text(segment);
  for (const auto& [from, to] : kReplacements) text = replaced(text, from, to);
  text = spaced_lone(" " + text + " ");
  text = spaced_pairs(text, false, true, [](char a, char b) { return !is_digit(a) && is_stop(b); });
  text = spaced_pairs(text, true, false, [](char a, char b) { return is_stop(a) && !is_digit(b); });
  return spaced_pairs(text, false, true, [](char a, char b) { return is_digit(a) && b == '-'; });
}

std::u32string to_points(std::string_view text) {
  // Ill-formed bytes get values beyond Unicode, so that they survive and belong to no class.
  std::u32string points;
  for (std::size_t i = 0; i < text.size();) {
    const Decoded d = decode_utf8(text, i);
    if (d.valid) {
      points.push_back(d.code);
      i += d.length;
    } else {
      points.push_back(0x110000u + static_cast<unsigned char>(text[i++]));
    }
  }
  return points;
}

std::string to_bytes(std::u32string_view points) {
  std::string out;
  for (const char32_t code : points) {
    if (code < 0x110000) {
      data::append_utf8(out, code);
    } else {
      out.push_back(static_cast<char>(code - 0x110000));
    }
  }
  return out;
}

template <class Match>
std::u32string spaced_point_pairs(std::u32string_view text, bool before, bool after, Match match) {
  std::u32string out;
  for (std::size_t i = 0; i < text.size();) {
    if (i + 1 < text.size() && match(text[i], text[i + 1])) {
      if (before) out.push_back(U' ');
      out.append({text[i], U' ', text[i + 1]});
      if (after) out.push_back(U' ');
      i += 2;
    } else {
      out.push_back(text[i++]);
    }
  }
  return out;
}

std::string tokenize_intl(std::string_view segment) {
  std::u32string text = to_points(segment);
  text = spaced_point_pairs(text, false, true, [](char32_t a, char32_t b) {
    return !data::is_number(a) && data::is_punctuation(b);
  });
  text = spaced_point_pairs(text, true, false, [](char32_t a, char32_t b) {
    return data::is_punctuation(a) && !data::is_number(b);
  });
  std::u32string out;
  for (const char32_t code : text) {
    if (data::is_symbol(code)) {
      out.append({U' ', code, U' '});
    } else {
      out.push_back(code);
    }
  }
  return to_bytes(out);
}

std::string tokenize_char(std::string_view segment) {
  std::u32string out;
  for (const char32_t code : to_points(segment)) out.append({code, U' '});
  return to_bytes(out);
}

}  // namespace

std::string bleu_tokenize(std::string_view segment, BleuTokenizer tokenizer) {
  std::string spaced;
  switch (tokenizer) {
    case BleuTokenizer::V13a:
      spaced = tokenize_13a(segment);
      break;
    case BleuTokenizer::Intl:
      spaced = tokenize_intl(segment);
      break;
    case BleuTokenizer::Char:
      spaced = tokenize_char(segment);
      break;
    case BleuTokenizer::None:
      spaced = segment;
      break;
  }
  std::string joined;
  for (const std::string_view word : data::split_words(spaced)) {
    if (!joined.empty()) joined.push_back(' ');
    joined.append(word);
  }
  return joined;
}

}  // namespace tessera
