// The small helpers below everything: checked arithmetic, hashes, text, memory, files, log.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <limits>

#include "base/aligned_buffer.h"
#include "base/checked.h"
#include "base/cores.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/text.h"
#include "tessera/error.h"
#include "unit/io_fault_vfs.h"
#include "unit/io_temporary_folder.h"

namespace tessera {
namespace {

TEST(Checked, NothingInsteadOfWrapping) {
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(checked_add<std::uint64_t>(kMost, 0), kMost);
  EXPECT_EQ(checked_add<std::uint64_t>(kMost, 1), std::nullopt);
  EXPECT_EQ(checked_multiply<std::uint64_t>(1ull << 32, (1ull << 32) - 1), 0xffffffff00000000ull);
  EXPECT_EQ(checked_multiply<std::uint64_t>(1ull << 32, 1ull << 32),
            std::nullopt);  // would wrap to exactly 0
  EXPECT_EQ(checked_multiply<std::int64_t>(std::numeric_limits<std::int64_t>::min(), -1), std::nullopt);
}

TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 parts;
  parts.update("a", 1);
  parts.update("", 0);
  parts.update("bc", 2);
  EXPECT_EQ(parts.hex(), sha256_hex("abc"));
}

TEST(Crc32c, KnownAnswersAndBothImplementations) {
  EXPECT_EQ(crc32c("123456789", 9), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0').data(), 32), 0x8A9136AAu);
  std::string text;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(crc32c(text.data(), text.size()), crc32c_portable(text.data(), text.size()));
    const std::size_t half = text.size() / 3;
    EXPECT_EQ(crc32c(text.data() + half, text.size() - half, crc32c(text.data(), half)),
              crc32c(text.data(), text.size()));
    text += static_cast<char>(i * 37);
  }
}

TEST(Text, Utf8) {
  for (const char* good : {"", "a", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                           "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(is_utf8(good)) << printable(good);
  }
  for (const char* bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                          "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82", "a\xFF"}) {
    EXPECT_FALSE(is_utf8(bad)) << printable(bad);
  }
}

TEST(Text, PrintableEscapesWhatATerminalWouldObey) {
  EXPECT_EQ(printable("w\x1b[2J\n\xC3\xA9\x9b\xC2\x9b"), "w\\x1b[2J\\x0a\xC3\xA9\\x9b\\xc2\\x9b");
  EXPECT_EQ(printable(std::string(1000, 'x'), 10), "xxxxxxxxxx...");
}

TEST(Text, NumbersOfBytesHaveUnits) {
  EXPECT_EQ(parse_bytes("4096"), 4096);
  EXPECT_EQ(parse_bytes("900MiB"), std::int64_t{900} << 20);
  EXPECT_EQ(parse_bytes("1.5 GB"), 1'500'000'000);
  EXPECT_EQ(parse_bytes("0"), 0);
  for (const char* bad : {"", "MiB", "-1", "5 Mib", "1e30", "3 GiB or so", "nan"})
    EXPECT_THROW(parse_bytes(bad), UserError) << bad;
  for (const std::int64_t bytes :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{4097}, std::int64_t{3} << 41})
    EXPECT_EQ(parse_bytes(bytes_text(bytes)), bytes);
  EXPECT_EQ(bytes_text(std::int64_t{900} << 20), "900MiB");
  EXPECT_EQ(people_bytes(1536), "1.5 KiB");
}

TEST(AlignedBuffer, AlignmentZeroAndMove) {
  for (std::size_t size : {1u, 63u, 64u, 1000u, 1u << 20}) {
    AlignedBuffer buffer(size, AlignedBuffer::Fill::Zero);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0u);
    EXPECT_EQ(buffer.size(), size);
    EXPECT_EQ(buffer.as<char>()[size - 1], 0);
    const std::byte* at = buffer.data();
    const AlignedBuffer moved = std::move(buffer);
    EXPECT_EQ(moved.data(), at);
  }
  EXPECT_EQ(AlignedBuffer(0).data(), nullptr);
}

TEST(AlignedBuffer, TooMuchIsAMemoryError) {
  try {
    AlignedBuffer buffer(std::size_t{1} << 62);
    FAIL();
  } catch (const SystemError& e) {
    EXPECT_EQ(e.code(), ExitCode::Memory);
    EXPECT_STREQ(e.what(), "cannot allocate 4611686018427387904 bytes of memory");
  }
}

TEST(File, RoundTripThroughShortAndInterruptedCalls) {
  const TemporaryFolder folder;
  FaultVfs vfs(real_vfs());
  vfs.stutter();
  std::string text;
  for (int i = 0; i < 1000; ++i) text += std::to_string(i);
  write_new_file(vfs, folder / "a", text);
  EXPECT_EQ(read_text(vfs, folder / "a", 1 << 20), text);
  EXPECT_GT(vfs.calls(), 2000);  // it did stutter
}

TEST(File, ErrorsNamePathAndReason) {
  const TemporaryFolder folder;
  const auto message = [](auto&& action) -> std::string {
    try {
      action();
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(message([&] { File::open(real_vfs(), folder / "none"); }),
            "cannot open '" + (folder / "none") + "': No such file or directory");
  write_new_file(real_vfs(), folder / "a", "12345");
  EXPECT_EQ(message([&] { File::create(real_vfs(), folder / "a"); }),
            "cannot create '" + (folder / "a") + "': File exists");
  EXPECT_EQ(message([&] { read_text(real_vfs(), folder / "a", 4); }),
            "'" + (folder / "a") + "' has 5 bytes; at most 4 are allowed");
  const File file = File::open(real_vfs(), folder / "a");
  ASSERT_EQ(::truncate((folder / "a").c_str(), 3), 0);  // shortened after it was opened: no signal
  char buffer[5];
  EXPECT_EQ(message([&] { file.read_at(buffer, 5, 0); }),
            "'" + (folder / "a") + "' ends at byte 3 while being read");
}

TEST(File, ParentFolder) {
  EXPECT_EQ(parent_folder("a/b/c"), "a/b");
  EXPECT_EQ(parent_folder("c"), ".");
  EXPECT_EQ(parent_folder("/c"), "/");
}

TEST(File, OpensRegularFilesOnly) {
  const TemporaryFolder folder;
  write_new_file(real_vfs(), folder / "a", "x");
  ASSERT_EQ(::symlink((folder / "a").c_str(), (folder / "link").c_str()), 0);
  EXPECT_THROW(File::open(real_vfs(), folder / "link"), SystemError);
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_THROW(File::open(real_vfs(), folder / "fifo"), UserError);  // and does not wait for a writer
  EXPECT_THROW(File::open(real_vfs(), "/dev/null"), UserError);
  EXPECT_THROW(File::open(real_vfs(), folder / ""), Error);
}

TEST(File, RemoveTreeDoesNotFollowLinks) {
  const TemporaryFolder folder;
  make_folder(real_vfs(), folder / "keep");
  write_new_file(real_vfs(), folder / "keep/a", "x");
  make_folder(real_vfs(), folder / "t");
  make_folder(real_vfs(), folder / "t/u");
  write_new_file(real_vfs(), folder / "t/u/b", "x");
  ASSERT_EQ(::symlink((folder / "keep").c_str(), (folder / "t/u/link").c_str()), 0);
  EXPECT_EQ(remove_tree(real_vfs(), folder / "t"), 0);
  EXPECT_FALSE(std::filesystem::exists(folder / "t"));
  EXPECT_TRUE(std::filesystem::exists(folder / "keep/a"));
  EXPECT_EQ(remove_tree(real_vfs(), folder / "t"), -ENOENT);
}

TEST(File, LockIsExclusiveUntilClosed) {
  const TemporaryFolder folder;
  const int first = real_vfs().lock(folder / "LOCK");
  ASSERT_GE(first, 0);
  EXPECT_EQ(real_vfs().lock(folder / "LOCK"), -EWOULDBLOCK);
  real_vfs().close(first);
  const int second = real_vfs().lock(folder / "LOCK");
  EXPECT_GE(second, 0);
  real_vfs().close(second);
}

TEST(File, RenameNewDoesNotReplaceAndExchangeSwaps) {
  const TemporaryFolder folder;
  write_new_file(real_vfs(), folder / "a", "A");
  write_new_file(real_vfs(), folder / "b", "B");
  EXPECT_EQ(real_vfs().rename_new(folder / "a", folder / "b"), -EEXIST);
  EXPECT_EQ(real_vfs().exchange(folder / "a", folder / "b"), 0);
  EXPECT_EQ(read_text(real_vfs(), folder / "a", 9), "B");
  EXPECT_EQ(real_vfs().rename_new(folder / "a", folder / "c"), 0);
  std::vector<std::string> names;
  EXPECT_EQ(real_vfs().list(folder / "", names), 0);
  EXPECT_THAT(names, ::testing::ElementsAre("b", "c"));
}

TEST(Log, LevelDecidesWhatIsWritten) {
  ::testing::internal::CaptureStderr();
  log_warning("disk {} is {}", 7, "slow");
  log_debug("hidden {}", 1);
  set_log_level(LogLevel::Error);
  log_warning("hidden too");
  EXPECT_FALSE(log_enabled(LogLevel::Warning));
  set_log_level(LogLevel::Info);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "warning: disk 7 is slow\n");
}

TEST(Cores, AreThoseOfTheAffinityMask) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(usable_cores(), CPU_COUNT(&before));
  CPU_ZERO(&one);
  int core = 0;
  while (!CPU_ISSET(core, &before)) ++core;
  CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_cores(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace tessera
