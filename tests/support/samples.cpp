#include "support/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lang/text.h"
#include "tessera/error.h"
#include "tessera/random.h"

namespace tessera::testing {
namespace {

Type parse_type(const std::string& text) {
  return TextReader(text, "sample '" + text + "'").type();
}

SampleCase with_floating(const Op& op, const Sample& sample, std::optional<DType> floating) {
  SampleCase c{&op, sample, {}, sample.attrs};
  for (const std::string& text : sample.in) {
    Type type = parse_type(text);
    if (floating && is_floating(type.dtype)) type.dtype = *floating;
    c.in.push_back(type);
  }
  for (const auto& [name, value] : sample.attrs) {
    const DType* type = std::get_if<DType>(&value);
    if (floating && type && is_floating(*type)) c.attrs.set(name, *floating);
  }
  return c;
}

bool known(const std::vector<SampleCase>& cases, const SampleCase& c) {
  return std::any_of(cases.begin(), cases.end(),
                     [&](const SampleCase& o) { return o.in == c.in && o.attrs == c.attrs; });
}

std::vector<SampleCase> collect(const Op& op, const std::vector<std::optional<DType>>& types) {
  std::vector<SampleCase> cases;
  if (!op.samples) return cases;
  for (const Sample& sample : op.samples()) {
    for (const auto& type : types) {
      const SampleCase c = with_floating(op, sample, type);
      if (!known(cases, c) && (!type || c.accepted())) cases.push_back(c);
    }
  }
  return cases;
}

Shape resized_shape(const Shape& shape, const std::string& dim, std::int64_t from, std::int64_t to) {
  return shape.has(dim) && shape.size(dim) == from ? shape.replaced(dim, {dim, to}) : shape;
}

// Slot k of n equal slots of the range, moved off the kinks that sit at whole numbers.
double real_value(const Sample& sample, std::uint64_t slot, std::uint64_t slots) {
  const double value = sample.low + (sample.high - sample.low) * (static_cast<double>(slot) + 0.5) /
                                        static_cast<double>(slots);
  const double gap = value - std::round(value);
  return std::abs(gap) < 1e-3 ? value + 2e-3 : value;
}

double whole_value(double low, double high, std::uint64_t draw) {
  const auto first = static_cast<std::int64_t>(std::ceil(low));
  const auto count = static_cast<std::uint64_t>(std::max<double>(1, std::floor(high) - std::ceil(low) + 1));
  return static_cast<double>(first + static_cast<std::int64_t>(draw % count));
}

}  // namespace

std::string SampleCase::text() const {
  std::string result = std::string(op->name) + "(";
  for (std::size_t i = 0; i < in.size(); ++i) result += (i ? ", " : "") + to_string(in[i]);
  result += ")";
  for (const auto& [name, value] : attrs) result += fmt::format(" {}={}", name, to_string(value));
  return result;
}

Call SampleCase::call() const {
  Call call{op, in, {}, attrs, text()};
  call.out = op->infer(call);
  return call;
}

bool SampleCase::accepted() const {
  try {
    call();
    return true;
  } catch (const UserError&) {
    return false;
  }
}

std::vector<SampleCase> cases_of(const Op& op) {
  return collect(op, {std::nullopt, DType::F32, DType::BF16, DType::F64});
}

std::vector<SampleCase> cases_of(const Op& op, DType floating) {
  return collect(op, {floating});
}

std::optional<SampleCase> resized(const SampleCase& c, const std::string& dim, std::int64_t from,
                                  std::int64_t to) {
  SampleCase result = c;
  for (Type& type : result.in) type.shape = resized_shape(type.shape, dim, from, to);
  for (const auto& [name, value] : c.attrs) {
    if (const Shape* shape = std::get_if<Shape>(&value))
      result.attrs.set(name, resized_shape(*shape, dim, from, to));
  }
  if (!result.accepted()) return std::nullopt;
  return result;
}

std::vector<Array> inputs_of(const SampleCase& c, Fill fill, std::uint64_t seed) {
  std::uint64_t slots = 0;
  for (const Type& type : c.in) slots += static_cast<std::uint64_t>(type.shape.elements());
  const RandomKey key = random_key(seed, c.op->name, 0);
  const double index_high = c.sample.index_high == 0 ? 4 : c.sample.index_high;
  std::vector<Array> inputs;
  std::uint64_t next = 0;
  for (const Type& type : c.in) {
    Array array(type);
    for (std::int64_t i = 0; i < array.elements(); ++i, ++next) {
      const std::uint64_t draw = philox(key, next)[0];
      if (type.dtype == DType::Bool) {
        array.set(i, static_cast<double>(draw % 2));
      } else if (type.dtype == DType::I32) {
        array.set(i, whole_value(c.sample.index_low, index_high - 1, draw));
      } else if (fill == Fill::Integers) {
        array.set(i, whole_value(c.sample.low, c.sample.high, draw));
      } else {
        array.set(i, real_value(c.sample, random_permutation_at(key, next, slots), slots));
      }
    }
    inputs.push_back(std::move(array));
  }
  return inputs;
}

std::vector<Array> run_expansion(const Call& call, const std::vector<Array>& inputs) {
  Graph graph;
  EvaluateOptions options;
  ExpandContext context{graph, call, {}, {}, {}};
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = fmt::format("input_{}", i);
    context.inputs.push_back(graph.input(name, inputs[i].type.shape, inputs[i].type.dtype));
    options.feeds[name] = inputs[i];
  }
  const std::vector<Tensor> outputs = call.op->expand(context);
  const RandomState random;  // that of run_op
  options.seed = random.seed, options.step = random.step;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    Node& node = graph.mutable_node(static_cast<int>(i));
    if (node.op->random) node.key = random.key;
  }
  return evaluate(outputs, options);
}

bool depends_on_parts(const SampleCase& c) {
  return c.op->aligned || c.attrs.has("parts");
}

std::vector<Dim> input_dims(const Call& call) {
  std::vector<Dim> dims;
  for (const Type& type : call.in) {
    for (const Dim& d : type.shape) {
      if (std::find(dims.begin(), dims.end(), d) == dims.end()) dims.push_back(d);
    }
  }
  return dims;
}

std::vector<std::vector<std::int64_t>> uneven_cuts(std::int64_t size) {
  std::vector<std::vector<std::int64_t>> cuts;
  if (size >= 2) cuts.push_back({0, size / 2 + (size > 2 ? 1 : 0), size});
  if (size >= 1) cuts.push_back({0, 1, 1, size});
  cuts.push_back({0, 0, size});
  cuts.push_back({0, size, size, size});
  return cuts;
}

}  // namespace tessera::testing
