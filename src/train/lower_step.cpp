// The program of a training step without a session: for explanations of models that fit no machine at hand.
#include <algorithm>

#include "exec/cpu_target.h"
#include "tessera/train.h"
#include "train/made_up_data.h"
#include "train/step_graph.h"

namespace tessera {
LoweredStep lower_training_step(const Config& config) {
  check(config);
  const Mesh mesh = Mesh::parse(config.mesh.shape);
  const Layout layout = Layout::preset_or_parse(config.mesh.layout, mesh);
  LoweredStep result;
  result.shape = largest_shape(config);
  ModelShape shape = model_shape(config, result.shape);
  const bool accumulate = config.train.micro_batches > 1;
  if (accumulate) {
    const auto parts = micro_batches(shape.batch, config.train.micro_batches, batch_parts(mesh, layout));
    shape.batch = 0;
    for (const Interval& part : parts) shape.batch = std::max(shape.batch, part.size());
  }
  Graph graph;
  const Tensors targets = build_training_step(graph, config, shape, accumulate);
  LowerOptions options;
  const CpuTarget target(1, true);
  options.shared_variables = true;
  options.target = &target;
  options.memory_bytes = config.mesh.memory;
  result.program = lower(graph, targets, mesh, layout, options);
  result.plan = plan_memory(result.program, target);
  result.parameters = parameter_count(config.model);
  return result;
}

}  // namespace tessera
