// Batches from groups of items, and the part of a batch that one rank pulls.
#include "data/batches.h"

#include "base/check.h"
#include "base/sha256.h"
#include "base/text.h"
#include "data/data_error.h"

namespace tessera::data {
namespace {

std::vector<Schedule::Group> groups_of(const std::vector<BatchShape>& shapes,
                                       const std::vector<std::vector<std::int64_t>>& items) {
  std::vector<Schedule::Group> groups;
  for (std::size_t g = 0; g < shapes.size(); ++g) {
    groups.push_back({static_cast<std::int64_t>(items[g].size()), shapes[g].sentences});
  }
  return groups;
}

}  // namespace

BatchedDataset::BatchedDataset(TokenCache cache, std::vector<BatchShape> shapes,
                               std::vector<std::vector<std::int64_t>> items, std::uint64_t seed,
                               const std::string& options_text)
    : cache_(std::move(cache)),
      stats_(cache_.stats()),
      shapes_(std::move(shapes)),
      items_(std::move(items)),
      schedule_(groups_of(shapes_, items_), seed),
      fingerprint_(sha256_hex(fmt::format("{} seed={} {}", cache_.key(), seed, options_text))) {}

Batch BatchedDataset::assemble(std::size_t shape, const std::vector<std::int64_t>& rows) const {
  Batch batch;
  batch.shape = shape;
  batch.examples = rows;
  prepare(batch);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (rows[row] >= 0) write_row(batch, static_cast<std::int64_t>(row), rows[row]);
  }
  return batch;
}

Batch BatchedDataset::batch(std::int64_t step) const {
  const Schedule::Place place = schedule_.place(step);
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < shapes_[place.group].sentences; ++i) {
    rows.push_back(items_[place.group][schedule_.item(place.group, place.first + i)]);
  }
  Batch batch = assemble(place.group, rows);
  batch.step = step;
  batch.epoch = place.epoch;
  return batch;
}

std::int64_t BatchedDataset::evaluation_batches() const {
  std::int64_t batches = 0;
  for (std::size_t g = 0; g < shapes_.size(); ++g) {
    batches +=
        (static_cast<std::int64_t>(items_[g].size()) + shapes_[g].sentences - 1) / shapes_[g].sentences;
  }
  return batches;
}

Batch BatchedDataset::evaluation_batch(std::int64_t index) const {
  TESSERA_CHECK(index >= 0 && index < evaluation_batches(),
                "data: there is no evaluation batch {}; there are {}", index, evaluation_batches());
  std::int64_t left = index;
  for (std::size_t g = 0;; ++g) {
    const std::int64_t size = shapes_[g].sentences;
    const auto items = static_cast<std::int64_t>(items_[g].size());
    if (left * size < items) {
      std::vector<std::int64_t> rows(static_cast<std::size_t>(size), -1);
      for (std::int64_t i = 0; i < size && left * size + i < items; ++i) rows[i] = items_[g][left * size + i];
      Batch batch = assemble(g, rows);
      batch.step = index;
      return batch;
    }
    left -= (items + size - 1) / size;
  }
}

Array padding(const std::string& rows_dim, std::int64_t rows, const std::string& length_dim,
              std::int64_t length) {
  return Array(Type{Shape({Dim{rows_dim, rows}, Dim{length_dim, length}}), DType::I32});
}

}  // namespace tessera::data

namespace tessera {

void Batch::fill(const std::string& name, const Box& box, void* out) const {
  const auto hit = inputs.find(name);
  if (hit == inputs.end()) {
    std::string known;
    for (const auto& [input, value] : inputs) known += known.empty() ? input : ", " + input;
    throw UserError(fmt::format("data: the batch has no input '{}'; it has: {}", printable(name), known));
  }
  const Shape& whole_shape = hit->second.type.shape;
  Box whole;
  bool inside = box.start.size() == whole_shape.count() && box.size.size() == whole_shape.count();
  for (std::size_t d = 0; d < whole_shape.count(); ++d) {
    whole.start.push_back(0);
    whole.size.push_back(whole_shape[d].size);
    inside = inside && box.start[d] >= 0 && box.size[d] >= 0 && box.end(d) <= whole_shape[d].size;
  }
  if (!inside) {
    throw UserError(fmt::format("data: the part {} reaches outside of the input '{}' ({})", to_string(box),
                                name, to_string(whole_shape)));
  }
  copy_box(hit->second.data.data(), whole, out, box, box, sizeof(std::int32_t));
}

}  // namespace tessera
