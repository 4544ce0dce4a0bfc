// The inside of a Model: graphs outlive the session that compiled them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/train.h"

namespace tessera {

struct Model::Impl {
  Impl(Config c, std::optional<Tokenizer> t, SessionOptions options);

  Config config;
  std::optional<Tokenizer> tokenizer;
  std::int64_t step = 0;
  std::vector<std::unique_ptr<Graph>> graphs;
  std::unique_ptr<Session> session;
  std::map<std::string, Built> programs;
};

// Makes every parameter in the Store, by compiling a small graph that uses them all.
void make_parameters(Model& model);

}  // namespace tessera
