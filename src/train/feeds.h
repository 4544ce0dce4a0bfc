// Feeds made from batches.
#pragma once

#include "tessera/data.h"
#include "tessera/session.h"

namespace tessera {

// The batch must outlive the function.
inline FillFunction feeds_of(const Batch& batch) {
  return [&batch](const std::string& name, const Box& box, void* out) { batch.fill(name, box, out); };
}

}  // namespace tessera
