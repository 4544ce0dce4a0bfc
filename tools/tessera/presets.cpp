// tessera presets: the named models with exact parameter counts, and how the paper's formula gives them.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "command.h"
#include "tessera/models.h"

namespace tessera::command {

int presets(bool json) {
  nlohmann::json all = nlohmann::json::array();
  if (!json)
    fmt::print("{:<12} {:>8} {:>7} {:>6} {:>15} {:>9}  {}\n", "name", "d_ff", "heads", "d_kv", "parameters",
               "billions", "of these: matrices + tables + positions + norms");
  for (const Preset& p : tessera::presets()) {
    ParameterCount c = parameter_count(p.model);
    if (json) {
      all.push_back({{"name", p.name},
                     {"about", p.about},
                     {"parameters", c.total()},
                     {"attention", c.attention},
                     {"feed_forward", c.feed_forward},
                     {"embeddings", c.embeddings},
                     {"positions", c.positions},
                     {"norms", c.norms},
                     {"d_model", p.model.d_model},
                     {"d_ff", p.model.d_ff},
                     {"heads", p.model.heads},
                     {"d_kv", p.model.d_kv},
                     {"mesh", p.mesh},
                     {"layout", p.layout}});
      continue;
    }
    fmt::print("{:<12} {:>8} {:>7} {:>6} {:>15} {:>9.3f}  {} + {} + {} + {}\n", p.name, p.model.d_ff,
               p.model.heads, p.model.d_kv, c.total(), static_cast<double>(c.total()) / 1e9,
               c.attention + c.feed_forward, c.embeddings, c.positions, c.norms);
  }
  if (json) fmt::print("{}\n", all.dump(1));
  return 0;
}

}  // namespace tessera::command
