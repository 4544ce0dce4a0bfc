// Parameters and slots between a Store and checkpoints.
#include <algorithm>
#include <exception>
#include <thread>

#include "base/check.h"
#include "train/run_state.h"

namespace tessera {
namespace {

struct Shards {
  std::vector<std::vector<BlockSource>> writers;
  std::uint64_t bytes = 0;
};

// Every distinct shard once, each given to the writer with the least to write so far.
Shards distribute(const Store& store, int writers) {
  Shards shards;
  shards.writers.resize(static_cast<std::size_t>(writers));
  std::vector<std::uint64_t> load(shards.writers.size());
  for (const std::string& name : saved_variables(store)) {
    const Type type = store.type(name);
    store.shards(name, [&](const Box& box, const void* data) {
      if (box.empty()) return;
      const auto writer = static_cast<std::size_t>(std::min_element(load.begin(), load.end()) - load.begin());
      const auto bytes = static_cast<std::uint64_t>(box.elements()) * size_of(type.dtype);
      shards.writers[writer].push_back({name, type, box, data, box});
      load[writer] += bytes;
      shards.bytes += bytes;
    });
  }
  return shards;
}

std::vector<std::string> write_shards(const std::string& folder, const Shards& shards) {
  const int count = static_cast<int>(shards.writers.size());
  std::vector<std::string> reports(shards.writers.size());
  std::vector<std::exception_ptr> failures(shards.writers.size());
  std::vector<std::thread> threads;
  for (int writer = 0; writer < count; ++writer) {
    threads.emplace_back([&, writer] {
      const auto at = static_cast<std::size_t>(writer);
      try {
        reports[at] = write_shard(folder, writer, count, shards.writers[at]);
      } catch (...) {
        failures[at] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return reports;
}

bool wanted(VariableKind kind, bool slots) {
  return kind == VariableKind::Parameter || (slots && kind == VariableKind::Slot);
}

}  // namespace

Strings saved_variables(const Store& store) {
  Strings names = store.names();
  std::erase_if(names, [&](const std::string& name) { return !wanted(store.kind(name), true); });
  return names;
}

std::string state_hash(const Store& store) {
  std::vector<TensorHash> hashes;
  for (const std::string& name : saved_variables(store)) {
    TensorHash hash{name, store.type(name), 0};
    store.shards(name, [&hash](const Box& box, const void* data) {
      if (!box.empty()) hash.hash += box_hash(hash.type, box, data, box);
    });
    hashes.push_back(std::move(hash));
  }
  return state_hash(std::move(hashes));
}

std::string save_variables(CheckpointDir& dir, const Session& session, const Store& store,
                           const RunState& state) {
  constexpr int kMostWriters = 8;  // files of one process; more only make small files
  const Shards shards = distribute(store, std::min(session.mesh().ranks(), kMostWriters));
  const std::string folder = dir.begin(state.step, shards.bytes);
  try {
    const std::vector<std::string> reports = write_shards(folder, shards);
    return dir.commit(folder,
                      {.step = state.step,
                       .mesh = to_string(session.mesh()),
                       .layout = to_string(session.layout()),
                       .state = to_json(state)},
                      reports);
  } catch (...) {
    dir.abandon(folder);
    throw;
  }
}

void load_variables(const CheckpointReader& reader, Store& store, bool slots) {
  std::vector<TensorInfo> tensors;
  for (const std::string& name : store.names()) {
    if (wanted(store.kind(name), slots)) tensors.push_back({name, store.type(name)});
  }
  if (slots) {
    reader.check_tensors(tensors);
  } else {
    for (const TensorInfo& tensor : tensors) {
      const TensorInfo* there = reader.find(tensor.name);
      if (there != nullptr && there->type == tensor.type) continue;
      throw UserError(fmt::format("checkpoint '{}': the model needs '{}' {}, but the checkpoint has {}",
                                  reader.path(), tensor.name, to_string(tensor.type),
                                  there == nullptr ? "no such tensor" : to_string(there->type)),
                      ExitCode::BadData);
    }
  }
  for (const TensorInfo& tensor : tensors) {
    store.shards(tensor.name, [&](const Box& box, const void*) {
      if (box.empty()) return;
      std::vector<std::byte> buffer(static_cast<std::size_t>(box.elements()) * size_of(tensor.type.dtype));
      reader.read(tensor.name, box, buffer.data());
      store.write(tensor.name, box, buffer.data());
    });
  }
}

}  // namespace tessera
