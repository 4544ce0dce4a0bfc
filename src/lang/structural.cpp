// Records of input, variable and assign. All that is known of a variable stands in its node's attributes, so
// that the text form of a graph carries it.
#include "lang/structural.h"

#include <array>

#include "base/check.h"
#include "tessera/op.h"

namespace tessera {
namespace {

constexpr std::array<const char*, 4> kKinds{"parameter", "slot", "state", "accumulator"};
constexpr std::array<const char*, 5> kInits{"zeros", "constant", "normal", "truncated_normal", "uniform"};

template <class Enum, std::size_t N>
Enum parse_enum(const std::array<const char*, N>& names, const std::string& text, const char* what) {
  for (std::size_t i = 0; i < N; ++i) {
    if (text == names[i]) return static_cast<Enum>(i);
  }
  throw UserError(
      fmt::format("variable: '{}' is not a {}; use one of {}", text, what, fmt::join(names, ", ")));
}

template <class T>
void require(const Call& call, const char* name) {
  for (const auto& [known, value] : call.attrs) {
    if (known == name && std::holds_alternative<T>(value)) return;
  }
  throw UserError(
      fmt::format("{}: attribute '{}' is missing or of another type ({})", call.op->name, name, call.name));
}

std::vector<Type> infer_source(const Call& call) {
  require<std::string>(call, "name");
  require<Shape>(call, "shape");
  require<DType>(call, "dtype");
  TESSERA_CHECK(call.in.empty(), "{}: takes no inputs but has {} ({})", call.op->name, call.in.size(),
                call.name);
  return {{call.attrs.shape("shape"), call.attrs.dtype("dtype")}};
}

std::vector<Type> infer_variable(const Call& call) {
  for (const char* text : {"kind", "of", "init"}) require<std::string>(call, text);
  for (const char* number : {"a", "b"}) require<double>(call, number);
  variable_of(call.attrs, -1);
  return infer_source(call);
}

std::vector<Type> infer_assign(const Call& call) {
  require<std::string>(call, "name");
  TESSERA_CHECK(call.in.size() == 1, "assign: takes one value but has {} ({})", call.in.size(), call.name);
  return {{Shape(), call.in[0].dtype}};
}

}  // namespace

constinit const Op kInputOp{
    .name = "input", .doc = "A tensor whose value is fed at each run.", .infer = infer_source};
constinit const Op kVariableOp{
    .name = "variable", .doc = "The value of a variable before the run.", .infer = infer_variable};
constinit const Op kAssignOp{
    .name = "assign", .doc = "Sets a variable at the end of the run.", .infer = infer_assign};

Attrs variable_attrs(VariableKind kind, const std::string& name, const Type& type, const Initializer& init,
                     const std::string& slot_of) {
  return {{"name", name},        {"kind", std::string(kKinds[static_cast<std::size_t>(kind)])},
          {"of", slot_of},       {"shape", type.shape},
          {"dtype", type.dtype}, {"init", std::string(kInits[static_cast<std::size_t>(init.kind)])},
          {"a", init.a},         {"b", init.b}};
}

Variable variable_of(const Attrs& attrs, int node) {
  Variable variable;
  variable.name = attrs.text("name");
  variable.kind = parse_enum<VariableKind>(kKinds, attrs.text("kind"), "kind of variable");
  variable.slot_of = attrs.text("of");
  variable.init = {parse_enum<Initializer::Kind>(kInits, attrs.text("init"), "kind of initial value"),
                   attrs.number("a"), attrs.number("b")};
  variable.node = node;
  return variable;
}

}  // namespace tessera
