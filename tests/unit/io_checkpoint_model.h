// A small set of tensors whose values are a function of the step, cut over ranks in uneven ways: what the
// checkpoint tests save and compare.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "tessera/checkpoint.h"
#include "tessera/random.h"

namespace tessera {

inline std::vector<TensorInfo> model_tensors() {
  return {{"adam/step", {Shape{}, DType::F64}},
          {"decoder/w", {Shape{{"rows", 5}, {"cols", 7}}, DType::F32}},
          {"encoder/table", {Shape{{"vocab", 11}, {"heads", 2}, {"d_kv", 3}}, DType::BF16}},
          {"mask", {Shape{{"length", 9}}, DType::Bool}},
          {"nothing", {Shape{{"rows", 0}, {"cols", 3}}, DType::F32}},
          {"positions", {Shape{{"length", 9}}, DType::I32}}};
}

inline Box whole_box(const Shape& shape) {
  Box box;
  for (const Dim& dim : shape) {
    box.start.push_back(0);
    box.size.push_back(dim.size);
  }
  return box;
}

// The tensor's bytes at a step; finite numbers, and 0 or 1 for bool.
inline std::vector<char> make_model_values(const TensorInfo& tensor, std::int64_t step) {
  const RandomKey key = random_key(3, tensor.name, step);
  std::vector<char> bytes(static_cast<std::size_t>(tensor.type.bytes()));
  const std::size_t element = size_of(tensor.type.dtype);
  for (std::size_t i = 0; i < bytes.size() / element; ++i) {
    const float value = random_normal_at(key, i);
    const auto put = [&](auto v) { std::memcpy(bytes.data() + i * element, &v, sizeof(v)); };
    if (tensor.type.dtype == DType::F32) put(value);
    if (tensor.type.dtype == DType::F64) put(static_cast<double>(value) / 3);
    if (tensor.type.dtype == DType::BF16) put(bf16(value));
    if (tensor.type.dtype == DType::I32) put(static_cast<std::int32_t>(value * 1000));
    if (tensor.type.dtype == DType::Bool) put(static_cast<char>(value > 0));
  }
  return bytes;
}

// The same, made once: the tests compare thousands of copies.
inline const std::vector<char>& model_values(const TensorInfo& tensor, std::int64_t step) {
  static std::map<std::pair<std::string, std::int64_t>, std::vector<char>> made;
  std::vector<char>& values = made[{tensor.name, step}];
  if (values.empty()) values = make_model_values(tensor, step);
  return values;
}

// Boxes that tile a shape, one for each rank and some of them empty: the ranks are cut over one dimension by
// `cut` modulo the number of dimensions, in uneven parts. A scalar belongs to one rank.
inline std::vector<Box> tile(const Shape& shape, int ranks, int cut) {
  std::vector<Box> boxes(static_cast<std::size_t>(ranks), whole_box(shape));
  if (shape.is_scalar()) {
    for (int r = 0; r < ranks; ++r) {
      if (r != cut % ranks) boxes[static_cast<std::size_t>(r)] = Box{{}, {}};
    }
    return boxes;
  }
  const std::size_t d = static_cast<std::size_t>(cut) % shape.count();
  std::int64_t at = 0;
  for (int r = 0; r < ranks; ++r) {
    Box& box = boxes[static_cast<std::size_t>(r)];
    const std::int64_t end = shape[d].size * (r + 1) * (r + 1) / (ranks * ranks);
    box.start[d] = at;
    box.size[d] = end - at;
    at = end;
  }
  return boxes;
}

// All ranks write their shards and the root commits. `cut` chooses the way in which the tensors are cut.
struct ModelSave {
  int ranks = 4;
  int cut = 0;
  Vfs* vfs = nullptr;

  std::vector<std::string> write_shards(const std::string& folder, std::int64_t step) const {
    const std::vector<TensorInfo> tensors = model_tensors();
    std::vector<std::vector<char>> values;
    for (const TensorInfo& t : tensors) values.push_back(model_values(t, step));
    std::vector<std::string> reports;
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<BlockSource> blocks;
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        const Shape& shape = tensors[i].type.shape;
        if (shape.is_scalar() && cut % ranks != rank) continue;
        const Box box = tile(shape, ranks, cut + static_cast<int>(i))[static_cast<std::size_t>(rank)];
        blocks.push_back({tensors[i].name, tensors[i].type, box, values[i].data(), whole_box(shape)});
      }
      reports.push_back(write_shard(folder, rank, ranks, blocks, vfs));
    }
    return reports;
  }

  std::string operator()(CheckpointDir& dir, std::int64_t step) const {
    const std::string folder = dir.begin(step, 4096);
    std::vector<std::string> reports;
    try {
      reports = write_shards(folder, step);
    } catch (...) {
      dir.abandon(folder);
      throw;
    }
    return dir.commit(folder, info(step), reports);
  }

  static CheckpointInfo info(std::int64_t step) {
    return {step, "rows:2;cols:2", "batch:rows", "{\"next_sample\":" + std::to_string(step * 17) + "}"};
  }
};

// Whole tensors and state are those of the step.
inline void expect_model(const CheckpointReader& reader, std::int64_t step) {
  EXPECT_EQ(reader.step(), step);
  EXPECT_EQ(reader.state(), ModelSave::info(step).state);
  reader.check_tensors(model_tensors());
  for (const TensorInfo& t : model_tensors()) {
    const std::vector<char> want = model_values(t, step);
    std::vector<char> have(want.size());
    reader.read(t.name, whole_box(t.type.shape), have.data());
    EXPECT_EQ(have, want) << t.name;
  }
}

inline std::string model_hash(std::int64_t step) {
  std::vector<TensorHash> hashes;
  for (const TensorInfo& t : model_tensors()) {
    const Box box = whole_box(t.type.shape);
    hashes.push_back({t.name, t.type, box_hash(t.type, box, model_values(t, step).data(), box)});
  }
  return state_hash(hashes);
}

}  // namespace tessera
