// In which order the nodes of a graph are lowered.
#include <functional>
#include <queue>
#include <set>

#include "spmd/lower.h"

namespace tessera {
namespace {

class Order {
 public:
  Order(const Graph& graph, const std::vector<Tensor>& targets, bool early)
      : graph_(graph), early_(early), nodes_(graph.nodes().size()) {
    for (const Tensor& t : targets) of(t.node()).needed = true;
    for (int id = static_cast<int>(nodes_.size()) - 1; id >= 0; --id) {
      if (!of(id).needed) continue;
      for (const Tensor& in : graph.node(id).inputs) of(in.node()).needed = true;
    }
    for (int id = 0; id < static_cast<int>(nodes_.size()); ++id) {
      if (of(id).needed) link(id);
    }
    for (int id = 0; id < static_cast<int>(nodes_.size()); ++id) {
      if (of(id).needed && of(id).missing == 0 && !on_demand(id)) ready_.push(rank(id));
    }
  }

  std::vector<int> run() {
    while (!ready_.empty()) {
      const int id = ready_.top().second;
      ready_.pop();
      take(id);
    }
    return std::move(order_);
  }

 private:
  struct State {
    bool needed = false, floats = false, taken = false;
    int missing = 0;  // inputs that it waits for
    std::vector<int> users = {};
  };
  using Entry = std::pair<int, int>;

  State& of(int id) { return nodes_[static_cast<std::size_t>(id)]; }
  bool is_source(int id) const { return graph_.node(id).inputs.empty(); }
  bool is_update(int id) const { return early_ && graph_.node(id).region == Region::Update; }
  Entry rank(int id) const { return {is_update(id) && !is_source(id) ? 0 : 1, id}; }

  // A step of an update that reads no gradient, such as a slot times a constant, would be ready at once, and
  // its result lie about for the whole program: it is taken when somebody reads it, unless it is a number. So
  // are the sources of updates.
  bool on_demand(int id) { return of(id).floats && !of(id).users.empty() && !is_number(id); }
  bool is_number(int id) const {
    const std::vector<Type>& outputs = graph_.node(id).outputs;
    return outputs.size() == 1 && outputs[0].shape.count() == 0;
  }

  void link(int id) {
    std::set<int> inputs;
    bool floats = is_update(id) && !is_source(id);
    for (const Tensor& in : graph_.node(id).inputs) {
      inputs.insert(in.node());
      floats = floats && (is_source(in.node()) || of(in.node()).floats);
    }
    of(id).floats = floats;
    for (const int in : inputs) {
      of(in).users.push_back(id);
      if (waits_for(id, in)) ++of(id).missing;
    }
  }
  bool waits_for(int id, int in) { return !is_update(id) || !(is_source(in) || of(in).floats); }

  void take(int id) {
    if (of(id).taken) return;
    of(id).taken = true;
    for (const Tensor& in : graph_.node(id).inputs) take(in.node());  // what it does not wait for
    order_.push_back(id);
    for (const int user : of(id).users) {
      if (waits_for(user, id) && --of(user).missing == 0 && !on_demand(user)) ready_.push(rank(user));
    }
  }

  const Graph& graph_;
  bool early_;
  std::vector<State> nodes_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready_;
  std::vector<int> order_;
};

}  // namespace

std::vector<int> lowering_order(const Graph& graph, const std::vector<Tensor>& targets, bool early_updates) {
  return Order(graph, targets, early_updates).run();
}

}  // namespace tessera
