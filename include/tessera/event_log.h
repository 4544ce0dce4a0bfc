// Records of a run for people and tools: TensorBoard event files, metrics.jsonl, and traces for Perfetto
// (https://ui.perfetto.dev) or chrome://tracing. A file that cannot be written gives one warning and is given
// up: no run ends because of its log. Layer: io.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

using NamedValues = std::vector<std::pair<std::string, double>>;

// A TensorBoard event file, <folder>/events.out.tfevents.<seconds>.<host>.<process>: a new one for each start
// of a run, which TensorBoard joins. Makes the folder. One thread.
class EventFile {
 public:
  explicit EventFile(const std::string& folder);
  ~EventFile();

  // Names may hold '/' to make groups ("train/loss"). On the disk when the call returns.
  void scalars(std::int64_t step, const NamedValues& values);
  void text(std::int64_t step, std::string_view name, std::string_view markdown);

  const std::string& path() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// One JSON object a line: {"step":10,"time":1700000000.123,"train/loss":2.5}. Values that are not finite are
// written as the strings "nan", "inf" and "-inf". Appends to what is there: after a resume a step may occur
// again, and the later line is right. One thread.
class MetricsFile {
 public:
  explicit MetricsFile(const std::string& path);
  ~MetricsFile();

  void write(std::int64_t step, const NamedValues& values);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A trace with a lane for each rank. Replaces a file that is there. Any thread.
class TraceFile {
 public:
  using Details = std::vector<std::pair<std::string, std::string>>;

  explicit TraceFile(const std::string& path);
  ~TraceFile();  // close()

  void name_lane(int rank, std::string_view name);  // "rank 3 (rows 1, cols 1)"

  // Times in microseconds from a start that all lanes share. `kind` groups and colours, for example
  // "collective".
  void span(int rank, std::string_view name, std::string_view kind, double begin, double duration,
            const Details& details = {});

  // A curve above the lanes, for example bytes in use.
  void counter(int rank, std::string_view name, double time, double value);

  // Ends the file; later calls do nothing. Viewers open a file without its end too.
  void close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
