// GenerationRecord: one launch as it is kept on disk: its options and plan, what ran it, what came
// of it. The daemon writes it at each turn of its life, the CLI reads it, also when no daemon runs.
//
// STATE/generations/00000012.json, one file a generation, replaced as a whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/json.h"
#include "shared/base/result.h"
#include "shared/generation/launch_diff.h"
#include "shared/options/option_set.h"

namespace plimsoll {

enum class Outcome {
  launching,  // under way, or its daemon was killed meanwhile
  refused,    // the plan does not fit, or the options are bad; nothing was loaded
  failed,     // it was started and could not be brought up, or failed for good later
  serving,    // a real request has been answered; it runs, or its daemon was killed
  stopped,    // it served, and was ended in order
};
const char* outcome_name(Outcome outcome);

struct GenerationRecord {
  std::int64_t number = 0;
  std::int64_t started = 0;  // seconds since the epoch
  std::int64_t ended = 0;    // 0: not yet
  Outcome outcome = Outcome::launching;
  std::string message = {};       // of a failure
  bool known_good = false;        // it has served
  std::string cause = {};         // "start", "reconfigure", "rollback to 3", ...
  std::int64_t based_on = 0;      // the generation that it changed; 0: none
  Json options = {};              // option_set_to_json
  Json plan = {};                 // memory_plan_to_json; of a refused one too; null: none
  Json measured = Json::array();  // by rank: bytes by term
  std::vector<Setting> environment = {};
  double started_in_s = 0;          // from launch to serving
  double tokens_per_second = 0;     // the best second, over all replicas
  std::int64_t speed_requests = 0;  // that ran then
};

Json generation_to_json(const GenerationRecord& record);
// Errors: corrupt, naming the member.
Result<GenerationRecord> generation_from_json(const Json& json);

std::filesystem::path generations_folder(const std::filesystem::path& state);
std::filesystem::path generation_file(const std::filesystem::path& state, std::int64_t number);

struct Generations {
  std::vector<GenerationRecord> records;  // by number
  std::vector<std::string> damaged;       // a line for each file that cannot be read
  std::int64_t last_number = 0;           // also of damaged ones
};
// A folder that is absent has none. Errors: unavailable where it cannot be read.
Result<Generations> read_generations(const std::filesystem::path& state);

// Options, environment and figures (the plan's, of rank 0, and measured) for compare_launches().
LaunchFacts launch_facts(const GenerationRecord& record);
// "serving", "refused: ...": one line.
std::string outcome_text(const GenerationRecord& record);

// The newest that has served, of those before `before` and, where that is given, with other
// options than `other_than`; nullptr where there is none.
const GenerationRecord* last_known_good(const Generations& all, std::int64_t before,
                                        const GenerationRecord* other_than = nullptr);
const GenerationRecord* find_generation(const Generations& all, std::int64_t number);

// What the next start runs: STATE/committed.json. It is removed when a deployment is stopped on
// purpose.
struct Committed {
  std::int64_t generation = 0;
  Json options;  // of the generation
  Json given;    // what the daemon itself was given then: other ones make it void
};
std::filesystem::path committed_file(const std::filesystem::path& state);
Json committed_to_json(const Committed& committed);
Result<Committed> committed_from_json(const Json& json);

}  // namespace plimsoll
