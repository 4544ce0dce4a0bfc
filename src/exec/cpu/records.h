// Every fast kernel, one declaration a line; table.cpp lists them.
#pragma once

#include "exec/cpu/kernels.h"

namespace tessera {

extern const CpuKernel kEinsumKernel;

}  // namespace tessera
