// Writing Chrome traces.
#include "exec/trace.h"

#include <cstdio>
#include <fstream>
#include <set>

#include "base/check.h"
#include "base/clock.h"
#include "spmd/steps.h"

namespace tessera {
namespace {

std::string quote(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace

std::string kind_of(const Step& step) {
  switch (step.kind) {
    case Step::Kind::Run:
      return step.call.op->name;
    case Step::Kind::Fused:
      return "fused";
    case Step::Kind::Fill:
      return "fill";
    case Step::Kind::Copy:
      return "copy";
    case Step::Kind::Slice:
      return "slice";
    case Step::Kind::Start:
      return std::string("start ") + to_string(step.collective.kind);
    case Step::Kind::Wait:
      return std::string("wait ") + to_string(step.collective.kind);
    case Step::Kind::Assign:
      return "assign";
    case Step::Kind::Free:
      return "free";
  }
  return "";
}

void Trace::start() {
  on_ = true;
  origin_ = now();
  events_.clear();
}

void Trace::add(int rank, const Step& step, StepClass step_class, double begin, double end, double waited) {
  events_.push_back({rank, &step, to_string(step_class), begin, end, waited});
}

void Trace::add_host(int rank, const char* what, double begin, double end) {
  events_.push_back({rank, nullptr, what, begin, end, 0});
}

std::string Trace::text(const Event& e) const {
  std::string name = e.kind, where, op;
  if (e.step != nullptr) {
    where = to_string(e.step->where);
    op = kind_of(*e.step);
    name = origin(e.step->name, where);
  }
  return fmt::format(
      "{{\"ph\":\"X\",\"name\":{},\"cat\":{},\"pid\":0,\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},\"args\":{{"
      "\"where\":{},\"op\":{},\"waited_us\":{:.3f}}}}}",
      quote(name), quote(e.step != nullptr ? e.kind : "host"), e.rank, 1e6 * (e.begin - origin_),
      1e6 * (e.end - e.begin), quote(where), quote(op), 1e6 * e.waited);
}

void Trace::write(const std::string& path) const {
  std::ofstream file(path);
  file << "{\"traceEvents\":[\n";
  std::set<int> ranks;
  for (const Event& e : events_) ranks.insert(e.rank);
  for (int rank : ranks)
    file << fmt::format(
        "{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":0,\"tid\":{},\"args\":{{\"name\":\"rank {}\"}}}},\n",
        rank, rank);
  for (std::size_t i = 0; i < events_.size(); ++i)
    file << text(events_[i]) << (i + 1 < events_.size() ? ",\n" : "\n");
  file << "]}\n";
  file.close();
  if (!file) throw SystemError(fmt::format("cannot write the trace '{}'", path));
}

}  // namespace tessera
