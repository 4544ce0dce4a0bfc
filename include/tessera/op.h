// The op record: everything known about an op is one constant value in one file of src/ops
// (docs/adding_an_op.md).
//
// Autodiff, lowering, cost, tests and docs derive all they need from the record; nobody switches over op
// names. The record's callbacks are pure functions and may be called from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/attrs.h"
#include "tessera/graph.h"
#include "tessera/random.h"

namespace tessera {

// What splitting a dimension of an input over mesh axes means for the op.
enum class Role : std::uint8_t {
  Map,    // each shard computes its part of the output
  Sum,    // each shard holds a pending partial sum of the outputs that lack the dimension (an output that
          // continues it: as Map)
  Max,    // ... partial maximum
  Min,    // ... partial minimum
  Joint,  // as Sum, but a shard cannot do its part alone: while the kernel runs, the shards tell each other
          // what they must know of the whole dimension (KernelContext::peers)
  Whole,  // the op must see all of the dimension: inputs are gathered, or the op is lowered through `expand`
};

// One application of an op: what most callbacks look at. Types are global in infer/role/grad, local to a
// shard in flops.
struct Call {
  const Op* op = nullptr;
  std::vector<Type> in;
  std::vector<Type> out;  // empty while infer runs
  Attrs attrs;
  std::string name;  // for messages: where_text of the node, "layer_3/ffn/wi, model.cc:88"
};

// ----------------------------------------------------------------------------------------------------
// kernels

// A shard of a tensor in memory. Sizes, starts and full sizes are per dimension of the tensor's shape, in
// order; `start` is the shard's global offset, `full` the global size. Strides count elements.
struct View {
  void* data = nullptr;
  DType dtype = DType::F32;
  Shape shape;  // local sizes
  std::vector<std::int64_t> stride;
  std::vector<std::int64_t> start;
  std::vector<std::int64_t> full;

  std::int64_t elements() const { return shape.elements(); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

// The shards that compute one call together because a dimension whose role is Joint is split. Every one of
// them makes the same calls.
class Peers {
 public:
  virtual ~Peers() = default;
  virtual int count() const = 0;
  virtual int index() const = 0;  // of this shard among them

  // What each gave as `mine`, one after the other, the number of bytes that the record's `exchange` says.
  // Lies there until the next call.
  virtual const void* all_gather(const void* mine) = 0;
};

// What a shard tells its peers while it computes a call: `times` times `bytes`.
struct Exchange {
  std::int64_t bytes = 0, times = 0;
};

struct KernelContext {
  const Call& call;  // global types
  std::span<const View> in;
  std::span<const View> out;
  std::uint64_t seed = 0;            // of the session
  std::int64_t step = 0;             // of the run
  const std::string* key = nullptr;  // random ops: the node's key name
  Peers* peers = nullptr;            // where a Joint dimension is split
};

// ---------------------------------------------------------------------------------------------------- data
// movement

// How an index of one tensor dimension is made from the refined dimensions r0, r1, ... of a Move:
//   index = offset + mixed-radix number of `parts` (major first, strides given)
struct Affine {
  struct Part {
    int refined = 0;  // which refined dimension
    std::int64_t stride = 1;
  };
  std::int64_t offset = 0;
  std::vector<Part> parts;  // empty: the index is fixed to `offset`
};

// Copies in[index_in(r)] to out[index_out(r)] for all r in the box of `extent`. Pure data movement (slice,
// pad, concat, split, stack, reshape, broadcast, rename): the same description serves the local kernel and
// the exchange between ranks. In one dimension either one part of any stride, or several parts that form a
// contiguous mixed-radix number.
struct Move {
  int input = 0;
  int output = 0;
  std::vector<std::int64_t> extent;
  std::vector<Affine> in;   // per input dimension
  std::vector<Affine> out;  // per output dimension
};

// ---------------------------------------------------------------------------------------------------- scalar
// code

// The scalar program of a component-wise op: static single assignment over registers; the first registers are
// the inputs, instruction i writes register inputs + i, the last `results` instructions' values are the
// outputs (usually one).
enum class Scalar : std::uint8_t {
  Const,
  Neg,
  Abs,
  Sign,
  Sqrt,
  Rsqrt,
  Reciprocal,
  Exp,
  Expm1,
  Log,
  Log1p,
  Sin,
  Cos,
  Tanh,
  Sigmoid,
  Erf,
  Floor,
  Add,
  Sub,
  Mul,
  Div,
  FloorDiv,
  Mod,
  Min,
  Max,
  Pow,  // Min and Max give NaN if either is NaN
  Less,
  LessEqual,
  Equal,
  NotEqual,
  And,
  Or,
  Not,     // give 0 or 1
  Select,  // a != 0 ? b : c, without arithmetic on the other branch
  Cast,    // to `type`
};

struct Instruction {
  Scalar op = Scalar::Const;
  int a = -1, b = -1, c = -1;  // registers
  double value = 0;            // Const
  DType type = DType::F32;     // type of the result
};

struct ScalarCode {
  int inputs = 0;
  std::vector<Instruction> code;
  std::vector<int> results;  // registers, one per output
};

// Evaluates in double (i32 and bool exactly); the oracle of fused loops.
std::vector<double> interpret(const ScalarCode& code, std::span<const double> inputs);

// ----------------------------------------------------------------------------------------------------
// gradients, expansion

// What a record's `grad` sees: the node's tensors and the gradients of its outputs. It builds ordinary ops.
struct GradContext {
  Graph& graph;
  const Node& node;
  std::vector<Tensor> outputs;       // of the node
  std::vector<Tensor> output_grads;  // invalid Tensor where no gradient arrives
  std::vector<Tensor> input_grads;   // to be filled; leave invalid where there is none
  bool through_expansion = false;    // set it to have the record's expansion differentiated instead

  const Tensor& in(int i) const { return node.inputs[static_cast<std::size_t>(i)]; }
  const Tensor& out(int i = 0) const { return outputs[static_cast<std::size_t>(i)]; }
  const Tensor& dy(int i = 0) const { return output_grads[static_cast<std::size_t>(i)]; }
  void set(int i, const Tensor& dx) { input_grads[static_cast<std::size_t>(i)] = dx; }
};

// What a record's `expand` sees: the same computation must be built from other ops in `graph` (a scratch
// graph).
struct ExpandContext {
  Graph& graph;
  const Call& call;
  std::vector<Tensor> inputs;  // in the scratch graph
  // Number of parts of each split dimension whose role is Whole; 1 for every dimension when used as an
  // oracle.
  std::map<std::string, std::int64_t> parts;
  Location where;

  std::int64_t parts_of(const std::string& dim) const {
    auto it = parts.find(dim);
    return it == parts.end() ? 1 : it->second;
  }
};

// ----------------------------------------------------------------------------------------------------
// samples

// One small call that the generated tests use: input types by text, attributes, value range of each input.
struct Sample {
  std::vector<std::string> in;  // "f32[batch:4;hidden:6]"; floating types are also run as f64
  Attrs attrs = {};
  double low = -2, high = 2;  // range of floating values (kept away from kinks by the record's choice)
  double index_high = 0;      // i32 inputs: drawn from [index_low, index_high); 0: from [0, 4)
  double index_low = 0;
};

// ---------------------------------------------------------------------------------------------------- the
// record

// A matrix product that an op consists of: c[batch, m, n] = a[batch, m, k] b[batch, k, n].
struct Product {
  DType dtype = DType::F32;
  std::int64_t batch = 1, m = 1, n = 1, k = 1;
  double times = 1;  // how often it is computed; less than once where masks hide the rest

  double flops() const { return 2 * times * static_cast<double>(batch * m * n * k); }
  auto operator<=>(const Product&) const = default;
};

// What the time and the memory traffic of a program's steps are booked under when they are explained.
enum class StepClass : std::uint8_t {
  Contraction,
  Attention,
  Loss,
  ComponentWise,  // and norms, reductions: whatever is nothing else
  Update,         // reduction of the gradients, and the optimizer
  Embedding,      // rows looked up by index, and their gradients
  Movement,       // communication of everything but gradients, copies
};
const char* to_string(StepClass c);  // "norms and component-wise", ...

using Names = std::vector<std::string>;
using Renames = std::vector<std::pair<std::string, std::string>>;

struct Op {
  const char* name;
  const char* doc;

  // Output types. Throws UserError (use call.name in the message) when the inputs do not fit.
  std::vector<Type> (*infer)(const Call&);

  // Role of dimension `dim` of input `input`. nullptr: Map everywhere.
  Role (*role)(const Call&, int input, const std::string& dim) = nullptr;

  // Ops with a dimension of role Joint: what one shard tells the others (call has local types; they do not
  // depend on how the dimension is cut).
  Exchange (*exchange)(const Call&) = nullptr;

  // A dimension of the output that continues no input dimension: Map (made where home cuts it, from
  // View::start) or Whole (made whole). nullptr: Map.
  Role (*made)(const Call&, int output, const std::string& dim) = nullptr;

  // Input dimension -> output dimension that continues it, when the names differ. Sizes may differ (one
  // element per part).
  Renames (*renames)(const Call&) = nullptr;

  // Dimensions whose size differs between tensors of the call: an output dimension of that name continues an
  // input dimension only if the sizes are equal.
  Names (*resized)(const Call&) = nullptr;

  // Pairs (d, p): dimension p of an input has one element per part of d and is cut together with it.
  Renames (*aligned)(const Call&) = nullptr;

  // True when the op is linear in that input while the others are complete: pending sums may flow through.
  // nullptr: never.
  bool (*linear)(const Call&, int input) = nullptr;
  bool additive =
      false;  // linear in all inputs together (add, concat): all must be pending; else (mul) just one may be

  // Builds the gradient. nullptr: no gradient flows (integer ops, comparisons, random sources).
  void (*grad)(GradContext&) = nullptr;

  // Naive reference for one shard; the oracle. Must handle empty shards and every dtype that infer accepts.
  // Random ops, one-hot, range, gather and the like use View::start. Not needed when `moves` or `scalar` is
  // given.
  void (*kernel)(KernelContext&) = nullptr;

  // Data movement ops: the copies; output elements that no copy writes get `fill`.
  std::vector<Move> (*moves)(const Call&) = nullptr;
  double fill = 0;

  // Component-wise ops: the scalar code (inputs broadcast by name).
  ScalarCode (*scalar)(const Call&) = nullptr;

  // Ops that add up their only input over the dimensions that the output lacks: what the sum is divided by.
  // The loop that makes the input may do it.
  double (*sum_divisor)(const Call&) = nullptr;

  // Fused ops: the same from primitives; used when a Whole dimension is split, and as the oracle. Random ops
  // among them draw with the key of the op that they stand for.
  std::vector<Tensor> (*expand)(ExpandContext&) = nullptr;

  // Floating-point operations of one shard (call has local types). nullptr: one per output element.
  double (*flops)(const Call&) = nullptr;

  // Contractions: the matrix products of one shard (call has local types). An axis that splits nothing in
  // them is reported as repeated work, and their own time on this machine is the floor of the op's. nullptr:
  // none.
  std::vector<Product> (*products)(const Call&) = nullptr;
  // The product of two inputs, summed over the dimensions that the output lacks, and nothing else.
  bool contraction = false;

  bool exact = true;  // small-integer data give the same bits on every layout
  double ulps = 4;    // otherwise: units in the last place that layouts may differ by, on values of order one
  bool random = false;  // draws from Node::key

  // What the op's steps are booked under. ComponentWise: what they are (contractions where there are
  // products).
  StepClass step_class = StepClass::ComponentWise;

  std::vector<Sample> (*samples)() = nullptr;
};

// The structural ops of the language itself, defined with Graph.
extern const Op kInputOp;     // "input"; attrs: name, shape, dtype
extern const Op kVariableOp;  // "variable"; attrs: name, kind, of, shape, dtype, init, a, b
extern const Op kAssignOp;  // "assign"; attrs: name (of the variable); input: the new value. Its output is a
                            // scalar that only Session::compile may use: Graph::add refuses it as an input

inline Role role_of(const Call& call, int input, const std::string& dim) {
  return call.op->role ? call.op->role(call, input, dim) : Role::Map;
}

// The Call of a node, with global types.
Call call_of(const Node& node);

// Floating-point operations in the matrix products of a shard; 0 for an op without any.
double product_flops(const Call& local);

}  // namespace tessera
