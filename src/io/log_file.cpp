// A file of records that a run can do without.
#include "io/log_file.h"

#include <cerrno>
#include <system_error>

#include "base/log.h"
#include "base/text.h"

namespace tessera {

LogFile::LogFile(std::string path, Start start)
    : path_(std::move(path)), file_(std::fopen(path_.c_str(), start == Start::Append ? "abe" : "wbe")) {
  if (!file_) give_up();
}

LogFile::~LogFile() {
  if (file_ && std::fclose(file_) != 0) {
    file_ = nullptr;
    give_up();
  }
}

void LogFile::write(std::string_view bytes) {
  if (file_ && std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) give_up();
}

void LogFile::flush() {
  if (file_ && std::fflush(file_) != 0) give_up();
}

void LogFile::give_up() {
  log_warning("cannot write '{}': {}; going on without it", printable(path_),
              std::generic_category().message(errno));
  if (file_) std::fclose(file_);
  file_ = nullptr;
}

}  // namespace tessera
