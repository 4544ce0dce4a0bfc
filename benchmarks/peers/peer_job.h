// What a process of the measuring house is told, and the models that it can train.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "tessera/tessera.h"

namespace tessera::peers {

struct Job {
  std::string model, dtype, mode;
  std::string data;          // folder of weights, batches and meta.json
  std::int64_t batches = 0;  // that are written beforehand
  int ranks = 1;             // of the modes that split
  std::string config;        // of a Transformer
  Strings set;               // overrides of it
  nlohmann::json sizes;      // of the two-layer network: batch, inputs, hidden, classes
  bool is_two_layers() const { return !sizes.empty(); }

  std::string file(const std::string& name) const { return data + "/" + name; }
  // "" for one rank; else one axis.
  std::string mesh() const { return mode == "one" ? "" : "x:" + std::to_string(ranks); }
};

// One step on the next batch; returns its loss.
using StepFunction = std::function<double()>;

// Encoder-decoders and language models, by the library's own trainer.
StepFunction open_transformer(const Job& job);
void export_transformer(const Job& job);
Program transformer_program(const Job& job);  // of one step

// The two-layer network of the Mesh-TensorFlow paper, by a program of its own.
StepFunction open_two_layers(const Job& job);
void export_two_layers(const Job& job);
Program two_layers_program(const Job& job);

// Every parameter of the store, f32, in weights.safetensors.
void write_weights(const Job& job, const Store& store);
void write_meta(const Job& job, const nlohmann::json& meta);

}  // namespace tessera::peers
