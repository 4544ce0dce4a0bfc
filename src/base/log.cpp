// The log on top of spdlog.
#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace tessera {
namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::Debug:
      return spdlog::level::debug;
    case LogLevel::Info:
      return spdlog::level::info;
    case LogLevel::Warning:
      return spdlog::level::warn;
    case LogLevel::Error:
      return spdlog::level::err;
    case LogLevel::Off:
      break;
  }
  return spdlog::level::off;
}

// Not spdlog's default logger: that one belongs to the program which links us.
spdlog::logger& logger() {
  static const auto instance = [] {
    auto made =
        std::make_shared<spdlog::logger>("tessera", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%^%l%$: %v");
    return made;
  }();
  return *instance;
}

}  // namespace

void log_line(LogLevel level, std::string_view text) {
  logger().log(spdlog_level(level), spdlog::string_view_t(text.data(), text.size()));
}

void set_log_level(LogLevel least) {
  logger().set_level(spdlog_level(least));
}

bool log_enabled(LogLevel level) {
  return logger().should_log(spdlog_level(level));
}

}  // namespace tessera
