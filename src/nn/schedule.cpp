// Learning-rate schedules: products of named factors, evaluated in double on the host.
#include <charconv>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "tessera/optimizer.h"

namespace tessera {
namespace {

struct Parameter {
  const char* name;
  std::optional<double> value;  // default
};

struct Kind {
  const char* name;
  std::vector<Parameter> parameters;
  double (*at)(double t, double total, const std::vector<double>& p);
};

// A number of steps, or a fraction of all steps when at most 1.
double steps(double value, double total) {
  return std::max(value > 1 ? value : value * total, 1e-12);
}

double noam(double t, double total, const std::vector<double>& p) {
  const double base = p[2] / std::sqrt(std::max({t, p[0], 1.0}));
  return p[1] > 0 ? base * std::clamp((total - t) / (p[1] * total), 0.0, 1.0) : base;
}

double slanted_triangular(double t, double total, const std::vector<double>& p) {
  const double cut = std::max(std::floor(total * p[0]), 1.0);
  const double part = t < cut ? t / cut : std::max(1 - (t - cut) / (cut * (1 / p[0] - 1)), 0.0);
  return p[2] * (1 + part * (p[1] - 1)) / p[1];
}

double cosine(double t, double total, const std::vector<double>& p) {
  const double part = total > 0 ? std::clamp(t / total, 0.0, 1.0) : 1.0;
  return p[0] + (1 - p[0]) * 0.5 * (1 + std::cos(std::numbers::pi * part));
}

double warmup_linear(double t, double total, const std::vector<double>& p) {
  const double warmup = steps(p[0], total);
  if (t + 1 <= warmup) return (t + 1) / warmup;
  return std::clamp((total - t) / std::max(total - warmup, 1.0), 0.0, 1.0);
}

const std::vector<Kind>& kinds() {
  using P = const std::vector<double>&;
  static const std::vector<Kind> list = {
      {"constant", {{"value", 1.0}}, [](double, double, P p) { return p[0]; }},
      {"linear_warmup",
       {{"steps", 10000.0}},
       [](double t, double total, P p) { return std::min(1.0, t / steps(p[0], total)); }},
      {"linear_decay",
       {{"steps", 0.1}},
       [](double t, double total, P p) { return std::clamp((total - t) / steps(p[0], total), 0.0, 1.0); }},
      {"truncated_rsqrt",
       {{"warmup", 10000.0}},
       [](double t, double, P p) {
         return 1 / std::sqrt(std::max({t, p[0], 1.0}));
       }},
      {"noam", {{"warmup", 10000.0}, {"decay", 0.1}, {"multiplier", 1.0}}, noam},
      {"slanted_triangular", {{"cut", 0.1}, {"ratio", 32.0}, {"max", 0.01}}, slanted_triangular},
      {"cosine", {{"final", 0.0}}, cosine},
      {"inverse_sqrt",
       {{"warmup", 4000.0}},
       [](double t, double total, P p) {
         const double w = steps(p[0], total);
         return std::min((t + 1) / w, std::sqrt(w / (t + 1)));
       }},
      {"warmup_linear", {{"warmup", 4000.0}}, warmup_linear},
      {"exponential",
       {{"rate", 0.3}, {"every", 20000.0}},
       [](double t, double, P p) { return std::pow(p[0], std::floor(t / std::max(p[1], 1.0))); }},
      {"adafactor", {}, [](double t, double, P) { return std::min(0.01, 1 / std::sqrt(t + 1)); }},
      {"offset", {{"steps", std::nullopt}}, nullptr},
  };
  return list;
}

const Kind& find_kind(std::string_view name, std::string_view text) {
  std::vector<std::string> names;
  for (const Kind& kind : kinds()) {
    if (kind.name == name) return kind;
    names.emplace_back(kind.name);
  }
  const std::string near = nearest_name(name, names);
  throw UserError(fmt::format("schedule '{}': there is no factor '{}'{}; the factors are numbers and {}",
                              text, name, near.empty() ? "" : fmt::format("; did you mean '{}'?", near),
                              fmt::join(names, ", ")));
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::vector<Schedule::Factor> factors() {
    std::vector<Schedule::Factor> list{factor()};
    while (take('*')) list.push_back(factor());
    skip();
    if (at_ != text_.size()) fail("'*' or the end");
    return list;
  }

 private:
  Schedule::Factor factor() {
    skip();
    if (at_ < text_.size() && (std::isdigit(static_cast<unsigned char>(text_[at_])) || text_[at_] == '.')) {
      return {"constant", {number()}};
    }
    const std::string name = word();
    const Kind& kind = find_kind(name, text_);
    std::vector<std::optional<double>> values;
    for (const Parameter& p : kind.parameters) values.push_back(p.value);
    if (take('(')) {
      if (!take(')')) arguments(kind, values);
    }
    Schedule::Factor result{name, {}};
    for (std::size_t i = 0; i < values.size(); ++i) {
      TESSERA_CHECK(values[i].has_value(), "schedule '{}': {} needs '{}'", text_, name,
                    kind.parameters[i].name);
      result.values.push_back(*values[i]);
    }
    return result;
  }

  void arguments(const Kind& kind, std::vector<std::optional<double>>& values) {
    std::size_t next = 0;
    do {
      skip();
      if (at_ < text_.size() && std::isalpha(static_cast<unsigned char>(text_[at_]))) {
        const std::string name = word();
        next = 0;
        while (next < kind.parameters.size() && kind.parameters[next].name != name) ++next;
        if (next == kind.parameters.size()) unknown(kind, name);
        if (!take('=')) fail("'='");
      }
      TESSERA_CHECK(next < values.size(), "schedule '{}': {} takes at most {} arguments", text_, kind.name,
                    values.size());
      values[next++] = number();
    } while (take(','));
    if (!take(')')) fail("',' or ')'");
  }

  [[noreturn]] void unknown(const Kind& kind, const std::string& name) {
    std::vector<std::string> names;
    for (const Parameter& p : kind.parameters) names.emplace_back(p.name);
    throw UserError(fmt::format("schedule '{}': {} has no argument '{}'; it takes {}", text_, kind.name, name,
                                fmt::join(names, ", ")));
  }

  double number() {
    skip();
    double value = 0;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc() || !std::isfinite(value) || value < 0) fail("a number that is not negative");
    at_ += static_cast<std::size_t>(end - begin);
    return value;
  }

  std::string word() {
    skip();
    const std::size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_'))
      ++at_;
    if (begin == at_) fail("a number or the name of a factor");
    return std::string(text_.substr(begin, at_ - begin));
  }

  bool take(char c) {
    skip();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }

  [[noreturn]] void fail(std::string_view expected) {
    throw UserError(fmt::format("schedule '{}', column {}: expected {}", text_, at_ + 1, expected));
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

Schedule Schedule::parse(std::string_view text) {
  Schedule schedule;
  schedule.factors_ = Reader(text).factors();
  return schedule;
}

Schedule Schedule::constant(double value) {
  Schedule schedule;
  schedule.factors_ = {{"constant", {value}}};
  return schedule;
}

double Schedule::at(double step, double total) const {
  double shift = 0, value = 1;
  for (const Factor& factor : factors_) {
    if (factor.name == "offset") shift += factor.values[0];
  }
  for (const Factor& factor : factors_) {
    if (factor.name == "offset") continue;
    value *=
        find_kind(factor.name, factor.name).at(std::max(step - shift, 0.0), total - shift, factor.values);
  }
  return value;
}

std::string to_string(const Schedule& schedule) {
  if (schedule.factors().empty()) return "1";
  std::string text;
  for (const Schedule::Factor& factor : schedule.factors()) {
    if (!text.empty()) text += " * ";
    if (factor.name == "constant") {
      text += fmt::format("{}", factor.values[0]);
      continue;
    }
    text += fmt::format("{}({})", factor.name, fmt::join(factor.values, ", "));
  }
  return text;
}

namespace {

template <class Enum, std::size_t N>
Enum parse_name(std::string_view text, const char* what, const std::pair<const char*, Enum> (&names)[N]) {
  std::vector<std::string> known;
  for (const auto& [name, value] : names) {
    if (text == name) return value;
    known.emplace_back(name);
  }
  throw UserError(fmt::format("'{}' is no {}; choose one of {}", text, what, fmt::join(known, ", ")));
}

template <class Enum, std::size_t N>
const char* name_of(Enum value, const std::pair<const char*, Enum> (&names)[N]) {
  for (const auto& [name, known] : names) {
    if (known == value) return name;
  }
  return "?";
}

constexpr std::pair<const char*, OptimizerKind> kOptimizers[] = {{"sgd", OptimizerKind::Sgd},
                                                                 {"momentum", OptimizerKind::Momentum},
                                                                 {"adam", OptimizerKind::Adam},
                                                                 {"adafactor", OptimizerKind::Adafactor}};
constexpr std::pair<const char*, NanPolicy> kPolicies[] = {{"stop", NanPolicy::Stop},
                                                           {"skip", NanPolicy::Skip}};

}  // namespace

const char* to_string(OptimizerKind kind) {
  return name_of(kind, kOptimizers);
}
OptimizerKind parse_optimizer_kind(std::string_view text) {
  return parse_name(text, "optimizer", kOptimizers);
}
const char* to_string(NanPolicy policy) {
  return name_of(policy, kPolicies);
}
NanPolicy parse_nan_policy(std::string_view text) {
  return parse_name(text, "policy for NaN", kPolicies);
}

}  // namespace tessera
