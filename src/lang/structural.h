// The structural ops of the language (input, variable, assign): attributes of variables and back.
#pragma once

#include "tessera/graph.h"

namespace tessera {

Attrs variable_attrs(VariableKind kind, const std::string& name, const Type& type, const Initializer& init,
                     const std::string& slot_of);
Variable variable_of(const Attrs& attrs, int node);

}  // namespace tessera
