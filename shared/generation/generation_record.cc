#include "shared/generation/generation_record.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/generation/fingerprint.h"
#include "shared/memory/memory_plan.h"
#include "shared/options/fraction.h"
#include "shared/options/option_table.h"
#include "shared/options/option_value.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kFormat = 1;
constexpr std::string_view kKvFigure = "kv of rank 0";
constexpr std::size_t kRecordBytesMax = 16 * 1024 * 1024;
constexpr std::array<Outcome, 5> kOutcomes = {Outcome::launching, Outcome::refused, Outcome::failed,
                                              Outcome::serving, Outcome::stopped};

// Reads members; the first mistake stays.
class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}
  void read(std::string_view name, std::int64_t& value) {
    if (const Json* found = member(name)) {
      found->is_integer() ? void(value = found->as_int()) : mistake(name, "an integer");
    }
  }
  void read(std::string_view name, double& value) {
    if (const Json* found = member(name)) {
      found->is_number() ? void(value = found->as_double()) : mistake(name, "a number");
    }
  }
  void read(std::string_view name, bool& value) {
    if (const Json* found = member(name)) {
      found->is_bool() ? void(value = found->as_bool()) : mistake(name, "true or false");
    }
  }
  void read(std::string_view name, std::string& value) {
    if (const Json* found = member(name)) {
      found->is_string() ? void(value = found->as_string()) : mistake(name, "a string");
    }
  }
  void read(std::string_view name, Json& value) {
    if (const Json* found = member(name)) value = *found;
  }
  void mistake(std::string_view name, std::string_view expected) {
    if (!error_) error_ = corrupt(fmt::format("{} must be {}", name, expected));
  }
  const Json* member(std::string_view name) {
    const Json* found = json_.find(name);
    if (found == nullptr) mistake(name, "there");
    return found;
  }
  Status status() const { return error_ ? Status(*error_) : Status(); }

 private:
  const Json& json_;
  std::optional<Error> error_;
};

// "00000012.json" -> 12; 0: another file.
std::int64_t number_of(const std::string& name) {
  constexpr std::string_view kEnd = ".json";
  if (!name.ends_with(kEnd)) return 0;
  std::int64_t number = 0;
  const char* end = name.data() + name.size() - kEnd.size();
  const auto [rest, failure] = std::from_chars(name.data(), end, number);
  return failure == std::errc() && rest == end ? number : 0;
}

Result<GenerationRecord> read_record(const fs::path& path) {
  const std::string text = TRY(read_file(path, kRecordBytesMax));
  const Json json = TRY(parse_json(text));
  return generation_from_json(json);
}

void add_options(const Json& options, LaunchFacts& facts) {
  // A newer or older build may know other options: read what it wrote, not what we know.
  if (!options.is_object()) return;
  const Result<OptionSet> known = option_set_from_json(options);
  for (const auto& [name, member] : options.as_object()) {
    const auto text = [&](std::string_view key) {
      const Json* found = member.find(key);
      return found != nullptr && found->is_string() ? found->as_string() : std::string();
    };
    const OptionRow* row = find_option(name);
    std::string value;
    if (known && row != nullptr) {
      value = option_text(known->values, *row);
    } else if (const Json* raw = member.find("value")) {
      value = raw->is_string() ? raw->as_string() : dump_json(*raw);
    }
    std::string source = text("source");
    if (value == "auto" && source == "default") source = "auto";
    facts.options.push_back({name, std::move(value), std::move(source), text("place")});
  }
}

void add_decisions(const Json& plan, LaunchFacts& facts) {
  const Json* decisions = plan.find("decisions");
  if (decisions == nullptr || !decisions->is_object()) return;
  for (const auto& [name, value] : decisions->as_object()) {
    if (!value.is_integer()) continue;
    std::string shown = name;
    std::replace(shown.begin(), shown.end(), '_', ' ');
    const bool is_tokens = name == "context_length" || name == "step_tokens_max";
    facts.figures.push_back({std::move(shown), value.as_double(),
                             is_tokens             ? "tokens"
                             : name == "kv_blocks" ? "blocks"
                                                   : ""});
  }
}

// Rank 0's ledger; the other ranks' differ by little.
void add_ledger(const Json& plan, LaunchFacts& facts) {
  const Json* ranks = plan.find("ranks");
  if (ranks == nullptr || !ranks->is_array() || ranks->as_array().empty()) return;
  const Json& rank = ranks->as_array().front();
  const Json* budget = rank.find("budget");
  if (budget != nullptr && budget->is_number()) {
    facts.figures.push_back({"budget of rank 0", budget->as_double(), "bytes"});
  }
  const Json* rows = rank.find("rows");
  if (rows == nullptr || !rows->is_array()) return;
  for (const Json& row : rows->as_array()) {
    const Json* term = row.find("term");
    const Json* bytes = row.find("bytes");
    if (term == nullptr || !term->is_string() || bytes == nullptr || !bytes->is_number()) continue;
    const std::string name = fmt::format("{} of rank 0", term->as_string());
    const auto same = std::ranges::find(facts.figures, name, &Figure::name);
    if (same == facts.figures.end()) {
      facts.figures.push_back({name, bytes->as_double(), "bytes"});
    } else {
      same->value += bytes->as_double();
    }
  }
}

bool is_refused(const Json& plan) {
  const Json* verdict = plan.find("verdict");
  return verdict != nullptr && verdict->is_string() && verdict->as_string() == "refused";
}

// What the option that sizes KV gives rank 0, below zero where nothing is left; nullopt: no option
// says how much.
std::optional<Bytes> kv_by_rule(const MemoryPlan& plan, const Options& options) {
  if (plan.devices == "cpu" || plan.ranks.empty()) return std::nullopt;
  const RankPlan& rank = plan.ranks.front();
  if (options.kv_cache_bytes) return *options.kv_cache_bytes;
  if (options.mem_fraction_static) {
    Bytes least = rank.free_before_weights;
    for (const RankPlan& each : plan.ranks) least = std::min(least, each.free_before_weights);
    return share_of_bytes(least, *options.mem_fraction_static) - rank.bytes(Term::weights) -
           rank.bytes(Term::absorbed) - rank.bytes(Term::vision) - rank.bytes(Term::draft);
  }
  if (!options.gpu_memory_utilization) return std::nullopt;
  const Bytes uncharged = rank.bytes(Term::context) + rank.bytes(Term::collective) +
                          rank.bytes(Term::margin) + rank.bytes(Term::kv);
  return share_of_bytes_up(rank.device_total, *options.gpu_memory_utilization) -
         (rank.total() - uncharged);
}

// Nothing was given to KV: what would have been says why.
void correct_refused_kv(const GenerationRecord& record, LaunchFacts& facts) {
  const Result<MemoryPlan> plan = memory_plan_from_json(record.plan);
  const Result<OptionSet> options = option_set_from_json(record.options);
  const auto kv = std::ranges::find(facts.figures, kKvFigure, &Figure::name);
  if (!plan || !options || kv == facts.figures.end()) return;
  if (const auto bytes = kv_by_rule(*plan, options->values)) {
    kv->value = static_cast<double>(*bytes);
  }
}

// Wherever they came from.
bool same_values(const Json& a, const Json& b) {
  if (!a.is_object() || !b.is_object() || a.as_object().size() != b.as_object().size()) {
    return a == b;
  }
  return std::ranges::all_of(a.as_object(), [&b](const Json::Member& member) {
    const Json* other = b.find(member.first);
    const Json* value = member.second.find("value");
    const Json* other_value = other != nullptr ? other->find("value") : nullptr;
    return value != nullptr && other_value != nullptr && *value == *other_value;
  });
}

}  // namespace

const char* outcome_name(Outcome outcome) {
  static constexpr const char* kNames[] = {"launching", "refused", "failed", "serving", "stopped"};
  return kNames[static_cast<std::size_t>(outcome)];
}

Json generation_to_json(const GenerationRecord& record) {
  return Json::object({{"format", kFormat},
                       {"generation", record.number},
                       {"started", record.started},
                       {"ended", record.ended},
                       {"outcome", outcome_name(record.outcome)},
                       {"message", record.message},
                       {"known_good", record.known_good},
                       {"cause", record.cause},
                       {"based_on", record.based_on},
                       {"started_in_s", record.started_in_s},
                       {"tokens_per_second", record.tokens_per_second},
                       {"speed_requests", record.speed_requests},
                       {"options", record.options},
                       {"plan", record.plan},
                       {"measured", record.measured},
                       {"environment", settings_to_json(record.environment)}});
}

Result<GenerationRecord> generation_from_json(const Json& json) {
  if (!json.is_object()) return corrupt(fmt::format("an object, not {}", json.type_name()));
  GenerationRecord record;
  Reader in(json);
  std::int64_t format = 0;
  in.read("format", format);
  if (format > kFormat) {
    return corrupt(
        fmt::format("format {} is of a newer Plimsoll; this one reads {}", format, kFormat));
  }
  in.read("generation", record.number);
  in.read("started", record.started);
  in.read("ended", record.ended);
  std::string outcome;
  in.read("outcome", outcome);
  const auto known = std::ranges::find_if(
      kOutcomes, [&](Outcome candidate) { return outcome == outcome_name(candidate); });
  if (known == kOutcomes.end()) {
    in.mistake("outcome", "a known word");
  } else {
    record.outcome = *known;
  }
  in.read("message", record.message);
  in.read("known_good", record.known_good);
  in.read("cause", record.cause);
  in.read("based_on", record.based_on);
  in.read("started_in_s", record.started_in_s);
  in.read("tokens_per_second", record.tokens_per_second);
  if (json.find("speed_requests") != nullptr) in.read("speed_requests", record.speed_requests);
  in.read("options", record.options);
  in.read("plan", record.plan);
  in.read("measured", record.measured);
  Json environment;
  in.read("environment", environment);
  record.environment = settings_from_json(environment);
  TRY(in.status());
  return record;
}

fs::path generations_folder(const fs::path& state) { return state / "generations"; }

fs::path generation_file(const fs::path& state, std::int64_t number) {
  return generations_folder(state) / fmt::format("{:08}.json", number);
}

Result<Generations> read_generations(const fs::path& state) {
  Generations all;
  std::error_code failed;
  const fs::path folder = generations_folder(state);
  fs::directory_iterator entries(folder, failed);
  if (failed == std::errc::no_such_file_or_directory) return all;
  if (failed) return unavailable(fmt::format("read {}: {}", folder.string(), failed.message()));
  for (const auto& entry : entries) {
    const std::int64_t number = number_of(entry.path().filename().string());
    if (number <= 0) continue;  // what a write left unfinished
    all.last_number = std::max(all.last_number, number);
    if (std::error_code unseen; !entry.is_regular_file(unseen)) {
      all.damaged.push_back(fmt::format("{}: not a regular file", entry.path().string()));
      continue;
    }
    Result<GenerationRecord> record = read_record(entry.path());
    if (!record) {
      all.damaged.push_back(fmt::format("{}: {}", entry.path().string(), record.error().message));
      continue;
    }
    if (record->number != number) {
      all.damaged.push_back(
          fmt::format("{}: it is of generation {}", entry.path().string(), record->number));
      continue;
    }
    all.records.push_back(std::move(*record));
  }
  std::ranges::sort(all.records, {}, &GenerationRecord::number);
  std::ranges::sort(all.damaged);
  return all;
}

std::string outcome_text(const GenerationRecord& record) {
  std::string first = record.message.substr(0, record.message.find('\n'));
  return first.empty() ? outcome_name(record.outcome)
                       : fmt::format("{}: {}", outcome_name(record.outcome), first);
}

LaunchFacts launch_facts(const GenerationRecord& record) {
  LaunchFacts facts{.label = fmt::format("generation {}", record.number),
                    .outcome = outcome_text(record),
                    .options = {},
                    .environment = record.environment,
                    .figures = {}};
  add_options(record.options, facts);
  if (record.plan.is_object()) {
    add_ledger(record.plan, facts);
    // Of a plan that was refused nothing was decided: they are the least that was tried.
    if (is_refused(record.plan)) {
      correct_refused_kv(record, facts);
    } else {
      add_decisions(record.plan, facts);
    }
  }
  if (record.started_in_s > 0) facts.figures.push_back({"started in", record.started_in_s, "s"});
  if (record.tokens_per_second > 0) {
    facts.figures.push_back({"best speed", record.tokens_per_second, "tokens/s"});
  }
  return facts;
}

const GenerationRecord* last_known_good(const Generations& all, std::int64_t before,
                                        const GenerationRecord* other_than) {
  for (auto record = all.records.rbegin(); record != all.records.rend(); ++record) {
    if (record->number >= before || !record->known_good) continue;
    if (other_than != nullptr && same_values(record->options, other_than->options)) continue;
    return &*record;
  }
  return nullptr;
}

const GenerationRecord* find_generation(const Generations& all, std::int64_t number) {
  const auto found = std::ranges::find(all.records, number, &GenerationRecord::number);
  return found == all.records.end() ? nullptr : &*found;
}

fs::path committed_file(const fs::path& state) { return state / "committed.json"; }

Json committed_to_json(const Committed& committed) {
  return Json::object({{"format", kFormat},
                       {"generation", committed.generation},
                       {"options", committed.options},
                       {"given", committed.given}});
}

Result<Committed> committed_from_json(const Json& json) {
  if (!json.is_object()) return corrupt(fmt::format("an object, not {}", json.type_name()));
  Committed committed;
  Reader in(json);
  in.read("generation", committed.generation);
  in.read("options", committed.options);
  in.read("given", committed.given);
  TRY(in.status());
  return committed;
}

}  // namespace plimsoll
