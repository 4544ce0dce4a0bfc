// The text form of a graph: one line a node, in creation order. docs/language.md has the grammar.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "lang/text.h"
#include "tessera/graph.h"
#include "tessera/op.h"

namespace tessera {
namespace {

constexpr std::string_view kHeader = "tessera graph 1";
constexpr std::array<const char*, 3> kRegions{"forward", "backward", "update"};

std::string node_text(const Node& node) {
  std::string text = fmt::format("{} = {}(", node.name, node.op->name);
  for (std::size_t i = 0; i < node.inputs.size(); ++i) text += (i ? ", " : "") + node.inputs[i].name();
  text += ")";
  if (node.attrs.begin() != node.attrs.end()) {
    text += " {";
    for (auto it = node.attrs.begin(); it != node.attrs.end(); ++it) {
      text += fmt::format("{}{}={}", it == node.attrs.begin() ? "" : ", ", it->first, to_string(it->second));
    }
    text += "}";
  }
  for (std::size_t i = 0; i < node.outputs.size(); ++i)
    text += (i ? ", " : " : ") + to_string(node.outputs[i]);
  if (!node.where.file.empty()) text += " at " + quote(to_string(node.where));
  if (node.region != Region::Forward)
    text += fmt::format(" region={}", kRegions[static_cast<std::size_t>(node.region)]);
  if (node.recompute != 0) text += fmt::format(" group={}", node.recompute);
  if (!node.key.empty() && node.key != node.name) text += " key=" + quote(node.key);
  return text;
}

// One parsed line before it becomes a node.
struct Line {
  std::string name;
  const Op* op = nullptr;
  std::vector<Tensor> inputs;
  Attrs attrs;
  std::vector<Type> outputs;
  Location where;
  Region region = Region::Forward;
  int group = 0;
  std::string key;
};

class Parser {
 public:
  Parser(std::span<const Op* const> table, Graph& graph) : table_(table), graph_(graph) {}

  void parse(std::string_view text) {
    bool header = false;
    int number = 0;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      what_ = fmt::format("graph text, line {}", ++number);
      TextReader reader(line, what_);
      if (reader.done() || reader.take("#")) continue;
      if (!header) {
        if (!reader.take(kHeader) || !reader.done())
          fail(fmt::format("the text must begin with '{}'", kHeader));
        header = true;
      } else {
        parse_line(reader);
      }
    }
    TESSERA_CHECK(header, "graph text: it is empty; it must begin with '{}'", kHeader);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw UserError(fmt::format("{}: {}", what_, message));
  }

  void parse_line(TextReader& reader) {
    const std::string first = reader.word();
    if (first == "recompute" && !reader.take("=")) return recompute_range(reader);
    if (first != "recompute") reader.expect("=");
    Line line;
    line.name = first;
    line.op = find_op(reader.name());
    reader.expect("(");
    if (!reader.take(")")) {
      do {
        line.inputs.push_back(find_input(reader.word()));
      } while (reader.take(","));
      reader.expect(")");
    }
    if (reader.take("{")) read_attrs(reader, line.attrs);
    if (reader.take(":")) {
      do {
        line.outputs.push_back(reader.type());
      } while (reader.take(","));
    }
    read_tail(reader, line);
    add(line);
  }

  void recompute_range(TextReader& reader) {
    const std::int64_t first = reader.integer(), last = reader.integer();
    if (!reader.done()) reader.fail("the end of the line");
    const auto count = static_cast<std::int64_t>(graph_.nodes().size());
    if (first < 0 || first > last || last > count) {
      fail(fmt::format("recompute {} {} is no range of the {} nodes above", first, last, count));
    }
    graph_.add_recompute_range({static_cast<int>(first), static_cast<int>(last)});
  }

  const Op* find_op(const std::string& name) const {
    std::vector<const Op*> all{&kInputOp, &kVariableOp, &kAssignOp};
    all.insert(all.end(), table_.begin(), table_.end());
    std::vector<std::string> names;
    for (const Op* op : all) {
      if (name == op->name) return op;
      names.emplace_back(op->name);
    }
    const std::string near = nearest_name(name, names);
    fail(fmt::format("there is no op '{}'{}", name,
                     near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
  }

  Tensor find_input(const std::string& name) const {
    try {
      return graph_.find(name);
    } catch (const UserError& error) {
      fail(error.what());
    }
  }

  static void read_attrs(TextReader& reader, Attrs& attrs) {
    do {
      const std::string name = reader.name();
      reader.expect("=");
      attrs.set(name, reader.value());
    } while (reader.take(","));
    reader.expect("}");
  }

  void read_tail(TextReader& reader, Line& line) const {
    if (reader.take("at")) {
      const std::string where = reader.string();
      const std::size_t colon = where.rfind(':');
      const std::string digits = colon == std::string::npos ? "" : where.substr(colon + 1);
      if (digits.empty() || digits.size() > 9 ||
          digits.find_first_not_of("0123456789") != std::string::npos) {
        fail(fmt::format("'{}' is no place; write \"file:line\"", where));
      }
      line.where = Location(where.substr(0, colon), std::stoi(digits));
    }
    if (reader.take("region=")) {
      const std::string region = reader.name();
      const auto it = std::find(kRegions.begin(), kRegions.end(), region);
      if (it == kRegions.end())
        fail(fmt::format("'{}' is no region; use forward, backward or update", region));
      line.region = static_cast<Region>(it - kRegions.begin());
    }
    if (reader.take("group=")) line.group = static_cast<int>(reader.integer());
    if (reader.take("key=")) line.key = reader.string();
    if (!reader.done()) reader.fail("the end of the line");
  }

  void add(const Line& line) {
    std::vector<Tensor> made;
    try {
      const Graph::RegionScope region(graph_, line.region, line.group);
      made = graph_.add(*line.op, line.inputs, line.attrs, line.where, line.name);
    } catch (
        const Error& error) {  // a missing attribute is an internal error of builders, but here the text's
      fail(error.what());
    }
    const int id = static_cast<int>(graph_.nodes().size()) - 1;
    Node& node = graph_.mutable_node(id);
    if (node.name != line.name) fail(fmt::format("the name '{}' occurs twice", line.name));
    if (!line.outputs.empty() && line.outputs != node.outputs) {
      fail(fmt::format("'{}' is written as {} but its inputs give {}", line.name, to_string(line.outputs[0]),
                       to_string(node.outputs[0])));
    }
    if (!line.key.empty()) node.key = line.key;
    while (groups_ < line.group) groups_ = graph_.next_recompute_group();
  }

  std::span<const Op* const> table_;
  Graph& graph_;
  std::string what_;
  int groups_ = 0;
};

}  // namespace

std::string to_string(const Graph& graph) {
  std::string text = std::string(kHeader) + "\n";
  const auto& nodes = graph.nodes();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (graph.custom_gradient(static_cast<int>(i))) {
      text += "# the gradient function of the next node is not part of the text\n";
    }
    text += node_text(nodes[i]) + "\n";
  }
  for (const auto& [first, last] : graph.recompute_ranges())
    text += fmt::format("recompute {} {}\n", first, last);
  return text;
}

void parse_graph(std::string_view text, std::span<const Op* const> table, Graph& into) {
  TESSERA_CHECK(into.nodes().empty() && into.scope_path().empty(),
                "parse_graph: the graph has {} nodes already; parse into a new one", into.nodes().size());
  Parser(table, into).parse(text);
}

}  // namespace tessera
