// The reverse walk behind gradients(): knows nothing of any op but its record.
#pragma once

#include <map>
#include <vector>

#include "tessera/grad.h"

namespace tessera {

class ReverseWalk {
 public:
  ReverseWalk(Graph& graph, const Tensors& ys, const Tensors& xs, const Tensors& seeds);

  Tensors run();

 private:
  using Slot = std::pair<int, int>;  // node, output
  static Slot slot(const Tensor& t) { return {t.node(), t.output()}; }

  void mark_between();
  bool flows_into(const Tensor& t) const;
  void seed();
  void visit(int id);
  void visit_record(int id, const Tensors& output_grads);
  void visit_expansion(int id, const Tensors& output_grads);
  void visit_custom(const Graph::CustomGradient& custom);
  void contribute(const Tensor& target, Tensor gradient);
  Tensor total(const Tensor& t);

  void enter_recomputed(int id);
  void clone(const Graph::RecomputeRange& range);
  void clone_custom_gradients(const Graph::RecomputeRange& range);
  Tensor current(const Tensor& t) const;
  void redirect(std::size_t first_new);

  Graph& graph_;
  const Tensors& ys_;
  const Tensors& xs_;
  const Tensors& seeds_;
  int first_ = 0;              // the walk ends here
  int last_ = -1;              // and begins here
  std::vector<bool> depends_;  // node: some output depends on an x through floating tensors
  std::map<Slot, bool> is_x_;
  std::map<Slot, Tensors> contributions_;  // in order of arrival
  std::map<Slot, Tensor> totals_;
  std::vector<Graph::RecomputeRange> waiting_;  // not entered yet, outer ranges before the ones inside them
  std::map<int, int> clone_of_;                 // node -> its newest clone
};

}  // namespace tessera
