// Batches of made-up tokens, all of full length, for measurements without a corpus.
#pragma once

#include "tessera/config.h"
#include "tessera/data.h"

namespace tessera {

class MadeUpData : public Dataset {
 public:
  explicit MadeUpData(const Config& config);

  Batch batch(std::int64_t step) const override;
  double steps_per_epoch() const override { return 1; }
  std::int64_t evaluation_batches() const override { return 1; }
  Batch evaluation_batch(std::int64_t index) const override { return batch(index); }
  const std::vector<BatchShape>& shapes() const override { return shapes_; }
  const DataStats& stats() const override { return stats_; }
  const std::string& fingerprint() const override { return fingerprint_; }

 private:
  std::int64_t vocab_;
  std::vector<BatchShape> shapes_;
  DataStats stats_;
  std::string fingerprint_ = "made up";
};

// The largest batch that the data layer makes for these settings.
BatchShape largest_shape(const Config& config);

}  // namespace tessera
