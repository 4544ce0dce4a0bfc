// Training that is killed again and again ends in the same state as training that is not.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <random>
#include <sstream>

#include "tessera/checkpoint.h"
#include "train/support.h"

namespace tessera {
namespace {

using testing::small_config;
using testing::TempFolder;

constexpr const char* kConfigVariable = "TESSERA_KILL_TEST_CONFIG";
constexpr int kSteps = 24;
constexpr int kKills = 20;

std::string line_of(const TrainEvent& event) {
  std::ostringstream line;
  line << event.batch->step;
  for (const std::int64_t example : event.batch->examples) line << ' ' << example;
  line << '\n';
  return line.str();
}

// The child: trains as the config file says and prints what every step read on descriptor 3.
TEST(KillChild, DISABLED_Train) {
  const char* file = std::getenv(kConfigVariable);
  ASSERT_NE(file, nullptr);
  TrainOptions options;
  options.report = [](const TrainEvent& event) {
    if (event.kind != TrainEvent::Kind::Step) return;
    const std::string line = line_of(event);
    if (write(3, line.data(), line.size()) < 0) _exit(1);
  };
  Trainer(load_config(file), options).run();
}

class Child {
 public:
  explicit Child(const std::string& config) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe");
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], 3);
      setenv(kConfigVariable, config.c_str(), 1);
      const int null = ::open("/dev/null", O_WRONLY);
      dup2(null, 1);
      execl("/proc/self/exe", "tessera", "--gtest_filter=KillChild.DISABLED_Train",
            "--gtest_also_run_disabled_tests", nullptr);
      _exit(127);
    }
    close(ends[1]);
    in_ = fdopen(ends[0], "r");
  }
  ~Child() { fclose(in_); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // The next line, "" at the end.
  std::string line() {
    std::string text;
    for (int c = fgetc(in_); c != EOF && c != '\n'; c = fgetc(in_)) text += static_cast<char>(c);
    return text;
  }
  void kill() { ::kill(pid_, SIGKILL); }
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    return status;
  }

 private:
  pid_t pid_ = 0;
  FILE* in_ = nullptr;
};

std::int64_t newest_step(const std::string& run) {
  const std::string path = newest_valid(run + "/checkpoints").path;
  return path.empty() ? 0 : CheckpointReader(path).step();
}

TEST(Kill, TheEndIsTheSameAndNoBatchIsReadTwice) {
  const TempFolder whole, killed;
  const Strings settings{"train.steps=" + std::to_string(kSteps),
                         "train.checkpoint_every=1",
                         "train.keep=2",
                         "mesh.shape=data:2",
                         "mesh.layout=batch:data;params.*:data",
                         "model.layers=1"};
  std::map<std::string, std::string> expected;  // step -> line
  TrainOptions options;
  options.report = [&expected](const TrainEvent& event) {
    if (event.kind != TrainEvent::Kind::Step) return;
    const std::string line = line_of(event);
    expected[line.substr(0, line.find(' '))] = line.substr(0, line.size() - 1);
  };
  Config quick = small_config(whole.path(), settings);
  quick.train.checkpoint_every = 0;
  const TrainResult once = Trainer(quick, options).run();

  const std::string config = killed / "given.toml";
  std::ofstream(config) << to_toml(small_config(killed / "run", settings));
  std::mt19937 random(3);
  int status = -1;
  for (int kills = 0; status != 0; ++kills) {
    ASSERT_LT(kills, 4 * kKills) << "no progress";
    const std::int64_t start = newest_step(killed / "run");
    Child child(config);
    const int lines = kills < kKills ? static_cast<int>(random() % 3) : kSteps + 1;
    std::int64_t next = start;
    for (int i = 0; i < lines; ++i) {
      const std::string line = child.line();
      if (line.empty()) break;
      // The batch that follows the newest checkpoint, and the same one as without kills.
      EXPECT_EQ(line, expected[std::to_string(next)]);
      ++next;
    }
    if (kills < kKills) {
      usleep(static_cast<useconds_t>(random() % 40'000));
      child.kill();
    }
    status = child.wait();
  }
  const std::string path = newest_valid(killed / "run/checkpoints").path;
  EXPECT_EQ(CheckpointReader(path).step(), kSteps);
  EXPECT_EQ(CheckpointReader(path).state_hash(), CheckpointReader(once.checkpoint).state_hash());
}

}  // namespace
}  // namespace tessera
