// What a training step consists of, by counts that do not depend on the machine's load: kernels, bytes that
// steps must move, collectives, arena. tests/train/counts.txt keeps them (TESSERA_UPDATE_GOLDEN=1 rewrites
// it): a change of speed shows there before it shows in times.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "exec/cpu_target.h"
#include "tessera/models.h"
#include "train/floors.h"

namespace tessera {
namespace {

struct Counted {
  const char *name, *text, *mesh, *layout;
};
const char* const kPeersLm =
    "[model]\npreset = \"peers_lm\"\n[data]\nformat = \"text\"\nbatch_sentences = 4\nmax_target_length = "
    "512\n";
const char* const kDemo =
    "[model]\npreset = \"demo\"\n[data]\nbatch_sentences = 32\nmax_source_length = 48\nmax_target_length = "
    "48\n";
const char* const kPacked =
    "[model]\nkind = \"lm\"\nlayers = 2\nd_model = 96\nheads = 6\nd_kv = 16\nd_ff = 341\nvocab = 1000\n"
    "positions = \"relative\"\nactivation = \"gelu\"\ndropout = 0.1\ndtype = \"bf16\"\n"
    "[data]\nformat = \"text\"\nbatch_sentences = 4\nmax_target_length = 128\npack = true\n";
const Counted kCounted[] = {
    {"peers_lm", kPeersLm, "", ""},
    {"peers_lm data", kPeersLm, "data:2", "batch:data"},
    {"peers_lm model", kPeersLm, "model:2", "heads:model;d_ff:model;vocab:model"},
    {"peers_lm slots split", kPeersLm, "data:2", "batch:data;slots.*:data"},
    {"peers_lm params split", kPeersLm, "data:2", "batch:data;params.*:data;slots.*:data"},
    {"peers_lm 2-D", kPeersLm, "rows:2;cols:2", "batch:rows;heads:cols;d_ff:cols;vocab:cols"},
    {"demo data", kDemo, "data:2", "batch:data"},
    {"demo model", kDemo, "model:4", "heads:model;d_ff:model;vocab:model"},
    {"packed relative bf16", kPacked, "data:2", "batch:data"},
    {"packed heads uneven", kPacked, "model:4", "heads:model;d_ff:model"},
};

// Variables that are assigned, and how many of their new values are not computed in their own memory.
std::pair<int, int> updates_of(const LoweredStep& step) {
  int assigned = 0, copied = 0;
  for (const Step& s : step.program.steps) {
    if (s.kind != Step::Kind::Assign) continue;
    ++assigned;
    copied += step.plan.stored_in[static_cast<std::size_t>(s.in[0])] < 0;
  }
  return {assigned, copied};
}

std::string row(const Counted& counted) {
  const LoweredStep step = lower_training_step(parse_config(
      counted.text, counted.name,
      {fmt::format("mesh.shape=\"{}\"", counted.mesh), fmt::format("mesh.layout=\"{}\"", counted.layout)}));
  const CpuTarget target(1, true);
  const BoundProgram bound = bind(step.program, 0);
  std::map<std::string, int> kernels;
  double moved = 0;
  for (const Step& s : step.program.steps) {
    const std::string kernel = target.kernel_of(step.program, bound, s);
    if (!kernel.empty()) ++kernels[kernel];
    moved += least_bytes(step.program, step.plan, s);
  }
  const ProgramStats counts = stats(step.program);
  constexpr double kMega = 1e6;
  std::string text = fmt::format(
      "{}\n  contractions {:.1f} Gflop, bytes moved {:.1f} MB, arena {:.1f} MB, over its least {:.3f}\n",
      counted.name, counts.contraction_flops / 1e9, moved / kMega,
      static_cast<double>(step.plan.arena_bytes) / kMega,
      static_cast<double>(step.plan.arena_bytes) / static_cast<double>(step.plan.liveness_bound));
  text += fmt::format("  communicated {:.2f} MB:", static_cast<double>(counts.collective_bytes) / kMega);
  for (const auto& [kind, count] : counts.count) text += fmt::format(" {} {}", count, kind);
  const auto [assigned, copied] = updates_of(step);
  text += fmt::format("\n  updates: {} variables, {} of them copied", assigned, copied);
  text += "\n  kernels:";
  for (const auto& [kernel, count] : kernels) text += fmt::format(" {} {}", count, kernel);
  return text + "\n";
}

TEST(Counts, AreAsKept) {
  const std::string path = TESSERA_SOURCE_DIR "/tests/train/counts.txt";
  std::string text;
  for (const Counted& counted : kCounted) text += row(counted);
  if (std::getenv("TESSERA_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::stringstream kept;
  kept << std::ifstream(path).rdbuf();
  EXPECT_EQ(text, kept.str());
}

}  // namespace
}  // namespace tessera
