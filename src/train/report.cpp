// Progress for people: one line that is rewritten on a terminal, log lines elsewhere.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "tessera/train.h"

namespace tessera {
namespace {

std::string duration(double seconds) {
  const auto s = static_cast<std::int64_t>(std::llround(std::max(0.0, seconds)));
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

std::string amount(double value) {
  if (value >= 1e6) return fmt::format("{:.2f}M", value / 1e6);
  return value >= 1e4 ? fmt::format("{:.1f}k", value / 1e3) : fmt::format("{:.0f}", value);
}

std::string step_text(const TrainEvent& e) {
  return fmt::format("step {}/{}  loss {:.4f}  norm {:.3f}  rate {:.2e}  {} tokens/s  {} left", e.step,
                     e.steps, e.loss, e.gradient_norm, e.learning_rate, amount(e.tokens_per_second),
                     duration(e.seconds_left));
}

std::string event_text(const TrainEvent& e) {
  switch (e.kind) {
    case TrainEvent::Kind::Step:
      return step_text(e);
    case TrainEvent::Kind::Evaluated:
      return fmt::format("step {}/{}  dev loss {:.4f}  accuracy {:.1f}%  {}  ({:.1f} s)", e.step, e.steps,
                         e.evaluation.loss(), 100 * e.evaluation.accuracy, to_string(e.evaluation.perplexity),
                         e.evaluation.seconds);
    case TrainEvent::Kind::Saved:
      return "saved " + e.text;
    default:
      return e.text;
  }
}

// The terminal line: a bar and the step's text, cut to the width.
class Terminal {
 public:
  explicit Terminal(int out) : out_(out), rewrites_(isatty(out) == 1) {}

  void operator()(const TrainEvent& event) {
    const bool step = event.kind == TrainEvent::Kind::Step;
    if (!rewrites_) {
      if (!step || event.log) put(event_text(event) + "\n");
      return;
    }
    std::string text;
    if (open_) text += "\r\x1b[K";
    open_ = step;
    text += step ? line(event) : event_text(event) + "\n";
    put(text);
  }

 private:
  std::string line(const TrainEvent& event) const {
    winsize size{};
    const std::size_t width = ioctl(out_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
    constexpr std::size_t kBar = 20;
    const double share =
        event.steps > 0 ? static_cast<double>(event.step) / static_cast<double>(event.steps) : 1;
    const auto full = static_cast<std::size_t>(share * kBar);
    const std::string text =
        fmt::format("[{:#<{}}{:.<{}}] {}", "", full, "", kBar - std::min(full, kBar), step_text(event));
    return text.substr(0, width - 1);
  }

  void put(const std::string& text) const {
    std::size_t done = 0;
    while (done < text.size()) {
      const ssize_t n = ::write(out_, text.data() + done, text.size() - done);
      if (n <= 0) return;  // nobody reads it: training goes on
      done += static_cast<std::size_t>(n);
    }
  }

  int out_;
  bool rewrites_;
  bool open_ = false;
};

}  // namespace

TrainReport terminal_report(int out) {
  return [terminal = std::make_shared<Terminal>(out)](const TrainEvent& event) { (*terminal)(event); };
}

}  // namespace tessera
