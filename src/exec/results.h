// The inside of Results: fetched tensors as the distinct shards that this process holds.
#pragma once

#include <vector>

#include "tessera/session.h"

namespace tessera {

struct Results::Impl {
  struct Part {
    Box box;
    int rank = 0;  // who copies it out of its arena
    std::vector<std::byte> data;
  };
  struct Fetch {
    Type type;
    std::string name;
    std::vector<Part> parts;
  };
  std::vector<Fetch> fetches;

  const Fetch& get(std::size_t index) const;  // throws UserError when there is none
};

}  // namespace tessera
