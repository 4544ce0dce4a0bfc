// A configuration, its tokenizer and a session with the parameters.
#include "base/check.h"
#include "train/model_impl.h"
#include "train/run_state.h"
#include "train/step_graph.h"

namespace tessera {
namespace {

// The smallest graph with all parameters.
Tensors build_parameters(Graph& graph, const TransformerConfig& config) {
  const bool has_source = config.kind == ModelKind::EncoderDecoder;
  return {build_logits(graph, config, {.batch = 1, .source_length = has_source ? 1 : 0, .target_length = 1})};
}

// Decoding graphs lack some dimensions of the training graph; a rule that was checked once need not occur in
// each.
Layout with_optional_rules(Layout layout) {
  for (std::vector<Rule>* rules : {&layout.compute, &layout.params, &layout.slots}) {
    for (Rule& rule : *rules) rule.optional = true;
  }
  return layout;
}

}  // namespace

Model::Impl::Impl(Config c, std::optional<Tokenizer> t, SessionOptions options)
    : config(std::move(c)), tokenizer(std::move(t)) {
  if (tokenizer) config.model.vocab = tokenizer->vocabulary();
  check(config);
  const Mesh mesh = Mesh::parse(config.mesh.shape);
  const Layout layout = Layout::preset_or_parse(config.mesh.layout, mesh);
  graphs.push_back(std::make_unique<Graph>());
  Graph& graph = *graphs.back();
  build_training_step(graph, config, {.batch = 1, .source_length = 1, .target_length = 1}, false);
  check_layout(graph, mesh, layout);
  options.seed = static_cast<std::uint64_t>(config.train.seed);
  options.deadline_seconds = config.train.deadline_seconds;
  options.lower.memory_bytes = config.mesh.memory;
  session = std::make_unique<Session>(graph, mesh, with_optional_rules(layout), std::move(options));
}

Model::Model(Config config, Tokenizer tokenizer, SessionOptions session)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(tokenizer), std::move(session))) {}
Model::Model(Config config, SessionOptions session)
    : impl_(std::make_unique<Impl>(std::move(config), std::nullopt, std::move(session))) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

const Config& Model::config() const {
  return impl_->config;
}
const Tokenizer& Model::tokenizer() const {
  TESSERA_CHECK(impl_->tokenizer.has_value(), "this model has no tokenizer; make it with one");
  return *impl_->tokenizer;
}
Session& Model::session() {
  return *impl_->session;
}
std::int64_t Model::step() const {
  return impl_->step;
}

Model::Built Model::program(const std::string& key, const std::function<Tensors(Graph&)>& build) {
  const auto known = impl_->programs.find(key);
  if (known != impl_->programs.end()) return known->second;
  impl_->graphs.push_back(std::make_unique<Graph>());
  Graph& graph = *impl_->graphs.back();
  const Tensors targets = build(graph);
  const Built built{impl_->session->compile(graph, targets), &graph};
  return impl_->programs.emplace(key, built).first->second;
}

void make_parameters(Model& model) {
  model.program("parameters",
                [&model](Graph& graph) { return build_parameters(graph, model.config().model); });
}

Model Model::open(const std::string& run_folder, const OpenOptions& options) {
  const RunFolder run(run_folder);
  const Config config = run.load_config(options.overrides);
  std::string path = options.checkpoint;
  if (path.empty()) path = newest_valid(run.checkpoints()).path;
  if (path.empty()) {
    throw UserError(fmt::format("there is no valid checkpoint in {}; train first, or name another run folder",
                                run.checkpoints()),
                    ExitCode::BadData);
  }
  const CheckpointReader reader(path);
  Tokenizer tokenizer = Tokenizer::load(run.tokenizer());
  const RunState state = parse_run_state(reader.state(), path);
  refuse_differences(model_differences(state, config, tokenizer), path, "");
  Model model(config, std::move(tokenizer));
  make_parameters(model);
  load_variables(reader, model.session().store(), false);
  model.impl_->step = reader.step();
  return model;
}

}  // namespace tessera
