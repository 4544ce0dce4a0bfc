// The program's log: lines on standard error, "warning: ..." and the like. Thread-safe. Text from files goes
// through printable() (base/text.h) first.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace tessera {

enum class LogLevel { Debug, Info, Warning, Error, Off };

void log_line(LogLevel level, std::string_view text);
void set_log_level(LogLevel least);  // of this process; the default is Info
bool log_enabled(LogLevel level);

template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(LogLevel::Debug))
    log_line(LogLevel::Debug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(LogLevel::Info)) log_line(LogLevel::Info, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(LogLevel::Warning))
    log_line(LogLevel::Warning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(LogLevel::Error))
    log_line(LogLevel::Error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tessera
