// The reference page of all ops (docs/ops.md), written from the records.
#pragma once

#include <string>

namespace tessera {

std::string ops_markdown();

}  // namespace tessera
