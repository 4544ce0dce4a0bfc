// The three kinds of failure, and the exit codes that the command gives for them.
//
//   UserError      the caller's program, layout, flags or files are wrong; the message says what, where,
//   which two
//                  facts clash and how to fix it
//   InternalError  a bug of Tessera; please report it
//   SystemError    I/O, memory, another rank
//
// Every function of the library that can fail throws one of these. Throwing is thread-safe; a rank that
// throws makes every other rank of its session throw a SystemError that names it.
#pragma once

#include <stdexcept>
#include <string>

namespace tessera {

// Exit codes of the command (docs/cli.md).
enum class ExitCode : int {
  Done = 0,
  Usage = 64,       // flags, configuration, program or layout
  BadData = 65,     // data, tokeniser or checkpoint file
  Disagree = 69,    // ranks disagree or cannot meet
  Internal = 70,    // a bug of Tessera
  Memory = 71,      // the program needs more memory than there is
  Storage = 74,     // the file system failed
  Stopped = 75,     // stopped on request, checkpoint saved: run me again
  Numbers = 86,     // non-finite values beyond the policy's budget
  NoProgress = 87,  // a rank did not arrive in time
  PeerLost = 88,    // another rank failed
};

class Error : public std::runtime_error {
 public:
  Error(const std::string& message, ExitCode code) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

class UserError : public Error {
 public:
  explicit UserError(const std::string& message, ExitCode code = ExitCode::Usage) : Error(message, code) {}
};

class InternalError : public Error {
 public:
  explicit InternalError(const std::string& message) : Error(message, ExitCode::Internal) {}
};

class SystemError : public Error {
 public:
  explicit SystemError(const std::string& message, ExitCode code = ExitCode::Storage)
      : Error(message, code) {}
};

}  // namespace tessera
