// Meshes and layouts that cannot be meant or cannot be built: each is refused, never ignored, and the message
// holds the rule, the name that is wrong with its nearest neighbour, or the two dimensions, the tensor or op
// and line, the axis, and the choices.
#include "error/refused.h"
#include "tessera/ops.h"
#include "tessera/program.h"

namespace tessera::testing {
namespace {

struct Case {
  const char *mesh, *layout;
  std::string message;
};

// A dense layer whose parameter has a slot.
class Layouts : public ::testing::Test {
 protected:
  Layouts() {
    Dim batch{"batch", 6}, length{"length", 5}, d_model{"d_model", 8}, d_ff{"d_ff", 12};
    Tensor x = graph_.input("x", {batch, length, d_model});
    Tensor w = graph_.parameter("ffn/wi", {d_model, d_ff}, Initializer::normal(1));
    Tensor m = graph_.variable(VariableKind::Slot, "ffn/wi/m", w.type(), {}, "ffn/wi");
    Tensor h = relu(einsum({x, w}, {batch, length, d_ff}));
    targets_ = {reduce_sum(h), graph_.assign(w, w + m)};
  }

  void refuses(const std::vector<Case>& cases) {
    for (const Case& c : cases) {
      SCOPED_TRACE(std::string(c.mesh) + " | " + c.layout);
      expect_refused(c.message, ExitCode::Usage, [&] {
        Mesh mesh = Mesh::parse(c.mesh);
        LowerOptions options;
        lower(graph_, targets_, mesh, Layout::preset_or_parse(c.layout, mesh), options);
      });
    }
  }

  Graph graph_;
  std::vector<Tensor> targets_;
};

TEST_F(Layouts, NamesThatDoNotExist) {
  refuses({
      {"model:2", "d_fff:model",
       "layout: rule 'd_fff:model': no tensor has a dimension 'd_fff'; did you mean 'd_ff'? (a trailing '?' "
       "makes a rule optional)"},
      {"model:2", "d_ff:modle",
       "layout: rule 'd_ff:modle': the mesh has no axis 'modle'; did you mean 'model'? (a trailing '?' makes "
       "a rule optional)"},
      {"model:2", "heads:model",
       "layout: rule 'heads:model': no tensor has a dimension 'heads'; known: batch, d_ff, d_model, length "
       "(a trailing '?' makes a rule optional)"},
      {"data:2;model:2", "batch:pods",
       "layout: rule 'batch:pods': the mesh has no axis 'pods'; known: data, model (a trailing '?' makes a "
       "rule optional)"},
      {"", "batch:data",
       "layout: rule 'batch:data': the mesh has no axis 'data', nor any other (a trailing '?' makes a rule "
       "optional)"},
      {"model:2", "params.d_modle:model",
       "layout: rule 'params.d_modle:model': no tensor has a dimension 'd_modle'; did you mean 'd_model'? (a "
       "trailing '?' makes a rule optional)"},
      {"model:2", "slots.*:modle",
       "layout: rule 'slots.*:modle': the mesh has no axis 'modle'; did you mean 'model'? (a trailing '?' "
       "makes a rule optional)"},
  });
}

TEST_F(Layouts, RulesThatContradictEachOther) {
  refuses({
      {"rows:2;cols:2", "batch:rows;batch:cols",
       "layout: dimension 'batch' has two rules, 'batch:rows' and 'batch:cols'; keep one of them (one "
       "dimension over two axes is written batch:a+b)"},
      {"rows:2;cols:2", "params.d_ff:rows;params.d_ff:cols@4",
       "layout: dimension 'd_ff' has two rules, 'params.d_ff:rows' and 'params.d_ff:cols@4'; keep one of "
       "them (one dimension over two axes is written params.d_ff:a+b)"},
      {"rows:2;cols:2", "batch:rows+rows",
       "layout: rule 'batch:rows+rows' names axis 'rows' twice; name each axis once"},
      {"rows:2;cols:2", "d_model:rows;d_ff:rows",
       "layout: dimensions 'd_model' and 'd_ff' of variable 'ffn/wi' are both split over axis 'rows'; a "
       "tensor or op can use an axis once: drop the rule d_model:rows or d_ff:rows, move one of them to "
       "another axis, or rename the dimension here"},
      {"rows:2;cols:2", "batch:rows;length:rows+cols",
       "layout: dimensions 'batch' and 'length' of input 'x' are both split over axis 'rows'; a tensor or op "
       "can use an axis once: drop the rule batch:rows or length:rows, move one of them to another axis, or "
       "rename the dimension here"},
      {"rows:2;cols:2", "batch:rows;d_ff:rows",
       "einsum: dimensions 'batch' and 'd_ff' are both split over axis 'rows' (einsum, "
       "layout_test.cpp:LINE); put one of them on cols, or drop one rule, or rename one before this op"},
      {"rows:2", "batch:rows;d_ff:rows",
       "einsum: dimensions 'batch' and 'd_ff' are both split over axis 'rows' (einsum, "
       "layout_test.cpp:LINE); drop one of the two rules, or rename one before this op"},
      {"rows:1", "batch:rows;d_ff:rows",  // what is refused does not depend on the size of an axis
       "einsum: dimensions 'batch' and 'd_ff' are both split over axis 'rows' (einsum, "
       "layout_test.cpp:LINE); drop one of the two rules, or rename one before this op"},
      {"rows:2", "d_ff:rows;params.d_model:rows",
       "layout: storage rule params.d_model:rows on 'ffn/wi': axis 'rows' splits its dimension 'd_ff' "
       "already; use another axis, or params.*:rows, which leaves such tensors alone"},
      {"rows:2;cols:2", "d_model:rows;slots.d_ff:rows",
       "layout: storage rule slots.d_ff:rows on 'ffn/wi/m': axis 'rows' splits its dimension 'd_model' "
       "already; use another axis, or slots.*:rows, which leaves such tensors alone"},
  });
}

TEST_F(Layouts, TextThatIsNoLayout) {
  refuses({
      {"rows:2", "batch",
       "layout 'batch', position 6: expected ':' after 'batch'; rules look like "
       "batch:rows;vocab:rows+cols;params.*:rows"},
      {"rows:2", "batch:",
       "layout 'batch:', position 7: expected an axis; rules look like "
       "batch:rows;vocab:rows+cols;params.*:rows"},
      {"rows:2", "batch:rows+",
       "layout 'batch:rows+', position 12: expected an axis; rules look like "
       "batch:rows;vocab:rows+cols;params.*:rows"},
      {"rows:2", "batch:rows;:rows",
       "layout 'batch:rows;:rows', position 12: expected a dimension; rules look like "
       "batch:rows;vocab:rows+cols;params.*:rows"},
      {"rows:2", "batch=rows",
       "layout 'batch=rows', position 6: expected ':' after 'batch'; rules look like "
       "batch:rows;vocab:rows+cols;params.*:rows"},
      {"rows:2", "batch:rows@0",
       "layout 'batch:rows@0', position 13: expected a grain of at least 1 after '@'; rules look like "
       "batch:rows;vocab:rows+cols;params.*:rows"},
      {"rows:2", "batch:rows?!",
       "layout 'batch:rows?!', position 12: unexpected '!'; rules look like "
       "batch:rows;vocab:rows+cols;params.*:rows"},
      {"rows:2", "param.d_ff:rows",
       "layout 'param.d_ff:rows', position 6: 'param.' is no rule set; use 'params.' or 'slots.'; rules look "
       "like batch:rows;vocab:rows+cols;params.*:rows"},
      {"rows:2", "params.:rows",
       "layout 'params.:rows', position 8: expected a dimension or '*'; rules look like "
       "batch:rows;vocab:rows+cols;params.*:rows"},
      {"rows:2", "*:rows",
       "layout '*:rows', position 1: '*' stands for a dimension of every stored tensor, after "
       "'params.' or 'slots.' only; rules look like batch:rows;vocab:rows+cols;params.*:rows"},
      {"rows:2", "batch:2",
       "layout 'batch:2', position 7: expected an axis; rules look like "
       "batch:rows;vocab:rows+cols;params.*:rows"},
  });
}

TEST_F(Layouts, PresetsThatTheMeshCannotHold) {
  refuses({
      {"", "dp", "layout: preset 'dp' needs a mesh with at least one axis, such as --mesh all:2"},
      {"", "fsdp", "layout: preset 'fsdp' needs a mesh with at least one axis, such as --mesh all:2"},
      {"all:4", "dp_mp",
       "layout: preset 'dp_mp' needs two mesh axes, such as --mesh rows:2;cols:2, but the mesh is all:4"},
  });
}

TEST_F(Layouts, MeshesThatAreNone) {
  refuses({
      {"rows", "",
       "mesh: axes are written like dimensions, rows:2;cols:4: shape 'rows': expected ':' and a size after "
       "'rows' at position 5; write name:size"},
      {"rows:two", "",
       "mesh: axes are written like dimensions, rows:2;cols:4: shape 'rows:two': expected the size of 'rows' "
       "at position 6; write name:size"},
      {"rows:2;rows:3", "",
       "mesh: axes are written like dimensions, rows:2;cols:4: shape: dimension 'rows' occurs twice (sizes 2 "
       "and 3); rename one of them"},
      {"rows:0", "", "mesh: axis 'rows' has size 0; an axis has at least one rank, so write 1 or more"},
      {"rows:2x4", "",
       "mesh: axes are written like dimensions, rows:2;cols:4: shape 'rows:2x4': expected ';' between "
       "dimensions at position 7"},
      {"2:rows", "",
       "mesh: axes are written like dimensions, rows:2;cols:4: shape '2:rows': expected a dimension name at "
       "position 1; write name:size"},
      {"rows:2048;cols:1024", "", "mesh: rows:2048;cols:1024 has more than 2^20 ranks; make an axis smaller"},
  });
}

// An op inside a scope is named with its path.
TEST_F(Layouts, ConflictsInAnOpNameItsScopeAndLine) {
  Graph g;
  Graph::Scope scope(g, "decoder/layer_000");
  Tensor q = g.input("q", {{"length", 4}, {"d_kv", 6}}),
         k = g.input("k", {{"memory_length", 4}, {"d_kv", 6}});
  Tensor logits = einsum({q, k}, {{"length", 4}, {"memory_length", 4}});
  LowerOptions options;
  expect_refused(
      "einsum: dimensions 'length' and 'memory_length' are both split over axis 'b' "
      "(decoder/layer_000/einsum, layout_test.cpp:LINE); put one of them on a, or drop one rule, or rename "
      "one before this op",
      ExitCode::Usage, [&] {
        lower(g, {logits}, Mesh::parse("a:2;b:3;c:2"), Layout::parse("length:b;memory_length:b;d_kv:c"),
              options);
      });
}

}  // namespace
}  // namespace tessera::testing
