// Events of runs as a Chrome / Perfetto trace: a lane per rank, steps named after the user's lines.
#pragma once

#include <string>
#include <vector>

#include "tessera/program.h"

namespace tessera {

class Trace {
 public:
  void start();  // forgets what was recorded
  void stop() { on_ = false; }
  bool on() const { return on_; }
  // Seconds on the clock of now(). The step must live until write().
  void add(int rank, const Step& step, StepClass step_class, double begin, double end, double waited);
  void add_host(int rank, const char* what, double begin, double end);
  void write(const std::string& path) const;  // throws SystemError

 private:
  struct Event {
    int rank = 0;
    const Step* step = nullptr;  // nullptr: host work
    const char* kind = "";       // the step's class, or which host work
    double begin = 0, end = 0, waited = 0;
  };
  std::string text(const Event& event) const;

  bool on_ = false;
  double origin_ = 0;
  std::vector<Event> events_;
};

std::string kind_of(const Step& step);  // "einsum", "fused", "wait all_reduce", ...

}  // namespace tessera
