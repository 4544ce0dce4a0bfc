// Where storage rules keep variables.
#include <gtest/gtest.h>

#include <vector>

#include "tessera/layout.h"

namespace tessera {
namespace {

TEST(StorageRules, AStarTakesTheFirstDimensionWithEqualPartsElseTheLargest) {
  struct Case {
    const char *shape, *mesh, *layout, *stored;
  };
  for (const Case& c : std::vector<Case>{
           {"heads:8;d_kv:64;d_model:512", "a:2", "params.*:a", "[heads:a;d_kv;d_model]"},
           {"heads:6;d_kv:64;d_model:512", "a:4", "params.*:a", "[heads;d_kv:a;d_model]"},
           {"x:7;y:9;z:9", "a:2", "params.*:a", "[x;y:a;z]"},
           {"x:8;y:16", "a:2", "params.*:a@8", "[x;y:a@8]"},
           {"x:4;y:12", "a:2;b:3", "params.*:a+b", "[x;y:a+b]"},
           {"x:4;y:12", "a:2;b:3", "x:a;params.*:b", "[x:a;y:b]"},
           {"x:1;y:12", "a:3", "params.*:a", "[x;y:a]"},
       }) {
    const Mesh mesh = Mesh::parse(c.mesh);
    const Shape shape = parse_shape(c.shape);
    const Variable variable{"w", VariableKind::Parameter, "", {}, -1};
    EXPECT_EQ(to_string(storage_placement(mesh, Layout::parse(c.layout), variable, shape), shape, mesh),
              c.stored)
        << c.shape << " on " << c.mesh << " with " << c.layout;
  }
}

}  // namespace
}  // namespace tessera
