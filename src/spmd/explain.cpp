// Programs as tables for people.
#include "tessera/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/text.h"
#include "spmd/explain.h"
#include "spmd/steps.h"

namespace tessera {
namespace {

std::string people_flops(double flops) {
  const char* const units[] = {"", "k", "M", "G", "T", "P"};
  std::size_t unit = 0;
  for (; flops >= 1000 && unit + 1 < std::size(units); ++unit) flops /= 1000;
  return fmt::format("{:.2f} {}flop", flops, units[unit]);
}

// Left-aligned columns as wide as their widest cell; the last one is free.
std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> width;
  for (const auto& row : rows) {
    width.resize(std::max(width.size(), row.size()));
    for (std::size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], row[c].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line = " ";
    for (std::size_t c = 0; c < row.size(); ++c)
      line += c + 1 < row.size() ? fmt::format(" {:<{}} ", row[c], width[c]) : " " + row[c];
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string collectives_text(const std::vector<ExplainedCollective>& collectives) {
  if (collectives.empty()) return "No communication.\n";
  std::vector<std::vector<std::string>> rows{
      {"region", "collective", "dimension", "axis", "bytes", "op (source)", "reason"}};
  for (const ExplainedCollective& c : collectives) {
    const bool bucket = !c.parts.empty();
    rows.push_back({c.region, c.reduce.empty() ? c.kind : c.kind + " " + c.reduce, c.dim, c.axes,
                    people_bytes(c.bytes),
                    bucket ? fmt::format("{} in one:", c.parts.size()) : origin(c.name, c.where),
                    bucket ? "" : c.reason});
    for (const ExplainedCollective& part : c.parts)
      rows.push_back({part.region, "  part", part.dim, "", people_bytes(part.bytes),
                      origin(part.name, part.where), part.reason});
  }
  return fmt::format("Collectives, payload of the rank with the largest parts:\n{}", table(rows));
}

std::string totals_text(const std::vector<ExplainedCollective>& collectives) {
  std::map<std::pair<std::string, std::string>, std::pair<std::int64_t, std::int64_t>> totals;
  std::int64_t all = 0;
  for (const ExplainedCollective& c : collectives) {
    auto& [count, bytes] = totals[{c.axes, c.kind}];
    ++count;
    bytes += c.bytes;
    all += c.bytes;
  }
  std::vector<std::vector<std::string>> rows{{"axis", "collective", "count", "bytes"}};
  for (const auto& [key, total] : totals)
    rows.push_back({key.first, key.second, fmt::format("{}", total.first), people_bytes(total.second)});
  rows.push_back({"all", "", fmt::format("{}", collectives.size()), people_bytes(all)});
  return fmt::format("\nTotals of a step:\n{}", table(rows));
}

std::string memory_text(const Program& program, const MemoryPlan& plan, int most) {
  const int ranks = program.mesh.ranks();
  std::string text = "\nMemory of a rank at the peak";
  if (!program.steps.empty()) {
    const Step& step = program.steps[static_cast<std::size_t>(plan.peak_step)];
    const std::string where = to_string(step.where);
    text += fmt::format(", {} step '{}'{}", to_string(step.region), step.name,
                        where.empty() ? "" : fmt::format(" ({})", where));
  }
  std::vector<std::vector<std::string>> rows{
      {"class", "a rank", ranks == 1 ? "" : fmt::format("a process with all {} ranks", ranks)}};
  ClassBytes all;
  const auto add = [&](const std::string& name, const ClassBytes& bytes) {
    rows.push_back({name, people_bytes(bytes.rank), ranks == 1 ? "" : people_bytes(bytes.process)});
  };
  const MemoryByClass memory = memory_by_class(program, plan);
  for (std::size_t c = 0; c < memory.size(); ++c) {
    add(to_string(static_cast<MemoryClass>(c)), memory[c]);
    all.rank += memory[c].rank;
    all.process += memory[c].process;
  }
  add("all", all);
  text += fmt::format(":\n{}Of these in the arena: {} ({} is the least possible)\n", table(rows),
                      people_bytes(plan.arena_bytes), people_bytes(plan.liveness_bound));
  rows = {{"bytes", "class", "value", "type", "placement", "source"}};
  for (const ExplainedValue& value : peak_values(program, plan)) {
    if (static_cast<int>(rows.size()) > most) break;
    rows.push_back({people_bytes(value.bytes), to_string(value.memory_class), value.name, value.type,
                    value.placement, value.where});
  }
  return text + (rows.size() == 1 ? "" : "Largest values at the peak:\n" + table(rows));
}

}  // namespace

std::string explain(const Program& program, const MemoryPlan& plan, const ExplainOptions& options) {
  const std::vector<ExplainedCollective> collectives = explained_collectives(program);
  const ProgramStats counts = stats(program);
  std::string text = fmt::format("mesh    {} ({} ranks)\nlayout  {}\nsteps   {}\n\n",
                                 program.mesh.axes().empty() ? "one processor" : to_string(program.mesh),
                                 program.mesh.ranks(), to_string(program.layout), program.steps.size());
  text += collectives_text(collectives);
  if (!collectives.empty()) text += totals_text(collectives);
  text += memory_text(program, plan, options.largest_values);
  text += fmt::format("\nWork of a rank: {}, of which {} in contractions\n", people_flops(counts.flops),
                      people_flops(counts.contraction_flops));
  if (options.remarks && !program.remarks.empty()) {
    text += "\nRemarks:\n";
    for (const std::string& remark : program.remarks) text += "  " + remark + "\n";
  }
  return text;
}

}  // namespace tessera
