// Evaluates small graphs on one processor from the op records alone: the oracle of tests that must not depend
// on the executor.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "lang/reference.h"
#include "tessera/array.h"
#include "tessera/ops.h"
#include "tessera/random.h"

namespace tessera::nn_testing {

class Evaluator {
 public:
  std::map<std::string, Array> variables;  // made on first use from their initialisers
  std::uint64_t seed = 1;
  std::int64_t step = 0;

  // Values of the targets; assignments among them take effect at the end (and give an empty Array).
  std::vector<Array> run(const std::vector<Tensor>& targets, const std::map<std::string, Array>& feeds = {}) {
    const Graph& graph = targets.at(0).graph();
    std::set<int> needed;
    for (const Tensor& t : targets) need(graph, t.node(), needed);
    std::map<int, std::vector<Array>> values;
    std::vector<std::pair<std::string, int>> assigned;
    for (const int id : needed) compute(graph, id, feeds, values, assigned);
    std::vector<Array> results;
    for (const Tensor& t : targets) {
      const bool is_assign = graph.node(t.node()).op == &kAssignOp;
      results.push_back(is_assign ? Array() : values.at(t.node())[static_cast<std::size_t>(t.output())]);
    }
    for (const auto& [name, id] : assigned) {
      const Tensor& value = graph.node(id).inputs[0];
      variables[name] = values.at(value.node())[static_cast<std::size_t>(value.output())];
    }
    return results;
  }

  double scalar(const Tensor& t, const std::map<std::string, Array>& feeds = {}) {
    return run({t}, feeds)[0].get(0);
  }

 private:
  static void need(const Graph& graph, int id, std::set<int>& needed) {
    std::vector<int> open{id};
    while (!open.empty()) {
      const int next = open.back();
      open.pop_back();
      if (!needed.insert(next).second) continue;
      for (const Tensor& t : graph.node(next).inputs) open.push_back(t.node());
    }
  }

  void compute(const Graph& graph, int id, const std::map<std::string, Array>& feeds,
               std::map<int, std::vector<Array>>& values,
               std::vector<std::pair<std::string, int>>& assigned) {
    const Node& node = graph.node(id);
    if (node.op == &kInputOp) {
      values[id] = {feeds.at(node.name)};
    } else if (node.op == &kVariableOp) {
      if (!variables.contains(node.name))
        variables[node.name] = initial(*graph.find_variable(node.name), node.outputs[0]);
      values[id] = {variables.at(node.name)};
    } else if (node.op == &kAssignOp) {
      assigned.emplace_back(node.attrs.text("name"), id);
    } else {
      execute(node, id, values);
    }
  }

  void execute(const Node& node, int id, std::map<int, std::vector<Array>>& values) {
    std::vector<View> in, out;
    for (const Tensor& t : node.inputs) {
      Array& array = values.at(t.node())[static_cast<std::size_t>(t.output())];
      in.push_back(make_view(array.data.data(), array.type));
    }
    std::vector<Array>& results = values[id];
    for (const Type& type : node.outputs) results.emplace_back(type);
    for (Array& array : results) out.push_back(make_view(array.data.data(), array.type));
    const Call call = call_of(node);
    KernelContext context{call, in, out, seed, step, node.key.empty() ? nullptr : &node.key};
    run_reference(*node.op, context);
  }

  Array initial(const Variable& variable, const Type& type) const {
    Array array(type);
    const Initializer& init = variable.init;
    const RandomKey key = random_key(seed, variable.name, 0);
    for (std::int64_t i = 0; i < array.elements(); ++i) {
      const auto index = static_cast<std::uint64_t>(i);
      double value = 0;
      switch (init.kind) {
        case Initializer::Kind::Zeros:
          break;
        case Initializer::Kind::Constant:
          value = init.a;
          break;
        case Initializer::Kind::Normal:
          value = init.a * random_normal_at(key, index);
          break;
        case Initializer::Kind::TruncatedNormal:
          value = init.a * random_truncated_normal_at(key, index);
          break;
        case Initializer::Kind::Uniform:
          value = init.a + (init.b - init.a) * random_uniform_at(key, index);
          break;
      }
      array.set(i, value);
    }
    return array;
  }
};

inline std::vector<double> values_of(const Array& array) {
  std::vector<double> list;
  for (std::int64_t i = 0; i < array.elements(); ++i) list.push_back(array.get(i));
  return list;
}

}  // namespace tessera::nn_testing
