// How fast the ranks copy memory that no cache holds: the floor of every step that moves more than it
// computes.
#pragma once

#include <memory>

namespace tessera {

class CopyBandwidth {
 public:
  explicit CopyBandwidth(int ranks);  // with the threads and cores of a session's
  ~CopyBandwidth();

  // Copies a block on every rank at the same time. Bytes that a rank reads and writes in a second, mean over
  // the ranks.
  double run();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
