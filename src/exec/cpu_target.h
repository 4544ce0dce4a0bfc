// What this machine's kernels need and allow: the Target that memory plans are made with.
#pragma once

#include "tessera/program.h"

namespace tessera {

class CpuTarget final : public Target {
 public:
  CpuTarget(int threads, bool in_place) : threads_(threads), in_place_(in_place) {}

  std::string name() const override { return "cpu"; }
  std::int64_t workspace(const Step& step, const std::vector<Type>& in,
                         const std::vector<Type>& out) const override;
  bool in_place(const Step& step, int in, int out) const override;

 private:
  int threads_;
  bool in_place_;
};

}  // namespace tessera
