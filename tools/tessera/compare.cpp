// tessera compare: the same training steps under several layouts, side by side. Losses must agree (DESIGN,
// promise 1): within 1e-5 at the first step and 1e-3 at the last, else the command fails.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "command.h"
#include "tessera/error.h"
#include "tessera/train.h"

namespace tessera::command {
namespace {

constexpr double kFirstStepBound = 1e-5, kLastStepBound = 1e-3;

struct Row {
  std::string mesh, layout;
  std::vector<std::string> set;
  std::vector<double> losses;
  StepCosts costs;
  double seconds = 0;
  bool stored_split = false;
  int ranks = 1;
};

std::string trimmed(std::string text) {
  text.erase(0, text.find_first_not_of(' '));
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

Row parse_row(const std::string& text) {
  std::vector<std::string> fields;
  for (std::size_t begin = 0; begin <= text.size();) {
    std::size_t end = std::min(text.find('|', begin), text.size());
    fields.push_back(trimmed(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  if (fields.size() < 2)
    throw UserError(fmt::format(
        "compare: row '{}' must be MESH|LAYOUT, such as 'rows:2;cols:2|batch:rows;heads:cols'", text));
  Row row;
  row.mesh = fields[0];
  row.layout = fields[1];
  row.set.assign(fields.begin() + 2, fields.end());
  return row;
}

void run_row(Row& row, const Compare& options) {
  Config config = options.common.config();
  for (const std::string& s : row.set) set_config(config, s);
  config.mesh.shape = row.mesh;
  config.mesh.layout = row.layout;
  config.train.resume = false;
  TrainOptions train_options;
  train_options.write_files = false;
  Trainer trainer(config, train_options);
  auto begin = std::chrono::steady_clock::now();
  for (std::int64_t s = 0; s < options.steps; ++s) {
    row.losses.push_back(trainer.step().loss);
    if (s == 0) begin = std::chrono::steady_clock::now();  // the first step compiles
  }
  double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  row.seconds = elapsed / static_cast<double>(std::max<std::int64_t>(options.steps - 1, 1));
  row.costs = trainer.costs();
  row.ranks = Mesh::parse(row.mesh).ranks();
  row.stored_split = row.layout == "fsdp" || row.layout.find("params.") != std::string::npos;
}

std::string bytes_text(std::int64_t bytes) {
  return fmt::format("{:.2f}", static_cast<double>(bytes) / 1e6);
}

std::string join_counts(const std::map<std::string, std::int64_t>& counts, bool as_bytes) {
  std::string text;
  for (const auto& [name, n] : counts)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name,
                        as_bytes ? bytes_text(n) : fmt::format("{}", n));
  return text.empty() ? "none" : text;
}

nlohmann::json as_json(const Row& row) {
  return {{"mesh", row.mesh},
          {"layout", row.layout},
          {"losses", row.losses},
          {"collectives", row.costs.collectives},
          {"bytes_per_axis", row.costs.bytes_per_axis},
          {"stored_bytes", row.costs.parameter_bytes + row.costs.slot_bytes},
          {"arena_bytes", row.costs.arena_bytes},
          {"seconds", row.seconds}};
}

void print_row(const Row& row) {
  fmt::print("\nmesh {:<14} layout {}{}\n", row.mesh.empty() ? "1 rank" : row.mesh,
             row.layout.empty() ? "none" : row.layout,
             row.set.empty() ? "" : fmt::format("   ({})", fmt::join(row.set, ", ")));
  fmt::print("  loss       step 1 {:.7f}, step {} {:.7f}\n", row.losses.front(), row.losses.size(),
             row.losses.back());
  fmt::print("  traffic    {}; MB a step and rank per axis: {}\n", join_counts(row.costs.collectives, false),
             join_counts(row.costs.bytes_per_axis, true));
  fmt::print("  memory     parameters and slots {} MB a rank, arena {} MB a rank (no plan is below {})\n",
             bytes_text(row.costs.parameter_bytes + row.costs.slot_bytes), bytes_text(row.costs.arena_bytes),
             bytes_text(row.costs.liveness_bound));
  fmt::print("  time       {:.3f} s a step\n", row.seconds);
}

// The reference of a row: the first row with the same model settings.
const Row& reference_of(const std::vector<Row>& rows, const Row& row) {
  for (const Row& r : rows) {
    if (r.set == row.set) return r;
  }
  return rows.front();
}

int check_rows(const std::vector<Row>& rows) {
  int faults = 0;
  for (const Row& row : rows) {
    const Row& reference = reference_of(rows, row);
    double first = std::abs(row.losses.front() / reference.losses.front() - 1),
           last = std::abs(row.losses.back() / reference.losses.back() - 1);
    if (!(first <= kFirstStepBound) || !(last <= kLastStepBound)) {
      fmt::print(
          "\nDIFFERENT: mesh {} layout {}: relative difference {:.2e} at the first step, {:.2e} at the "
          "last\n",
          row.mesh, row.layout, first, last);
      ++faults;
    }
    std::int64_t whole = reference.costs.parameter_bytes + reference.costs.slot_bytes,
                 mine = row.costs.parameter_bytes + row.costs.slot_bytes;
    if (row.stored_split && mine > whole / row.ranks + 3 * row.costs.largest_parameter_bytes) {
      fmt::print("\nTOO MUCH: mesh {} layout {}: a rank stores {} of {} bytes\n", row.mesh, row.layout, mine,
                 whole);
      ++faults;
    }
  }
  fmt::print("\n{}\n",
             faults == 0
                 ? fmt::format("all {} rows give the same losses (relative {} at step 1, {} at the last)",
                               rows.size(), kFirstStepBound, kLastStepBound)
                 : fmt::format("{} rows are wrong", faults));
  return faults == 0 ? 0 : static_cast<int>(ExitCode::Numbers);
}

}  // namespace

int compare(const Compare& options) {
  std::vector<Row> rows;
  for (const std::string& text : options.rows) rows.push_back(parse_row(text));
  if (rows.empty()) throw UserError("compare: give at least one --row MESH|LAYOUT");
  for (Row& row : rows) {
    run_row(row, options);
    if (!options.json) print_row(row);
  }
  if (options.json) {
    nlohmann::json all = nlohmann::json::array();
    for (const Row& row : rows) all.push_back(as_json(row));
    fmt::print("{}\n", all.dump(1));
    return 0;
  }
  return check_rows(rows);
}

}  // namespace tessera::command
