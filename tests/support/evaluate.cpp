#include "support/evaluate.h"

#include <fmt/format.h>

#include <set>
#include <stdexcept>

namespace tessera::testing {
namespace {

DType wide_dtype(DType type) {
  return is_floating(type) ? DType::F64 : type;
}

class Evaluator {
 public:
  explicit Evaluator(const EvaluateOptions& options) : options_(options) {}

  Array value(const Tensor& t) {
    compute(t.graph(), t.node());
    return values_.at(t.node()).at(static_cast<std::size_t>(t.output()));
  }

 private:
  // Nodes that `last` needs, computed in creation order: graphs are deeper than a call stack.
  void compute(const Graph& graph, int last) {
    std::set<int> needed{last};
    for (auto it = needed.rbegin(); it != needed.rend(); ++it) {
      if (values_.contains(*it)) continue;
      for (const Tensor& t : graph.node(*it).inputs) needed.insert(t.node());
    }
    for (int id : needed) {
      if (!values_.contains(id)) values_[id] = run(graph, graph.node(id));
    }
  }

  std::vector<Array> run(const Graph& graph, const Node& node) {
    if (node.op == &kInputOp) return {given(options_.feeds, node)};
    if (node.op == &kVariableOp) {
      if (options_.variables.contains(node.name)) return {given(options_.variables, node)};
      const Array drawn = initial_array(*graph.find_variable(node.name), node.outputs[0], options_.seed);
      return {options_.wide ? converted(drawn, wide_dtype(drawn.type.dtype)) : drawn};
    }
    std::vector<Array> inputs;
    for (const Tensor& t : node.inputs)
      inputs.push_back(values_.at(t.node()).at(static_cast<std::size_t>(t.output())));
    if (node.op == &kAssignOp) return {inputs[0]};
    const Call call = options_.wide ? widened(call_of(node)) : call_of(node);
    return run_op(call, inputs, {options_.seed, options_.step, node.key.empty() ? node.name : node.key});
  }

  Array given(const std::map<std::string, Array>& values, const Node& node) const {
    const auto it = values.find(node.name);
    if (it == values.end()) throw std::invalid_argument("no value for '" + node.name + "'");
    Type type = node.outputs[0];
    if (it->second.type.shape != type.shape) {
      throw std::invalid_argument(fmt::format("'{}' is {} but the value is {}", node.name, to_string(type),
                                              to_string(it->second.type)));
    }
    return converted(it->second, options_.wide ? wide_dtype(type.dtype) : type.dtype);
  }

  const EvaluateOptions& options_;
  std::map<int, std::vector<Array>> values_;
};

}  // namespace

std::vector<Array> evaluate(const std::vector<Tensor>& targets, const EvaluateOptions& options) {
  Evaluator evaluator(options);
  std::vector<Array> values;
  for (const Tensor& t : targets) values.push_back(evaluator.value(t));
  return values;
}

Array initial_array(const Variable& variable, const Type& type, std::uint64_t seed) {
  Array array(type);
  const RandomKey key = random_key(seed, variable.name, 0);
  for (std::int64_t i = 0; i < array.elements(); ++i) {
    array.set(i, initial_value(variable.init, key, static_cast<std::uint64_t>(i)));
  }
  return array;
}

std::vector<Array> run_op(const Call& call, const std::vector<Array>& inputs, const RandomState& random) {
  std::vector<Array> outputs;
  for (const Type& type : call.out) outputs.emplace_back(type);
  std::vector<View> in, out;
  for (const Array& a : inputs) in.push_back(view_of(a));
  for (const Array& a : outputs) out.push_back(view_of(a));
  KernelContext context{call, in, out, random.seed, random.step, &random.key};
  run_reference(*call.op, context);
  return outputs;
}

Call widened(const Call& call) {
  Call wide = call;
  for (Type& type : wide.in) type.dtype = wide_dtype(type.dtype);
  for (const auto& [name, value] : call.attrs) {
    if (const DType* type = std::get_if<DType>(&value)) wide.attrs.set(name, wide_dtype(*type));
  }
  wide.out.clear();
  wide.out = wide.op->infer(wide);
  return wide;
}

}  // namespace tessera::testing
