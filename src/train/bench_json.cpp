// What a bench measured, for programs.
#include <nlohmann/json.hpp>

#include "tessera/train.h"

namespace tessera {

std::string to_json(const BenchReport& r) {
  const nlohmann::json object{{"step_seconds", r.step_seconds},
                              {"seconds", r.seconds},
                              {"tokens_per_second", r.tokens_per_second},
                              {"share", r.share},
                              {"over_bound", r.over_bound},
                              {"contraction_flops", r.contraction_flops},
                              {"contraction_seconds", r.contraction_seconds},
                              {"inside_contraction_seconds", r.inside_contraction_seconds},
                              {"first_loss", r.first_loss},
                              {"first_step_seconds", r.first_step_seconds},
                              {"arena_bytes", r.arena_bytes},
                              {"liveness_bound", r.liveness_bound},
                              {"peak_resident_bytes", r.peak_resident_bytes},
                              {"rss_growth_bytes", r.rss_growth_bytes},
                              {"shape", r.shape}};
  return object.dump(1);
}

std::string to_json(const std::vector<PassReport>& reports) {
  nlohmann::json list = nlohmann::json::array();
  for (const PassReport& r : reports)
    list.push_back({{"without", r.pass},
                    {"step_seconds", r.step_seconds},
                    {"ratio", r.ratio},
                    {"arena_bytes", r.arena_bytes},
                    {"collectives", r.collectives},
                    {"collective_bytes", r.collective_bytes}});
  return list.dump(1);
}

}  // namespace tessera
