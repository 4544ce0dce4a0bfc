// A file of records that a run can do without: the first failure is a warning, and the last attempt.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace tessera {

class LogFile {
 public:
  enum class Start { Append, Replace };

  LogFile(std::string path, Start start);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  const std::string& path() const { return path_; }
  void write(std::string_view bytes);
  void flush();

 private:
  void give_up();

  std::string path_;
  std::FILE* file_;
};

}  // namespace tessera
