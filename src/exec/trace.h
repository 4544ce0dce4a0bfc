// Events of runs as a Chrome / Perfetto trace: a lane per rank, steps named after the graph's nodes.
#pragma once

#include <string>
#include <vector>

#include "tessera/program.h"

namespace tessera {

class Trace {
 public:
  void start();
  bool on() const { return on_; }
  void add(int rank, const Step& step, double begin, double end);  // seconds
  void write(const std::string& path) const;                       // throws SystemError

 private:
  struct Event {
    int rank = 0;
    std::string name, kind, where;
    double begin = 0, end = 0;
  };
  bool on_ = false;
  double origin_ = 0;
  std::vector<Event> events_;
};

}  // namespace tessera
