// Building a graph: names, scopes, provenance, inputs and variables.
#include "tessera/graph.h"

#include <algorithm>

#include "base/check.h"
#include "lang/structural.h"
#include "tessera/op.h"

namespace tessera {
namespace {

bool is_path(std::string_view text) {
  if (text.empty() || text.front() == '/' || text.back() == '/') return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_.-/+").find(c) != std::string_view::npos;
  });
}

std::string join(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "/" + name;
}

void check_path(const std::string& kind, const std::string& name) {
  TESSERA_CHECK(is_path(name),
                "'{}' is not a name for {}; use letters, digits and any of _ . - + with '/' between parts",
                name, kind);
}

std::string where_text(const std::string& name, const Location& where) {
  const std::string line = to_string(where);
  return line.empty() ? name : name + ", " + line;
}

}  // namespace

Location::Location(const std::source_location& where)
    : file(where.file_name()), line(static_cast<int>(where.line())) {
  const std::size_t slash = file.find_last_of("/\\");
  if (slash != std::string::npos) file.erase(0, slash + 1);
}

std::string to_string(const Location& where) {
  return where.file.empty() ? "" : fmt::format("{}:{}", where.file, where.line);
}

std::string where_text(const Node& node) {
  return where_text(node.name, node.where);
}

const Type& Tensor::type() const {
  TESSERA_CHECK(
      valid(),
      "an empty Tensor was used; it comes from no builder (or is the gradient of an input without a "
      "path to the loss)");
  return graph_->node(node_).outputs[static_cast<std::size_t>(output_)];
}

const Shape& Tensor::shape() const {
  return type().shape;
}

DType Tensor::dtype() const {
  return type().dtype;
}

std::string Tensor::name() const {
  if (!valid()) return "(empty)";
  const std::string& node = graph_->node(node_).name;
  return output_ == 0 ? node : fmt::format("{}:{}", node, output_);
}

Call call_of(const Node& node) {
  Call call{node.op, {}, node.outputs, node.attrs, where_text(node)};
  for (const Tensor& t : node.inputs) call.in.push_back(t.type());
  return call;
}

double product_flops(const Call& local) {
  double flops = 0;
  if (local.op->products == nullptr) return flops;
  for (const Product& p : local.op->products(local)) flops += p.flops();
  return flops;
}

// ---------------------------------------------------------------------------------------------- scopes and
// names

Graph::Scope::Scope(Graph& graph, const std::string& name, std::source_location where) : graph_(graph) {
  graph_.enter(name, where);
}

Graph::Scope::~Scope() {
  graph_.leave();
}

void Graph::enter(const std::string& name, const Location& where) {
  check_path("a scope", name);
  scopes_.emplace_back(path_, where);
  path_ = join(path_, name);
}

void Graph::leave() {
  path_ = scopes_.back().first;
  scopes_.pop_back();
}

Graph::OriginScope::OriginScope(Graph& graph, const std::string& path, Location where)
    : graph_(graph), old_path_(graph.path_), old_origin_(graph.origin_) {
  graph_.path_ = path;
  graph_.origin_ = std::move(where);
}

Graph::OriginScope::~OriginScope() {
  graph_.path_ = old_path_;
  graph_.origin_ = old_origin_;
}

std::string Graph::unique_name(const std::string& base) {
  if (!names_.contains(base)) return base;
  std::string name;
  do {
    name = fmt::format("{}_{}", base, ++suffixes_[base]);
  } while (names_.contains(name));
  return name;
}

Location Graph::provenance(const Location& where) const {
  if (origin_) return *origin_;
  if (scopes_.empty() || scopes_.front().second.file == where.file) return where;
  const std::string& file = scopes_.front().second.file;
  const auto innermost = std::find_if(scopes_.rbegin(), scopes_.rend(),
                                      [&](const auto& scope) { return scope.second.file == file; });
  return innermost->second;
}

// ---------------------------------------------------------------------------------------------- nodes

void Graph::check_inputs(const Op& op, const std::vector<Tensor>& inputs, const std::string& where) const {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    TESSERA_CHECK(
        inputs[i].valid(),
        "{}: input {} is an empty Tensor ({}); it comes from no builder or is a gradient without a path",
        op.name, i, where);
    TESSERA_CHECK(&inputs[i].graph() == this,
                  "{}: input {} ('{}') belongs to another graph ({}); build both in one", op.name, i,
                  inputs[i].name(), where);
    TESSERA_CHECK(
        node(inputs[i].node()).op != &kAssignOp,
        "{}: input {} ('{}') is an assignment, which has no value ({}); use the value that was assigned",
        op.name, i, inputs[i].name(), where);
  }
}

std::vector<Tensor> Graph::add(const Op& op, const std::vector<Tensor>& inputs, Attrs attrs, Location where,
                               const std::string& name) {
  if (!name.empty()) check_path("a node", name);
  Node node{&op,
            inputs,
            {},
            std::move(attrs),
            unique_name(join(path_, name.empty() ? op.name : name)),
            provenance(where),
            region_,
            recompute_,
            ""};
  check_inputs(op, inputs, where_text(node));
  try {
    node.outputs = op.infer(call_of(node));
  } catch (const UserError& error) {
    // Checks deep inside (a missing dimension, two sizes of one name) know neither the op nor the place.
    const std::string message = error.what();
    if (message.find(where_text(node)) != std::string::npos) throw;
    const bool names_op = message.rfind(std::string(op.name) + ":", 0) == 0;
    throw UserError(
        fmt::format("{}{} ({})", names_op ? "" : std::string(op.name) + ": ", message, where_text(node)));
  }
  if (op.random) node.key = node.name;
  const int id = static_cast<int>(nodes_.size());
  register_structural(node, id);
  names_.emplace(node.name, id);
  nodes_.push_back(std::move(node));
  std::vector<Tensor> outputs;
  for (std::size_t i = 0; i < nodes_.back().outputs.size(); ++i)
    outputs.emplace_back(this, id, static_cast<int>(i));
  return outputs;
}

// Inputs, variables and assignments obey rules about the graph as a whole, which no record can check.
void Graph::register_structural(const Node& node, int id) {
  if (node.op == &kInputOp || node.op == &kVariableOp) {
    const std::string& name = node.attrs.text("name");
    TESSERA_CHECK(name == node.name,
                  "{}: the name '{}' is taken already ({}); choose another or open a scope", node.op->name,
                  name, to_string(node.where));
  }
  if (node.op == &kVariableOp) {
    variable_index_.emplace(node.name, variables_.size());
    variables_.push_back(variable_of(node.attrs, id));
  }
  if (node.op == &kAssignOp) {
    const std::string& name = node.attrs.text("name");
    const Variable* variable = find_variable(name);
    TESSERA_CHECK(variable, "assign: there is no variable '{}' ({})", name, where_text(node));
    const Type& type = nodes_[static_cast<std::size_t>(variable->node)].outputs[0];
    TESSERA_CHECK(node.inputs[0].type() == type,
                  "assign: variable '{}' is {} but the value '{}' is {} ({}); convert it first", name,
                  to_string(type), node.inputs[0].name(), to_string(node.inputs[0].type()),
                  to_string(node.where));
    const auto [first, fresh] = assigned_.emplace(name, id);
    TESSERA_CHECK(
        fresh,
        "assign: variable '{}' is assigned twice ({} and {}); combine the two values into one assignment",
        name, to_string(this->node(first->second).where), to_string(node.where));
  }
}

Tensor Graph::input(const std::string& name, const Shape& shape, DType dtype, std::source_location where) {
  const std::string full = join(path_, name);
  return add(kInputOp, {}, {{"name", full}, {"shape", shape}, {"dtype", dtype}}, where, name)[0];
}

Tensor Graph::parameter(const std::string& name, const Shape& shape, Initializer init, DType dtype,
                        std::source_location where) {
  return variable(VariableKind::Parameter, name, {shape, dtype}, init, "", where);
}

Tensor Graph::variable(VariableKind kind, const std::string& name, const Type& type, Initializer init,
                       const std::string& slot_of, std::source_location where) {
  TESSERA_CHECK(kind != VariableKind::Copy, "variable '{}': working copies are made by programs ({})", name,
                to_string(Location(where)));
  return add(kVariableOp, {}, variable_attrs(kind, join(path_, name), type, init, slot_of), where, name)[0];
}

Tensor Graph::assign(Arg variable, Arg value) {
  const Tensor& target = variable.tensor;
  TESSERA_CHECK(
      target.valid() && &target.graph() == this && node(target.node()).op == &kVariableOp,
      "assign: '{}' is not a variable of this graph ({}); pass the tensor that Graph::variable returned",
      target.name(), to_string(Location(variable.where)));
  const std::string& name = node(target.node()).name;
  const OriginScope scope(*this, name, provenance(variable.where));
  return add(kAssignOp, {value.tensor}, {{"name", name}}, variable.where)[0];
}

// ---------------------------------------------------------------------------------------------- look-up

const Variable* Graph::find_variable(std::string_view name) const {
  const auto it = variable_index_.find(name);
  return it == variable_index_.end() ? nullptr : &variables_[it->second];
}

Tensor Graph::find(std::string_view name) const {
  const std::size_t colon = name.rfind(':');
  const std::string_view base = name.substr(0, colon);
  const auto it = names_.find(base);
  if (it == names_.end()) {
    std::vector<std::string> all;
    for (const auto& [known, id] : names_) all.push_back(known);
    const std::string near = nearest_name(base, all);
    throw UserError(fmt::format("the graph has no tensor '{}'{}", name,
                                near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
  }
  std::size_t output = 0;
  if (colon != std::string_view::npos) {
    const std::string_view digits = name.substr(colon + 1);
    const bool number = !digits.empty() && digits.size() < 7 &&
                        digits.find_first_not_of("0123456789") == std::string_view::npos;
    output = number ? static_cast<std::size_t>(std::stoi(std::string(digits))) : SIZE_MAX;
  }
  const std::size_t outputs = node(it->second).outputs.size();
  TESSERA_CHECK(output < outputs, "the graph has no tensor '{}': '{}' has {} output{}", name, base, outputs,
                outputs == 1 ? "" : "s");
  // Tensors are handles through which nodes may be added; a look-up in a const graph still returns one.
  return Tensor(const_cast<Graph*>(this), it->second, static_cast<int>(output));
}

void Graph::set_custom_gradient(CustomGradient custom) {
  custom_gradients_.push_back(std::move(custom));
  for (const Tensor& t : custom_gradients_.back().outputs) custom_of_[t.node()] = &custom_gradients_.back();
}

const Graph::CustomGradient* Graph::custom_gradient(int node) const {
  const auto it = custom_of_.find(node);
  return it == custom_of_.end() ? nullptr : it->second;
}

}  // namespace tessera
