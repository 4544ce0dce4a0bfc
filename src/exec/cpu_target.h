// What this machine's kernels need and allow: the Target that memory plans are made with.
#pragma once

#include "comm/threads.h"
#include "tessera/program.h"

namespace tessera {

class CpuTarget final : public Target {
 public:
  CpuTarget(int threads, bool in_place, const Link& link = {})
      : threads_(threads), in_place_(in_place), link_(link) {}

  std::string name() const override { return "cpu"; }
  std::int64_t workspace(const Step& step, const std::vector<Type>& in,
                         const std::vector<Type>& out) const override;
  bool in_place(const Step& step, int in, int out) const override;
  double work_seconds(const Program& program, const Step& step) const override;
  double wire_seconds(const Collective& collective) const override;
  // Two meetings of threads; none is saved where there is no network: steps in which ranks meet less often
  // were no faster there (docs/decisions/012-buckets.md).
  double meeting_seconds() const override { return link_.latency_seconds > 0 ? 5e-6 : 0; }
  double memory_seconds(std::int64_t bytes) const override;
  // Of a step of seconds some milliseconds: more than cores of one machine drift apart from meeting to
  // meeting.
  double arrival_spread() const override { return 1.5e-3; }
  // What executes a step of one rank's program, by name: an op's kernel, "fused", "reference cumsum", "copy";
  // empty for what takes no time.
  std::string kernel_of(const Program& program, const BoundProgram& bound, const Step& step) const;

 private:
  int threads_;
  bool in_place_;
  Link link_;
};

}  // namespace tessera
