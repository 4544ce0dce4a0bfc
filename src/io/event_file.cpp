// TensorBoard event files. Each record is a protocol buffer message in a frame:
//   u64 length, u32 masked CRC-32C of it, the message, u32 masked CRC-32C of that
// The few messages are written by hand: Event {1 wall_time, 2 step, 3 file_version, 5 summary},
// Summary {1 value}, Value {1 tag, 2 simple_value, 8 tensor, 9 metadata}.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>

#include "base/crc32c.h"
#include "io/log_file.h"
#include "tessera/event_log.h"

namespace tessera {
namespace {

template <typename T>
void append_raw(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

enum Wire : std::uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void append_key(std::string& out, std::uint64_t field, Wire wire) {
  append_varint(out, field << 3 | wire);
}

void append_bytes(std::string& out, std::uint64_t field, std::string_view bytes) {
  append_key(out, field, kBytes);
  append_varint(out, bytes.size());
  out += bytes;
}

void append_number(std::string& out, std::uint64_t field, std::int64_t value) {
  append_key(out, field, kVarint);
  append_varint(out, static_cast<std::uint64_t>(value));
}

std::string event_head() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::string event;
  append_key(event, 1, kFixed64);
  append_raw(event, std::chrono::duration<double>(now).count());
  return event;
}

std::string event_with_value(std::int64_t step, std::string_view value) {
  std::string summary, event = event_head();
  append_bytes(summary, 1, value);
  append_number(event, 2, step);
  append_bytes(event, 5, summary);
  return event;
}

std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes.data(), bytes.size());
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::string framed(std::string_view message) {
  std::string record;
  append_raw(record, std::uint64_t{message.size()});
  append_raw(record, masked_crc(record));
  record += message;
  append_raw(record, masked_crc(message));
  return record;
}

std::string event_path(const std::string& folder) {
  std::error_code ignored;  // opening the file will say it
  std::filesystem::create_directories(folder, ignored);
  char host[256] = "localhost";
  ::gethostname(host, sizeof(host) - 1);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format("{}/events.out.tfevents.{}.{}.{}", folder,
                     std::chrono::duration_cast<std::chrono::seconds>(now).count(), host, ::getpid());
}

}  // namespace

struct EventFile::Impl {
  LogFile file;
};

EventFile::EventFile(const std::string& folder)
    : impl_(new Impl{{event_path(folder), LogFile::Start::Append}}) {
  std::string event = event_head();
  append_bytes(event, 3, "brain.Event:2");
  impl_->file.write(framed(event));
  impl_->file.flush();
}

EventFile::~EventFile() = default;

const std::string& EventFile::path() const {
  return impl_->file.path();
}

void EventFile::scalars(std::int64_t step, const NamedValues& values) {
  for (const auto& [name, number] : values) {
    std::string value;
    append_bytes(value, 1, name);
    append_key(value, 2, kFixed32);
    append_raw(value, static_cast<float>(number));
    impl_->file.write(framed(event_with_value(step, value)));
  }
  impl_->file.flush();
}

void EventFile::text(std::int64_t step, std::string_view name, std::string_view markdown) {
  constexpr std::int64_t kStringType = 7;
  std::string dimension, shape, tensor, plugin, metadata, value;
  append_number(dimension, 1, 1);
  append_bytes(shape, 2, dimension);
  append_number(tensor, 1, kStringType);
  append_bytes(tensor, 2, shape);
  append_bytes(tensor, 8, markdown);
  append_bytes(plugin, 1, "text");
  append_bytes(metadata, 1, plugin);
  append_bytes(value, 1, name);
  append_bytes(value, 8, tensor);
  append_bytes(value, 9, metadata);
  impl_->file.write(framed(event_with_value(step, value)));
  impl_->file.flush();
}

}  // namespace tessera
