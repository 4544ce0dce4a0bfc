// Event files, metrics and traces: their bytes, and that a full disk does not stop a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/crc32c.h"
#include "base/file.h"
#include "tessera/event_log.h"
#include "unit/io_temporary_folder.h"

namespace tessera {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;

// The messages of an event file; checks length and both checksums of each.
std::vector<std::string> records(const std::string& bytes) {
  std::vector<std::string> messages;
  const auto masked = [](const std::string& s) {
    const std::uint32_t crc = crc32c(s.data(), s.size());
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
  };
  std::size_t at = 0;
  while (at < bytes.size()) {
    std::uint64_t length = 0;
    std::uint32_t head = 0, tail = 0;
    std::memcpy(&length, bytes.data() + at, 8);
    std::memcpy(&head, bytes.data() + at + 8, 4);
    EXPECT_EQ(head, masked(bytes.substr(at, 8)));
    messages.push_back(bytes.substr(at + 12, length));
    std::memcpy(&tail, bytes.data() + at + 12 + length, 4);
    EXPECT_EQ(tail, masked(messages.back()));
    at += 16 + length;
  }
  EXPECT_EQ(at, bytes.size());
  return messages;
}

TEST(EventFile, BytesOfAScalar) {
  const TemporaryFolder folder;
  std::string path;
  {
    EventFile events(folder / "run/tensorboard");  // makes both folders
    events.scalars(300, {{"train/loss", 2.5}, {"lr", 1e-3}});
    path = events.path();
    EXPECT_EQ(records(slurp(path)).size(), 3u);  // on the disk already
  }
  EXPECT_THAT(path, ::testing::ContainsRegex("/events\\.out\\.tfevents\\.[0-9]+\\."));
  const std::vector<std::string> messages = records(slurp(path));
  // wall_time is field 1, a double; then file_version is field 3.
  EXPECT_EQ(messages[0][0], '\x09');
  EXPECT_EQ(messages[0].substr(9),
            "\x1a\x0d"
            "brain.Event:2");
  // step 300 is the varint AC 02; the summary of 19 bytes holds a value of 17: tag and a float.
  EXPECT_EQ(messages[1].substr(9), std::string("\x10\xac\x02"
                                               "\x2a\x13"
                                               "\x0a\x11"
                                               "\x0a\x0a"
                                               "train/loss"
                                               "\x15"
                                               "\x00\x00\x20\x40",
                                               3 + 2 + 2 + 2 + 10 + 1 + 4));
  double wall_time = 0;
  std::memcpy(&wall_time, messages[1].data() + 1, 8);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  EXPECT_NEAR(wall_time, std::chrono::duration<double>(now).count(), 60);
}

// Tag, a tensor of one string, and the name of the plug-in that shows it; read back once by TensorBoard
// itself.
TEST(EventFile, BytesOfAText) {
  const TemporaryFolder folder;
  EventFile events(folder.path());
  events.text(-1, "cfg", "**a**");
  const std::vector<std::string> messages = records(slurp(events.path()));
  const std::string tensor = std::string("\x08\x07\x12\x04\x12\x02\x08\x01") + "\x42\x05" + "**a**";
  const std::string value =
      std::string("\x0a\x03") + "cfg" + "\x42\x0f" + tensor + "\x4a\x08\x0a\x06\x0a\x04" + "text";
  const std::string step = std::string("\x10") + std::string(9, '\xff') + '\x01';
  EXPECT_EQ(messages[1].substr(9), step + "\x2a\x22\x0a\x20" + value);
}

TEST(MetricsFile, OneObjectALineAndAppends) {
  const TemporaryFolder folder;
  MetricsFile(folder / "metrics.jsonl").write(1, {{"loss", 0.1}, {"bad", std::nan("")}});
  MetricsFile(folder / "metrics.jsonl")
      .write(2, {{"loss", std::numeric_limits<double>::infinity()}, {"a\"b\n\xff", -1e300}});
  std::vector<json> lines;
  std::istringstream in(slurp(folder / "metrics.jsonl"));
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["step"], 1);
  EXPECT_EQ(lines[0]["loss"], 0.1);
  EXPECT_EQ(lines[0]["bad"], "nan");
  EXPECT_EQ(lines[1]["loss"], "inf");
  EXPECT_EQ(lines[1]["a\"b\n\xEF\xBF\xBD"], -1e300);
}

TEST(TraceFile, LanesSpansAndCountersFromManyThreads) {
  const TemporaryFolder folder;
  {
    TraceFile trace(folder / "trace.json");
    std::vector<std::thread> ranks;
    for (int r = 0; r < 3; ++r) {
      ranks.emplace_back([&trace, r] {
        trace.name_lane(r, "rank " + std::to_string(r));
        for (int i = 0; i < 50; ++i) {
          trace.span(r, "einsum \"w\"", "contraction", i * 10.5, 7.25,
                     {{"bytes", "128"}, {"line", "a.cc:3"}});
        }
        trace.counter(r, "bytes in use", 3, 4096);
      });
    }
    for (auto& t : ranks) t.join();
  }
  const json events = json::parse(slurp(folder / "trace.json"));
  int spans[3] = {}, counters = 0, names = 0;
  for (const json& e : events) {
    if (e["ph"] == "X") {
      ++spans[e["tid"].get<int>()];
      EXPECT_EQ(e["name"], "einsum \"w\"");
      EXPECT_EQ(e["dur"], 7.25);
      EXPECT_EQ(e["args"]["line"], "a.cc:3");
    }
    counters += e["ph"] == "C" && e["args"]["value"] == 4096;
    names += e["name"] == "thread_name";
  }
  EXPECT_THAT(spans, ElementsAre(50, 50, 50));
  EXPECT_EQ(counters, 3);
  EXPECT_EQ(names, 3);
}

TEST(TraceFile, WithoutSpansAndAfterClose) {
  const TemporaryFolder folder;
  TraceFile trace(folder / "trace.json");
  trace.close();
  trace.span(0, "late", "", 0, 1);
  EXPECT_EQ(json::parse(slurp(folder / "trace.json")), json::array());
}

TEST(LogFiles, AFullDiskGivesOneWarning) {
  ::testing::internal::CaptureStderr();
  {
    MetricsFile metrics("/dev/full");
    for (int step = 0; step < 100; ++step) metrics.write(step, {{"loss", 1}});
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "warning: cannot write '/dev/full': No space left on device; going on without it\n");
  ::testing::internal::CaptureStderr();
  {
    TraceFile trace("/dev/full");
    for (int i = 0; i < 1000; ++i) trace.span(0, "a", "b", i, 1);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "warning: cannot write '/dev/full': No space left on device; going on without it\n");
}

TEST(LogFiles, AnUnwritableFolderGivesOneWarning) {
  ::testing::internal::CaptureStderr();
  EventFile events("/proc/none");
  events.scalars(1, {{"a", 1}});
  events.text(1, "b", "c");
  EXPECT_EQ(
      ::testing::internal::GetCapturedStderr(),
      "warning: cannot write '" + events.path() + "': No such file or directory; going on without it\n");
}

}  // namespace
}  // namespace tessera
