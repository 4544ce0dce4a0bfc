// The two-layer network of the Mesh-TensorFlow paper in the measuring house: relu(x w1) w2, cross-entropy,
// SGD.
#include <cmath>
#include <cstring>
#include <memory>

#include "peer_job.h"

namespace tessera::peers {
namespace {

constexpr float kRate = 0.01F;

// Graph, session and the batches on the disk; a step reads a fresh batch, as in the other systems.
class TwoLayers {
 public:
  explicit TwoLayers(const Job& job)
      : size_{"batch", job.sizes.at("batch")},
        inputs_{"inputs", job.sizes.at("inputs")},
        hidden_{"hidden", job.sizes.at("hidden")},
        classes_{"classes", job.sizes.at("classes")} {
    const DType dtype = parse_dtype(job.dtype);
    const Tensor images = graph_.input("images", {size_, inputs_}), rate = graph_.input("rate", {});
    const Tensor labels = graph_.input("labels", {size_}, DType::I32);
    const Tensor w1 = weight("w1", inputs_, hidden_), w2 = weight("w2", hidden_, classes_);
    const Tensor hidden = relu(einsum({cast(images, dtype), cast(w1, dtype)}, {size_, hidden_}));
    const Tensor logits = einsum({hidden, cast(w2, dtype)}, {size_, classes_});
    const Tensor loss = reduce_mean(cross_entropy(logits, labels, "classes"));
    const Tensors grads = gradients({loss}, {w1, w2});
    const std::string layout = job.mode == "data" ? "batch:x" : job.mode == "model" ? "hidden:x" : "";
    session_ = std::make_unique<Session>(graph_, Mesh::parse(job.mesh()), Layout::parse(layout));
    program_ = session_->compile(
        {loss, graph_.assign(w1, w1 - rate * grads[0]), graph_.assign(w2, w2 - rate * grads[1])});
  }

  double step(const SafetensorsReader& batches, std::int64_t row) {
    const auto fill = [&](const std::string& name, const Box& box, void* out) {
      if (name == "rate") {
        std::memcpy(out, &kRate, sizeof kRate);
        return;
      }
      Box there = box;
      there.start.insert(there.start.begin(), row);
      there.size.insert(there.size.begin(), 1);
      batches.read(name, there, out);
    };
    return session_->run(program_, fill).scalar(0);
  }

  // Made up: products take as long for any values.
  void write_batches(const Job& job) const {
    SafetensorsWriter file(job.file("batches.safetensors"),
                           {{"images", DType::F32, {job.batches, size_.size, inputs_.size}},
                            {"labels", DType::I32, {job.batches, size_.size}}});
    std::vector<float> images(static_cast<std::size_t>(size_.size * inputs_.size));
    std::vector<std::int32_t> labels(static_cast<std::size_t>(size_.size));
    for (std::int64_t row = 0; row < job.batches; ++row) {
      const RandomKey pixel = random_key(1, "images", row), label = random_key(1, "labels", row);
      for (std::size_t i = 0; i < images.size(); ++i) images[i] = random_uniform_at(pixel, i);
      for (std::size_t i = 0; i < labels.size(); ++i)
        labels[i] =
            static_cast<std::int32_t>(random_uniform_at(label, i) * static_cast<float>(classes_.size));
      file.write("images", Box{{row, 0, 0}, {1, size_.size, inputs_.size}}, images.data());
      file.write("labels", Box{{row, 0}, {1, size_.size}}, labels.data());
    }
    file.close();
  }

  Session& session() { return *session_; }
  const Program& program() const { return session_->program(program_); }

 private:
  Tensor weight(const char* name, const Dim& in, const Dim& out) {
    return graph_.parameter(name, {in, out},
                            Initializer::normal(1 / std::sqrt(static_cast<double>(in.size))));
  }

  Dim size_, inputs_, hidden_, classes_;
  Graph graph_;
  std::unique_ptr<Session> session_;
  int program_ = -1;
};

}  // namespace

StepFunction open_two_layers(const Job& job) {
  const auto network = std::make_shared<TwoLayers>(job);
  const auto batches = std::make_shared<SafetensorsReader>(job.file("batches.safetensors"));
  return [network, batches, count = job.batches, next = std::int64_t{0}]() mutable {
    return network->step(*batches, next++ % count);
  };
}

void export_two_layers(const Job& job) {
  TwoLayers network(job);
  write_weights(job, network.session().store());
  network.write_batches(job);
  write_meta(job, {{"sizes", job.sizes},
                   {"optimizer", {{"kind", "sgd"}, {"clip_norm", 0}}},
                   {"rates", {kRate}},
                   {"batches", job.batches},
                   {"tokens", job.sizes.at("batch")}});
}

Program two_layers_program(const Job& job) {
  return TwoLayers(job).program();
}

}  // namespace tessera::peers
