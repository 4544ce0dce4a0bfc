// Perplexity from a total of nats and the counts it was summed over.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "data/utf8.h"
#include "tessera/metrics.h"

namespace tessera {
namespace {

double ratio(double nats, std::int64_t count) {
  return count > 0 ? nats / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

double Perplexity::nats_per_token() const {
  return ratio(nats, tokens);
}
double Perplexity::per_token() const {
  return std::exp(ratio(nats, tokens));
}
double Perplexity::per_word() const {
  return std::exp(ratio(nats, words));
}
double Perplexity::bits_per_byte() const {
  return ratio(nats, bytes) / std::log(2.0);
}

void Perplexity::count_text(std::string_view sentence) {
  words += count_words(sentence) + 1;
  bytes += static_cast<std::int64_t>(sentence.size()) + 1;
}

Perplexity& Perplexity::operator+=(const Perplexity& other) {
  nats += other.nats;
  tokens += other.tokens;
  words += other.words;
  bytes += other.bytes;
  return *this;
}

std::string to_string(const Perplexity& p) {
  return fmt::format(
      "perplexity {:.2f} per token ({} tokens), {:.2f} per word ({} words: between white space, plus one end "
      "per sentence), "
      "{:.4f} bits per byte ({} bytes)",
      p.per_token(), p.tokens, p.per_word(), p.words, p.bits_per_byte(), p.bytes);
}

std::int64_t count_words(std::string_view text) {
  return static_cast<std::int64_t>(data::split_words(text).size());
}

}  // namespace tessera
