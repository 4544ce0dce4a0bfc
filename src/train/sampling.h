// Choosing a token at random, the same on every mesh.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/config.h"

namespace tessera {

struct Sampled {
  std::int32_t token = 0;
  double log_probability = 0;  // of the model, without temperature and cut
  bool near_tie = false;  // a change of 1e-5 in a log probability or in the cumulative distribution turns it
};

// Draws from log probabilities with temperature, top-k and top-p; `uniform` in [0, 1) is the random number.
Sampled sample(std::span<const float> log_probabilities, const DecodeConfig& options, double uniform);
Sampled sample(std::span<const double> log_probabilities, const DecodeConfig& options, double uniform);

// The random number for position `position` of sentence `sentence`.
double sampling_uniform(std::uint64_t seed, std::int64_t sentence, std::int64_t position);

}  // namespace tessera
