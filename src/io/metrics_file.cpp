// metrics.jsonl.
#include <fmt/format.h>

#include <chrono>

#include "io/json_text.h"
#include "io/log_file.h"
#include "tessera/event_log.h"

namespace tessera {

struct MetricsFile::Impl {
  LogFile file;
};

MetricsFile::MetricsFile(const std::string& path) : impl_(new Impl{{path, LogFile::Start::Append}}) {}
MetricsFile::~MetricsFile() = default;

void MetricsFile::write(std::int64_t step, const NamedValues& values) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::string line =
      fmt::format("{{\"step\":{},\"time\":{:.3f}", step, std::chrono::duration<double>(now).count());
  for (const auto& [name, value] : values)
    line += fmt::format(",{}:{}", json_string(name), json_number(value));
  impl_->file.write(line + "}\n");
  impl_->file.flush();
}

}  // namespace tessera
