// Traces in the Chrome trace event format: an array of objects. "X" is a span, "C" a counter, "M" a name.
#include <fmt/format.h>

#include <mutex>

#include "io/json_text.h"
#include "io/log_file.h"
#include "tessera/event_log.h"

namespace tessera {

struct TraceFile::Impl {
  LogFile file;
  std::mutex mutex;
  bool is_first = true, is_closed = false;

  explicit Impl(const std::string& path) : file(path, LogFile::Start::Replace) { file.write("["); }

  void add(const std::string& event) {
    const std::lock_guard lock(mutex);
    if (is_closed) return;
    file.write(is_first ? "\n" : ",\n");
    file.write(event);
    is_first = false;
  }
};

TraceFile::TraceFile(const std::string& path) : impl_(new Impl(path)) {}
TraceFile::~TraceFile() {
  close();
}

void TraceFile::name_lane(int rank, std::string_view name) {
  impl_->add(fmt::format(R"({{"ph":"M","pid":0,"tid":{},"name":"thread_name","args":{{"name":{}}}}})", rank,
                         json_string(name)));
  // Viewers order lanes by this number, not by name.
  impl_->add(fmt::format(
      R"({{"ph":"M","pid":0,"tid":{0},"name":"thread_sort_index","args":{{"sort_index":{0}}}}})", rank));
}

void TraceFile::span(int rank, std::string_view name, std::string_view kind, double begin, double duration,
                     const Details& details) {
  std::string args;
  for (const auto& [key, value] : details) {
    args += fmt::format("{}{}:{}", args.empty() ? "" : ",", json_string(key), json_string(value));
  }
  impl_->add(fmt::format(
      R"({{"ph":"X","pid":0,"tid":{},"name":{},"cat":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})", rank,
      json_string(name), json_string(kind), begin, duration, args));
}

void TraceFile::counter(int rank, std::string_view name, double time, double value) {
  // Counters belong to a process, so the rank becomes part of the name.
  impl_->add(fmt::format(R"({{"ph":"C","pid":0,"name":{},"ts":{:.3f},"args":{{"value":{}}}}})",
                         json_string(fmt::format("{} (rank {})", name, rank)), time, json_number(value)));
}

void TraceFile::close() {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->is_closed) return;
  impl_->file.write("\n]\n");
  impl_->file.flush();
  impl_->is_closed = true;
}

}  // namespace tessera
