#include "train/floors.h"

#include <algorithm>
#include <set>

#include "spmd/steps.h"
#include "train/measured.h"

namespace tessera {

double least_bytes(const Program& program, const MemoryPlan& plan, const Step& step) {
  const auto bytes = [&](int id) { return static_cast<double>(largest_local(program, id).bytes()); };
  const auto sharers = [&](int id) {
    return static_cast<double>(
        replicas(program.mesh, program.values[static_cast<std::size_t>(id)].placement));
  };
  const auto stored_in = [&](int id) { return plan.stored_in[static_cast<std::size_t>(id)]; };
  switch (step.kind) {
    case Step::Kind::Free:
    case Step::Kind::Start:  // its Wait does the work
      return 0;
    case Step::Kind::Copy:
    case Step::Kind::Slice:
      return 2 * std::min(bytes(step.in[0]), bytes(step.out[0]));
    case Step::Kind::Assign:
      if (stored_in(step.in[0]) >= 0) return 0;
      return 2 * bytes(step.in[0]) / sharers(step.out[0]);
    default:
      break;
  }
  if (step.kind == Step::Kind::Wait && step.collective.kind == CollectiveKind::AllGather &&
      plan.gathered_in[static_cast<std::size_t>(base_of(program, step.in[0]))] == step.out[0])
    return 2 * (bytes(step.out[0]) - bytes(step.in[0]));  // the rank's part is there already
  double written = 0, read = 0;
  for (const int id : step.out) written += bytes(id);
  if (step.contracts()) {
    for (const Type& type : largest_call(program, step).in) read += static_cast<double>(type.bytes());
    return read + written;
  }
  for (const int id : std::set<int>(step.in.begin(), step.in.end())) {
    const bool looked_up = step.node_class == StepClass::Embedding;
    read += looked_up ? std::min(bytes(id), written) : bytes(id);
  }
  const int variable = step.out.empty() ? -1 : stored_in(step.out[0]);
  return (read + written) / (variable < 0 ? 1 : sharers(variable));
}

Floors::Floors(int ranks) : ranks_(ranks), copies_(ranks) {}

void Floors::add(int id, const Program& program, const MemoryPlan& plan) {
  std::vector<Least> steps;
  for (const Step& step : program.steps) {
    Least least;
    for (const Product& p : products_of(program, step)) {
      const auto [known, added] = index_.emplace(p, products_.size());
      if (added) products_.push_back(p);
      least.products.push_back(known->second);
    }
    if (least.products.empty()) least.bytes = least_bytes(program, plan, step);
    steps.push_back(std::move(least));
  }
  steps_[id] = std::move(steps);
}

void Floors::measure() {
  if (alone_ == nullptr) alone_ = std::make_unique<BareProducts>(products_, ranks_);
  product_times_.resize(products_.size());
  const std::vector<double> times = alone_->run_each();
  for (std::size_t p = 0; p < times.size(); ++p) product_times_[p].push_back(times[p]);
  rates_.push_back(copies_.run());
}

std::vector<double> Floors::product_seconds() const {
  std::vector<double> seconds;
  for (const std::vector<double>& times : product_times_) seconds.push_back(median(times));
  return seconds;
}

std::map<int, std::vector<double>> Floors::seconds() const {
  const std::vector<double> products = product_seconds();
  std::map<int, std::vector<double>> result;
  for (const auto& [id, steps] : steps_) {
    for (const Least& least : steps) {
      double seconds = least.bytes / bytes_per_second();
      for (const std::size_t p : least.products) seconds += products[p];
      result[id].push_back(seconds);
    }
  }
  return result;
}

double Floors::flops_per_second() const {
  const std::vector<double> products = product_seconds();
  double flops = 0, seconds = 0;
  for (const auto& [id, steps] : steps_) {
    for (const Least& least : steps) {
      for (const std::size_t p : least.products) {
        flops += products_[p].flops();
        seconds += products[p];
      }
    }
  }
  return seconds > 0 ? flops / seconds : 0;
}

double Floors::bytes_per_second() const {
  return median(rates_);
}

}  // namespace tessera
