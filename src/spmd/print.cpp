// A program as text: one line a value that is fed or stored, one line a step, with placements and provenance.
#include <fmt/format.h>

#include "spmd/steps.h"
#include "tessera/program.h"

namespace tessera {

const char* to_string(CollectiveKind kind) {
  static const char* const kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                       "permute",    "exchange",       "contract",   "joint"};
  return kNames[static_cast<int>(kind)];
}

namespace {

class Printer {
 public:
  explicit Printer(const Program& program) : p_(program) {}

  std::string run() {
    text_ += fmt::format("mesh {}\nlayout {}\n", to_string(p_.mesh), to_string(p_.layout));
    for (std::size_t v = 0; v < p_.values.size(); ++v) {
      const ProgramValue& value = p_.values[v];
      if (value.kind == ProgramValue::Kind::Feed)
        text_ += fmt::format("%{} = feed {} : {}\n", v, value.variable, typed(static_cast<int>(v)));
      if (value.kind == ProgramValue::Kind::Variable)
        text_ += fmt::format("%{} = variable {} : {}\n", v, value.variable, typed(static_cast<int>(v)));
    }
    std::size_t next_view = 0;
    for (const Step& step : p_.steps) {
      // A view is printed before the first step that could read it: after its base was written.
      for (; next_view < p_.values.size() && shown_before(next_view, step); ++next_view)
        print_view(next_view);
      print_step(step);
    }
    for (; next_view < p_.values.size(); ++next_view) print_view(next_view);
    for (int id : p_.fetches) text_ += fmt::format("fetch %{} : {}\n", id, typed(id));
    return text_;
  }

 private:
  bool shown_before(std::size_t v, const Step& step) const {
    for (int id : step.out) {
      if (static_cast<int>(v) >= id) return false;
    }
    for (int id : step.in) {
      if (static_cast<int>(v) <= id) return true;
    }
    return !step.out.empty() && step.kind != Step::Kind::Assign;
  }
  void print_view(std::size_t v) {
    if (p_.values[v].view_of >= 0)
      text_ += fmt::format("%{} = {} %{} : {}\n", v, p_.values[v].own_rows ? "own rows of" : "view",
                           p_.values[v].view_of, typed(static_cast<int>(v)));
  }
  std::string typed(int id) const {
    const ProgramValue& value = p_.values[static_cast<std::size_t>(id)];
    return fmt::format("{} {}", to_string(value.type), to_string(value.placement, value.type.shape, p_.mesh));
  }
  std::string outputs(const Step& step) const {
    std::vector<std::string> types;
    for (int id : step.out) types.push_back(typed(id));
    return fmt::format("{}", fmt::join(types, ", "));
  }
  static std::string list(const std::vector<int>& ids) {
    std::vector<std::string> names;
    for (int id : ids) names.push_back(fmt::format("%{}", id));
    return fmt::format("{}", fmt::join(names, ", "));
  }
  std::string axes(const std::vector<int>& ids) const {
    std::vector<std::string> names;
    for (int a : ids) names.push_back(p_.mesh.axis_name(a));
    return fmt::format("{}", fmt::join(names, "+"));
  }
  static std::string origins(const Step& step) {
    std::vector<std::string> all;
    for (const Collective::Part& part : step.collective.parts)
      all.push_back(origin(part.name, to_string(part.where)));
    if (all.empty() && !step.name.empty()) all.push_back(origin(step.name, to_string(step.where)));
    return all.empty() ? "" : fmt::format("   # {}", fmt::join(all, ", "));
  }
  std::string collective(const Collective& c) const {
    std::string what = to_string(c.kind);
    if (c.reduce != Reduction::None) what += fmt::format(" {}", to_string(c.reduce));
    what += fmt::format(" over {}", axes(c.axes));
    if (!c.dim.empty()) what += fmt::format(" of {}", c.dim);
    return what;
  }

  // ", 2 sums"
  static std::string sums(const Step& step) {
    const auto count = std::count_if(step.sums.begin(), step.sums.end(), [](double d) { return d != 0; });
    return count == 0 ? "" : fmt::format(", {} sum{}", count, count == 1 ? "" : "s");
  }

  void print_step(const Step& step) {
    switch (step.kind) {
      case Step::Kind::Run: {
        std::string attrs;
        for (const auto& [name, value] : step.call.attrs)
          attrs += fmt::format("{}{}={}", attrs.empty() ? "" : ", ", name, to_string(value));
        text_ += fmt::format(
            "{} = {}({}){} : {}{}{}\n", list(step.out), step.call.op->name, list(step.in),
            attrs.empty() ? "" : " {" + attrs + "}", outputs(step),
            step.is_joint() ? fmt::format(", {} {} bytes", collective(step.collective), step.collective.bytes)
                            : "",
            origins(step));
        break;
      }
      case Step::Kind::Fused:
        text_ += fmt::format("{} = fused[{}{}]({}) : {}{}\n", list(step.out), step.code.code.size(),
                             sums(step), list(step.in), outputs(step), origins(step));
        break;
      case Step::Kind::Fill:
        text_ +=
            fmt::format("{} = fill {} : {}{}\n", list(step.out), step.fill, outputs(step), origins(step));
        break;
      case Step::Kind::Copy:
        text_ += fmt::format("{} = {}({}) locally : {}{}\n", list(step.out), step.call.op->name,
                             list(step.in), outputs(step), origins(step));
        break;
      case Step::Kind::Slice:
        text_ += fmt::format("{} = slice_local({}) : {}{}\n", list(step.out), list(step.in), outputs(step),
                             origins(step));
        break;
      case Step::Kind::Start:
        text_ += fmt::format("start {}({}) {} bytes{}\n", collective(step.collective), list(step.in),
                             step.collective.bytes, origins(step));
        break;
      case Step::Kind::Wait:
        text_ += fmt::format("{} = wait {} : {}   # {}\n", list(step.out), to_string(step.collective.kind),
                             outputs(step), step.collective.reason);
        break;
      case Step::Kind::Assign:
        text_ += fmt::format("assign {} = {}\n", list(step.out), list(step.in));
        break;
      case Step::Kind::Free:
        text_ += fmt::format("free {}\n", list(step.in));
        break;
    }
  }

  const Program& p_;
  std::string text_;
};

}  // namespace

std::string to_string(const Program& program) {
  return Printer(program).run();
}

}  // namespace tessera
