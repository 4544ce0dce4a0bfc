// Calls and inputs for the tests that are generated from op records.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "support/array.h"
#include "support/evaluate.h"
#include "tessera/op.h"

namespace tessera::testing {

// One sample of a record with its element types settled.
struct SampleCase {
  const Op* op = nullptr;
  Sample sample;
  std::vector<Type> in;
  Attrs attrs;

  std::string text() const;  // "softmax(f32[a:2;b:3]) {dim=...}"
  Call call() const;         // throws UserError when the record does not accept it
  bool accepted() const;
};

// Every sample of the record, as written and with its floating types replaced by f32, bf16 and f64 where
// infer accepts it.
std::vector<SampleCase> cases_of(const Op& op);
std::vector<SampleCase> cases_of(const Op& op, DType floating);  // only with this floating type

// The case with dimension `dim` of size `from` resized in all inputs and in shape attributes; nullopt when
// the record does not accept it.
std::optional<SampleCase> resized(const SampleCase& c, const std::string& dim, std::int64_t from,
                                  std::int64_t to);

enum class Fill {
  Reals,     // distinct values in [low, high], at least 1e-3 away from each other and from integers
  Integers,  // small whole numbers in [low, high]
};

// One array per input; i32 inputs are drawn from the sample's index range, bool ones are mixed. Equal
// arguments give equal values.
std::vector<Array> inputs_of(const SampleCase& c, Fill fill, std::uint64_t seed = 1);

// Outputs of the record's `expand`, evaluated node by node.
std::vector<Array> run_expansion(const Call& call, const std::vector<Array>& inputs);

// Records that only make sense inside an expansion that splits a dimension (their results depend on the
// number of parts): the tests of the expanded op cover them.
bool depends_on_parts(const SampleCase& c);

// Names of all dimensions of the inputs, with their sizes, each pair once.
std::vector<Dim> input_dims(const Call& call);

// Boundaries of uneven cuts of `size`: two and three parts, one empty, and one part alone.
std::vector<std::vector<std::int64_t>> uneven_cuts(std::int64_t size);

}  // namespace tessera::testing
