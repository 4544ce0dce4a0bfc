// What both kinds of data sets share: shapes, groups of items, the schedule and the exact evaluation pass.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/schedule.h"
#include "data/token_cache.h"
#include "tessera/data.h"

namespace tessera::data {

class BatchedDataset : public Dataset {
 public:
  // items[g]: the items (examples or rows) of shapes[g].
  BatchedDataset(TokenCache cache, std::vector<BatchShape> shapes,
                 std::vector<std::vector<std::int64_t>> items, std::uint64_t seed,
                 const std::string& options_text);

  Batch batch(std::int64_t step) const override;
  double steps_per_epoch() const override { return schedule_.steps_per_epoch(); }
  std::int64_t evaluation_batches() const override;
  Batch evaluation_batch(std::int64_t index) const override;
  const std::vector<BatchShape>& shapes() const override { return shapes_; }
  const DataStats& stats() const override { return stats_; }
  const std::string& fingerprint() const override { return fingerprint_; }

 protected:
  // Makes the inputs, all padding.
  virtual void prepare(Batch& batch) const = 0;
  // Writes an item into a row and counts its tokens, words and bytes.
  virtual void write_row(Batch& batch, std::int64_t row, std::int64_t item) const = 0;

  const TokenCache cache_;
  DataStats stats_;

 private:
  Batch assemble(std::size_t shape, const std::vector<std::int64_t>& rows) const;

  std::vector<BatchShape> shapes_;
  std::vector<std::vector<std::int64_t>> items_;
  Schedule schedule_;
  std::string fingerprint_;
};

// A zero i32 array of two dimensions.
Array padding(const std::string& rows_dim, std::int64_t rows, const std::string& length_dim,
              std::int64_t length);

}  // namespace tessera::data
