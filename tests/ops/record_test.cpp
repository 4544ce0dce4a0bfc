// What every record must have, and that its reference runs on every sample, in every type, with every
// dimension empty.
#include <fmt/format.h>

#include <set>

#include "support/op_param.h"
#include "support/samples.h"
#include "tessera/error.h"

namespace tessera::testing {
namespace {

class Record : public EveryOp {};

TEST_P(Record, IsComplete) {
  EXPECT_STRNE(op().doc, "");
  EXPECT_TRUE(op().infer);
  EXPECT_TRUE(op().kernel || op().scalar || op().moves) << "no reference";
  ASSERT_TRUE(op().samples) << "a record without samples is not tested at all";
  EXPECT_FALSE(op().samples().empty());
  EXPECT_EQ(find_op(op().name), &op());
}

// Every dimension of the inputs should be longer than one in some sample, else no test can cut it; and
// something must be uneven.
TEST_P(Record, SamplesCanBeCutUnevenly) {
  ASSERT_TRUE(op().samples);
  bool uneven = false, has_dims = false;
  for (const SampleCase& c : cases_of(op())) {
    for (const Type& type : c.in) {
      for (const Dim& d : type.shape) {
        has_dims = true;
        uneven = uneven || (d.size > 1 && d.size % 2 == 1);
      }
    }
  }
  EXPECT_TRUE(uneven || !has_dims) << "no dimension of odd size above one";
}

TEST_P(Record, RunsOnEverySampleInEveryType) {
  int runs = 0;
  for (const SampleCase& c : cases_of(op())) {
    SCOPED_TRACE(c.text());
    ASSERT_NO_THROW(c.call());
    const Call call = c.call();
    EXPECT_TRUE(!op().flops || op().flops(call) >= 0);
    for (Fill fill : {Fill::Reals, Fill::Integers}) {
      const std::vector<Array> inputs = inputs_of(c, fill);
      const std::vector<Array> first = run_op(call, inputs), second = run_op(call, inputs);
      ASSERT_EQ(first.size(), call.out.size());
      for (std::size_t o = 0; o < first.size(); ++o)
        EXPECT_TRUE(same_bits(first[o], second[o])) << "output " << o;
      ++runs;
    }
  }
  EXPECT_GT(runs, 0);
  RecordProperty("runs", runs);
}

TEST_P(Record, RunsWithEmptyDimensions) {
  for (const SampleCase& c : cases_of(op())) {
    if (depends_on_parts(c)) continue;  // there are never 0 parts
    for (const Dim& d : input_dims(c.call())) {
      const auto empty = resized(c, d.name, d.size, 0);
      if (!empty) continue;
      SCOPED_TRACE(empty->text());
      const Call call = empty->call();
      run_op(call, inputs_of(*empty, Fill::Integers));
      for (const Type& type : call.out) EXPECT_GE(type.shape.elements(), 0);
    }
  }
}

// A record may describe itself in several ways; they must agree. The first one present is the reference.
TEST_P(Record, DescriptionsAgree) {
  if (!op().kernel || !(op().scalar || op().moves)) GTEST_SKIP() << "one description only";
  for (const SampleCase& c : cases_of(op())) {
    SCOPED_TRACE(c.text());
    const Call call = c.call();
    Op other = op();
    other.kernel = nullptr;
    Call same = call;
    same.op = &other;
    const std::vector<Array> inputs = inputs_of(c, Fill::Reals);
    const std::vector<Array> a = run_op(same, inputs), b = run_op(call, inputs);
    for (std::size_t o = 0; o < a.size(); ++o)
      EXPECT_EQ(difference(a[o], b[o], 1e-6, 1e-6), "") << "output " << o;
  }
}

TEST_P(Record, RejectsWrongNumbersOfInputs) {
  ASSERT_TRUE(op().samples);
  for (const SampleCase& c : cases_of(op())) {
    if (c.in.empty()) continue;
    SampleCase none = c;
    none.in.clear();
    EXPECT_THROW(none.call(), UserError) << "accepts no input at all";
  }
}

TESSERA_FOR_EVERY_OP(Record);

TEST(AllOps, HaveDifferentNames) {
  std::set<std::string> names;
  for (const Op* op : all_ops()) EXPECT_TRUE(names.insert(op->name).second) << op->name;
  for (const Op* op : {&kInputOp, &kVariableOp, &kAssignOp})
    EXPECT_TRUE(names.insert(op->name).second) << op->name;
  EXPECT_EQ(find_op("no_such_op"), nullptr);
}

}  // namespace
}  // namespace tessera::testing
