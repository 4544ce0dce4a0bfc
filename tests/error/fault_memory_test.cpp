// Faults of memory (docs/faults.md): whole tensors made where a part would do, copies for every rank, files
// read at once.
#include <fstream>

#include "error/run.h"
#include "tessera/checkpoint.h"
#include "unit/io_checkpoint_model.h"
#include "unit/io_temporary_folder.h"

namespace tessera::testing {
namespace {

// Kilobytes of this process: "VmRSS" now, "VmHWM" at most.
std::int64_t kilobytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(field + ":", 0) == 0) return std::stoll(line.substr(field.size() + 1));
  }
  return -1;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMeasurable = false;  // sanitizers keep freed memory
#else
constexpr bool kMeasurable = true;
#endif

// By how many bytes the process grows at most while `body` runs; -1 when that cannot be known.
template <class Body>
std::int64_t peak_growth(const Body& body) {
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak so far is forgotten
  const std::int64_t before = kilobytes("VmRSS");
  const bool forgotten = kilobytes("VmHWM") - before < 1024;
  body();
  if (!kMeasurable || !forgotten) return -1;
  return (kilobytes("VmHWM") - before) * 1024;
}

// Each rank draws its part: no rank's memory holds the whole.
TEST(Faults, O1NoRankMakesTheWholeTensor) {
  Small s;
  const std::int64_t n = 1 << 18;
  Tensor norm = reduce_sum(square(random_normal(s.graph, {{"n", n}})));
  Session session(s.graph, Mesh::parse("m:8"), Layout::parse("n:m"));
  const int program = session.compile({norm});
  session.run(program);
  EXPECT_LT(session.arena_bytes_per_rank(), 4 * n / 3);
}

// Variables are drawn into their place one after the other, once for all ranks that hold the same part.
TEST(Faults, O2VariablesAreNotCopiedToEveryRankAtOnce) {
  Graph g;
  Tensor sum;
  for (int i = 0; i < 64; ++i) {
    Tensor w = reduce_sum(g.parameter("w" + std::to_string(i), {{"n", 1 << 17}}, Initializer::constant(1)));
    sum = sum.valid() ? add(sum, w) : w;
  }
  Session session(g, Mesh::parse("m:8"), Layout());
  const std::int64_t growth = peak_growth([&] { session.compile({sum}); });
  EXPECT_EQ(session.store().bytes(), std::int64_t{64} << 19);
  if (growth < 0) GTEST_SKIP() << "the peak of memory cannot be measured here";
  EXPECT_LT(growth, session.store().bytes() + (16 << 20));
}

// A box of a stored tensor is read without the rest of it.
TEST(Faults, K7LoadingStreams) {
  const TemporaryFolder folder;
  const Type type{Shape{{"rows", 4096}, {"cols", 4096}}, DType::F32};  // 64 MiB
  std::string path;
  {
    const std::vector<float> x(4096 * 4096, 1.5f);
    CheckpointDir dir(folder / "c");
    const std::string temporary = dir.begin(1, 0);
    const Box whole = whole_box(type.shape);
    path = dir.commit(temporary, {.step = 1},
                      {write_shard(temporary, 0, 1, {{"x", type, whole, x.data(), whole}})});
  }
  double sum = 0;
  const std::int64_t growth = peak_growth([&] {
    const CheckpointReader reader(path);
    std::vector<float> rows(64 * 4096);
    for (std::int64_t row = 0; row < 4096; row += 64) {
      reader.read("x", Box{{row, 0}, {64, 4096}}, rows.data());
      for (float v : rows) sum += v;
    }
  });
  EXPECT_EQ(sum, 1.5 * 4096 * 4096);
  if (growth < 0) GTEST_SKIP() << "the peak of memory cannot be measured here";
  EXPECT_LT(growth, 24 << 20);
}

}  // namespace
}  // namespace tessera::testing
