// Layouts: the rules' text form, presets, and the check of rules against a graph and a mesh.
#include "tessera/layout.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"

namespace tessera {
namespace {

bool is_separator(char c) {
  return c == ';' || c == ',' || c == ' ' || c == '\t' || c == '\n';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_name_char(char c) {
  return is_name_start(c) || (c >= '0' && c <= '9');
}

// Reads one layout text from left to right.
class RuleReader {
 public:
  explicit RuleReader(std::string_view text) : text_(text) {}

  Layout read() {
    Layout layout;
    for (skip(); at_ < text_.size(); skip()) {
      if (peek() == '*')
        fail("'*' stands for a dimension of every stored tensor, after 'params.' or 'slots.' only");
      std::string first = name("a dimension");
      std::vector<Rule>* rules = &layout.compute;
      if (peek() == '.') {
        if (first != "params" && first != "slots")
          fail(fmt::format("'{}.' is no rule set; use 'params.' or 'slots.'", first));
        rules = first == "params" ? &layout.params : &layout.slots;
        ++at_;
        first = peek() == '*' ? star() : name("a dimension or '*'");
      }
      rules->push_back(rest_of_rule(first));
    }
    return layout;
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip() {
    while (at_ < text_.size() && is_separator(text_[at_])) ++at_;
  }
  std::string star() {
    ++at_;
    return "*";
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(
        fmt::format("layout '{}', position {}: {}; rules look like batch:rows;vocab:rows+cols;params.*:rows",
                    text_, at_ + 1, what));
  }
  std::string name(const char* expected) {
    if (!is_name_start(peek())) fail(fmt::format("expected {}", expected));
    std::size_t begin = at_;
    while (is_name_char(peek())) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }
  Rule rest_of_rule(const std::string& dim) {
    Rule rule{.dim = dim, .axes = {}};
    if (peek() != ':') fail(fmt::format("expected ':' after '{}'", dim));
    do {
      ++at_;
      rule.axes.push_back(name("an axis"));
    } while (peek() == '+');
    if (peek() == '@') {
      ++at_;
      rule.grain = number();
    }
    if (peek() == '?') {
      ++at_;
      rule.optional = true;
    }
    if (at_ < text_.size() && !is_separator(peek())) fail(fmt::format("unexpected '{}'", peek()));
    return rule;
  }
  std::int64_t number() {
    std::int64_t value = 0;
    std::size_t begin = at_;
    while (peek() >= '0' && peek() <= '9' && at_ - begin < 12) value = value * 10 + (text_[at_++] - '0');
    if (value < 1) fail("expected a grain of at least 1 after '@'");
    return value;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

std::string rule_text(const Rule& rule, const char* prefix) {
  std::string text = fmt::format("{}{}:{}", prefix, rule.dim, fmt::join(rule.axes, "+"));
  if (rule.grain != 1) text += fmt::format("@{}", rule.grain);
  if (rule.optional) text += "?";
  return text;
}

std::string suggestion(const std::string& name, const std::vector<std::string>& candidates) {
  if (candidates.empty()) return ", nor any other";
  std::string near = nearest_name(name, candidates);
  if (!near.empty()) return fmt::format("; did you mean '{}'?", near);
  return fmt::format("; known: {}", fmt::join(candidates, ", "));
}

void check_rule(const Rule& rule, const char* prefix, const std::vector<std::string>& dims, const Mesh& mesh,
                std::vector<std::string>& remarks) {
  std::vector<std::string> axes;
  for (const Dim& axis : mesh.axes()) axes.push_back(axis.name);
  std::string text = rule_text(rule, prefix);
  std::set<std::string> seen;
  for (const std::string& axis : rule.axes) {
    TESSERA_CHECK(seen.insert(axis).second, "layout: rule '{}' names axis '{}' twice; name each axis once",
                  text, axis);
    if (mesh.find(axis) >= 0) continue;
    TESSERA_CHECK(rule.optional,
                  "layout: rule '{}': the mesh has no axis '{}'{} (a trailing '?' makes a rule optional)",
                  text, axis, suggestion(axis, axes));
    remarks.push_back(fmt::format("rule '{}' is not used: the mesh has no axis '{}'", text, axis));
  }
  if (rule.dim == "*" || std::find(dims.begin(), dims.end(), rule.dim) != dims.end()) return;
  TESSERA_CHECK(rule.optional,
                "layout: rule '{}': no tensor has a dimension '{}'{} (a trailing '?' makes a rule optional)",
                text, rule.dim, suggestion(rule.dim, dims));
  remarks.push_back(fmt::format("rule '{}' is not used: no tensor has a dimension '{}'", text, rule.dim));
}

}  // namespace

Layout Layout::parse(std::string_view text) {
  return RuleReader(text).read();
}

Layout Layout::preset_or_parse(std::string_view text, const Mesh& mesh) {
  bool preset = text == "dp" || text == "mp" || text == "dp_mp" || text == "fsdp";
  if (!preset) return parse(text);
  TESSERA_CHECK(mesh.axis_count() >= 1,
                "layout: preset '{}' needs a mesh with at least one axis, such as --mesh all:2", text);
  const std::string& data = mesh.axis_name(0);
  const std::string& model = mesh.axis_name(mesh.axis_count() - 1);
  TESSERA_CHECK(
      text != "dp_mp" || mesh.axis_count() >= 2,
      "layout: preset 'dp_mp' needs two mesh axes, such as --mesh rows:2;cols:2, but the mesh is {}",
      to_string(mesh));
  std::string model_rules = fmt::format("vocab:{0}?;d_ff:{0}?;heads:{0}?", model);
  if (text == "dp") return parse(fmt::format("batch:{}", data));
  if (text == "mp") return parse(model_rules);
  if (text == "dp_mp") return parse(fmt::format("batch:{};{}", data, model_rules));
  return parse(fmt::format("batch:{0};params.*:{0};slots.*:{0}", data));
}

const Rule* Layout::find(std::string_view dim) const {
  for (const Rule& rule : compute) {
    if (rule.dim == dim) return &rule;
  }
  return nullptr;
}

std::string to_string(const Layout& layout) {
  std::vector<std::string> rules;
  for (const Rule& rule : layout.compute) rules.push_back(rule_text(rule, ""));
  for (const Rule& rule : layout.params) rules.push_back(rule_text(rule, "params."));
  for (const Rule& rule : layout.slots) rules.push_back(rule_text(rule, "slots."));
  return fmt::format("{}", fmt::join(rules, ";"));
}

std::vector<std::string> check_layout(const Graph& graph, const Mesh& mesh, const Layout& layout) {
  std::set<std::string> names;
  for (const Node& node : graph.nodes()) {
    for (const Type& type : node.outputs) {
      for (const Dim& dim : type.shape) names.insert(dim.name);
    }
  }
  std::vector<std::string> dims(names.begin(), names.end());
  std::vector<std::string> remarks;
  auto check_set = [&](const std::vector<Rule>& rules, const char* prefix) {
    std::map<std::string, const Rule*> ruled;
    for (const Rule& rule : rules) {
      check_rule(rule, prefix, dims, mesh, remarks);
      auto [first, fresh] = ruled.emplace(rule.dim, &rule);
      TESSERA_CHECK(fresh,
                    "layout: dimension '{0}' has two rules, '{2}' and '{3}'; keep one of them (one dimension "
                    "over two axes is "
                    "written {1}{0}:a+b)",
                    rule.dim, prefix, rule_text(*first->second, prefix), rule_text(rule, prefix));
    }
  };
  check_set(layout.compute, "");
  check_set(layout.params, "params.");
  check_set(layout.slots, "slots.");
  return remarks;
}

}  // namespace tessera
