// Runs a small program on a mesh of threads and returns whole tensors as numbers.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tessera/grad.h"
#include "tessera/session.h"

namespace tessera::testing {

using Values = std::vector<double>;

inline Values counting(int first, int count) {
  Values values;
  for (int i = 0; i < count; ++i) values.push_back(first + i);
  return values;
}

// A graph with its feeds, to be run under several layouts.
class Small {
 public:
  Tensor input(const std::string& name, const Shape& shape, const Values& values, DType dtype = DType::F32) {
    feeds_[name] = Array(Type{shape, dtype}, values);
    return graph.input(name, shape, dtype);
  }

  Values run(const Tensor& target, const std::string& mesh = "", const std::string& layout = "") const {
    Session session(graph, Mesh::parse(mesh), Layout::parse(layout));
    const Array result = session.run(session.compile({target}), feeds_).gather(0);
    Values values;
    for (std::int64_t i = 0; i < result.elements(); ++i) values.push_back(result.get(i));
    return values;
  }

  ProgramStats lowered(const Tensor& target, const std::string& mesh, const std::string& layout) const {
    LowerOptions options;
    return stats(lower(graph, {target}, Mesh::parse(mesh), Layout::parse(layout), options));
  }

  Graph graph;

 private:
  FeedMap feeds_;
};

struct On {
  const char *mesh, *layout;
};

// Exactly these numbers on one rank and on every layout.
inline void expect_everywhere(const Small& s, const Tensor& t, const Values& want,
                              const std::vector<On>& layouts) {
  EXPECT_EQ(s.run(t), want);
  for (const On& on : layouts) {
    EXPECT_EQ(s.run(t, on.mesh, on.layout), want) << on.mesh << " | " << on.layout;
  }
}

}  // namespace tessera::testing
