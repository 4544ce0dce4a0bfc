// Tessera in the measuring house: a process that works on request, in the protocol that
// benchmarks/peers/README.md describes.
//
//   tessera_peer export JOB        writes initial weights, batches and sizes for everybody
//   tessera_peer steps JOB         "steps N": trains
//   tessera_peer rate JOB          "steps N": the matrix products of a step alone, by oneDNN
//   tessera_peer collectives JOB   "collective OP BYTES COUNT"
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>

#include "../collective_case.h"
#include "base/cores.h"
#include "exec/bare_products.h"
#include "peer_job.h"

namespace tessera::peers {
namespace {

using nlohmann::json;
using Answer = std::function<json(std::istringstream& request)>;

Job read_job(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw UserError("cannot read '" + path + "'");
  const json text = json::parse(file);
  Job job;
  job.model = text.at("model");
  job.dtype = text.at("dtype");
  job.mode = text.at("mode");
  job.data = text.at("data");
  job.ranks = text.at("ranks");
  job.batches = text.value("batches", std::int64_t{0});
  job.config = text.value("config", std::string());
  job.set = text.value("set", Strings{});
  job.sizes = text.value("sizes", json::object());
  return job;
}

// Answers to "steps N" of something that is done N times; losses are what it returns.
Answer repeat(const StepFunction& step) {
  return [step](std::istringstream& request) {
    using Clock = std::chrono::steady_clock;
    std::vector<double> seconds, losses;
    int count = 0;
    request >> count;
    for (int i = 0; i < count; ++i) {
      const auto begin = Clock::now();
      losses.push_back(step());
      seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
    return json{{"seconds", seconds}, {"losses", losses}};
  };
}

Answer steps(const Job& job) {
  return repeat(job.is_two_layers() ? open_two_layers(job) : open_transformer(job));
}

// The time comes from the measurement itself: the ranks' mean, without feeds and losses. The mode says how
// the products are split, which should be evenly.
Answer rate(const Job& job) {
  const std::vector<Product> list =
      products_of(job.is_two_layers() ? two_layers_program(job) : transformer_program(job));
  const auto products = std::make_shared<BareProducts>(list, job.ranks);
  return [products](std::istringstream& request) {
    std::vector<double> seconds;
    int count = 0;
    request >> count;
    for (int i = 0; i < count; ++i) seconds.push_back(products->run());
    return json{{"seconds", seconds}};
  };
}

Answer collectives(const Job& job) {
  return [ranks = job.ranks](std::istringstream& request) {
    constexpr int kSamples = 5;
    std::string op;
    std::int64_t bytes = 0;
    int count = 0;
    request >> op >> bytes >> count;
    benchmarks::CollectiveCase work(op, bytes, ranks);
    std::vector<double> seconds, floor;
    for (int i = 0; i < kSamples; ++i) {
      floor.push_back(work.floor_seconds(std::max(1, count / kSamples)));
      seconds.push_back(work.seconds(std::max(1, count / kSamples)));
    }
    return json{{"seconds", seconds}, {"floor", floor}};
  };
}

// Everything is made when the first request comes, as in the other systems.
void serve(const std::function<Answer()>& make) {
  Answer answer;
  for (std::string line; std::getline(std::cin, line) && line != "quit";) {
    std::istringstream request(line);
    std::string verb;
    request >> verb;
    if (!answer) answer = make();
    std::cout << answer(request) << std::endl;
  }
}

int run(const std::string& what, const std::string& path) {
  const Job job = read_job(path);
  if (what == "export") {
    (job.is_two_layers() ? export_two_layers : export_transformer)(job);
  } else if (what == "steps") {
    serve([&] { return steps(job); });
  } else if (what == "rate") {
    serve([&] { return rate(job); });
  } else if (what == "collectives") {
    serve([&] { return collectives(job); });
  } else {
    throw UserError("there is no '" + what + "'; export, steps, rate and collectives are");
  }
  return 0;
}

}  // namespace

void write_weights(const Job& job, const Store& store) {
  std::vector<SafetensorsTensor> tensors;
  for (const std::string& name : store.names()) {
    if (store.kind(name) != VariableKind::Parameter) continue;
    SafetensorsTensor tensor{name, store.type(name).dtype, {}};
    for (const Dim& dim : store.type(name).shape) tensor.shape.push_back(dim.size);
    tensors.push_back(std::move(tensor));
  }
  SafetensorsWriter file(job.file("weights.safetensors"), tensors);
  for (const SafetensorsTensor& tensor : tensors) {
    const Box whole{std::vector<std::int64_t>(tensor.shape.size(), 0), tensor.shape};
    file.write(tensor.name, whole, store.read(tensor.name).data.data());
  }
  file.close();
}

void write_meta(const Job& job, const json& meta) {
  std::ofstream file(job.file("meta.json"));
  file << meta.dump(1) << "\n";
  if (!file.flush()) throw SystemError("cannot write " + job.file("meta.json"));
}

}  // namespace tessera::peers

int main(int argc, char** argv) {
  try {
    if (argc != 3) throw tessera::UserError("usage: tessera_peer export|steps|rate|collectives JOB");
    return tessera::peers::run(argv[1], argv[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tessera_peer: %s\n", error.what());
    return 1;
  }
}
