#include <array>
#include <cmath>

#include <fmt/format.h>

#include "shared/memory/memory_plan.h"

namespace plimsoll {
namespace {

constexpr std::array<Term, kTermCount> kTerms = {
    Term::context,   Term::collective, Term::weights,     Term::absorbed,  Term::vision,
    Term::draft,     Term::tables,     Term::activations, Term::workspace, Term::logits,
    Term::ep_buffer, Term::graphs,     Term::process,     Term::margin,    Term::kv};
constexpr std::array<Trust, 5> kTrusts = {Trust::computed, Trust::measured, Trust::learned,
                                          Trust::assumed, Trust::margin};
constexpr std::array<KvType, 4> kKvTypes = {KvType::f16, KvType::bf16, KvType::fp8, KvType::int8};
constexpr std::array<Code, 7> kCodes = {Code::invalid,     Code::not_found, Code::does_not_fit,
                                        Code::unavailable, Code::timed_out, Code::corrupt,
                                        Code::internal};

Json range_to_json(Range range) { return Json::array({range.begin, range.end}); }

Json strings_to_json(const std::vector<std::string>& items) {
  Json out = Json::array();
  for (const std::string& item : items) out.push(item);
  return out;
}

Json rank_to_json(const RankPlan& rank) {
  Json cpus = Json::array();
  for (const int cpu : rank.cpus) cpus.push(cpu);
  Json rows = Json::array();
  for (const PlanRow& row : rank.rows) {
    rows.push(Json::object({{"term", term_name(row.term)},
                            {"bytes", row.bytes},
                            {"formula", row.formula},
                            {"trust", trust_name(row.trust)},
                            {"phase", phase_name(term_phase(row.term))}}));
  }
  return Json::object({{"replica", rank.replica},
                       {"rank", rank.rank},
                       {"heads", range_to_json(rank.shard.heads)},
                       {"kv_heads", range_to_json(rank.shard.kv_heads)},
                       {"ffn", range_to_json(rank.shard.ffn)},
                       {"vocab", range_to_json(rank.shard.vocab)},
                       {"cpus", std::move(cpus)},
                       {"threads", rank.threads},
                       {"weight_sharers", rank.weight_sharers},
                       {"shared_weights", rank.shared_weights},
                       {"numa_node", rank.numa_node},
                       {"expert_ffn", range_to_json(rank.shard.expert_ffn)},
                       {"shared_ffn", range_to_json(rank.shard.shared_ffn)},
                       {"experts", rank.shard.experts},
                       {"device", rank.device},
                       {"device_name", rank.device_name},
                       {"device_uuid", rank.device_uuid},
                       {"device_total", rank.device_total},
                       {"held_by_others", rank.held_by_others},
                       {"free_before_weights", rank.free_before_weights},
                       {"budget", rank.budget},
                       {"total", rank.total()},
                       {"spare", rank.budget - rank.total()},
                       {"rows", std::move(rows)}});
}

// Reads members of one object; the first mistake stays.
class Reader {
 public:
  Reader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  void read(std::string_view name, std::int64_t& value) {
    const Json* found = member(name, "an integer");
    if (found == nullptr) return;
    if (!found->is_integer()) return mistake(name, "an integer");
    value = found->as_int();
  }
  void read(std::string_view name, int& value) {
    std::int64_t wide = 0;
    read(name, wide);
    value = static_cast<int>(wide);
  }
  void read(std::string_view name, double& value) {
    const Json* found = member(name, "a number");
    if (found == nullptr) return;
    if (!found->is_number()) return mistake(name, "a number");
    value = found->as_double();
  }
  void read(std::string_view name, std::string& value) {
    const Json* found = member(name, "a string");
    if (found == nullptr) return;
    if (!found->is_string()) return mistake(name, "a string");
    value = found->as_string();
  }
  void read(std::string_view name, Range& range) {
    const Json* found = member(name, "two integers");
    if (found == nullptr) return;
    if (!found->is_array() || found->as_array().size() != 2 || !found->as_array()[0].is_integer() ||
        !found->as_array()[1].is_integer()) {
      return mistake(name, "two integers");
    }
    range = {found->as_array()[0].as_int(), found->as_array()[1].as_int()};
  }
  // One of an enumeration's names.
  template <typename Enum, std::size_t count>
  void read(std::string_view name, Enum& value, const std::array<Enum, count>& all,
            const char* (*name_of)(Enum)) {
    std::string text;
    read(name, text);
    for (const Enum candidate : all) {
      if (text == name_of(candidate)) {
        value = candidate;
        return;
      }
    }
    mistake(name, "a known name");
  }
  // Calls `read_item` with each item of an array.
  template <typename ReadItem>
  void each(std::string_view name, ReadItem read_item) {
    const Json* found = member(name, "an array");
    if (found == nullptr) return;
    if (!found->is_array()) return mistake(name, "an array");
    for (const Json& item : found->as_array()) {
      Status status = read_item(item);
      if (!status && !error_) error_ = status.error();
    }
  }
  // What records of earlier versions lack.
  template <typename T>
  void read_optional(std::string_view name, T& value) {
    if (optional(name) != nullptr) read(name, value);
  }
  const Json* optional(std::string_view name) const {
    const Json* found = object_.find(name);
    return found == nullptr || found->is_null() ? nullptr : found;
  }

  Status status() const { return error_ ? Status(*error_) : Status(); }

 private:
  const Json* member(std::string_view name, std::string_view expected) {
    const Json* found = object_.find(name);
    if (found == nullptr) mistake(name, expected);
    return found;
  }
  void mistake(std::string_view name, std::string_view expected) {
    if (!error_)
      error_ = invalid(fmt::format("memory plan: {}{} must be {}", where_, name, expected));
  }

  const Json& object_;
  std::string where_;
  std::optional<Error> error_;
};

Status read_row(const Json& json, RankPlan& rank) {
  PlanRow row;
  Reader in(json, "rows[].");
  in.read("term", row.term, kTerms, term_name);
  in.read("bytes", row.bytes);
  in.read("formula", row.formula);
  in.read("trust", row.trust, kTrusts, trust_name);
  rank.rows.push_back(std::move(row));
  return in.status();
}

Status read_rank(const Json& json, MemoryPlan& plan) {
  RankPlan rank;
  Reader in(json, "ranks[].");
  in.read("replica", rank.replica);
  in.read("rank", rank.rank);
  in.read("heads", rank.shard.heads);
  in.read("kv_heads", rank.shard.kv_heads);
  in.read("ffn", rank.shard.ffn);
  in.read("vocab", rank.shard.vocab);
  in.each("cpus", [&](const Json& cpu) -> Status {
    if (!cpu.is_integer()) return invalid("memory plan: ranks[].cpus must be integers");
    rank.cpus.push_back(static_cast<int>(cpu.as_int()));
    return {};
  });
  in.read("threads", rank.threads);
  in.read_optional("weight_sharers", rank.weight_sharers);
  in.read_optional("shared_weights", rank.shared_weights);
  in.read("numa_node", rank.numa_node);
  in.read("expert_ffn", rank.shard.expert_ffn);
  in.read("shared_ffn", rank.shard.shared_ffn);
  in.read_optional("experts", rank.shard.experts);
  in.read("device", rank.device);
  in.read("device_name", rank.device_name);
  in.read_optional("device_uuid", rank.device_uuid);
  in.read("device_total", rank.device_total);
  in.read("held_by_others", rank.held_by_others);
  in.read("free_before_weights", rank.free_before_weights);
  in.read("budget", rank.budget);
  in.each("rows", [&](const Json& row) { return read_row(row, rank); });
  plan.ranks.push_back(std::move(rank));
  return in.status();
}

Status read_string(const Json& json, std::vector<std::string>& into) {
  if (!json.is_string()) return invalid("memory plan: notes and assumptions must be strings");
  into.push_back(json.as_string());
  return {};
}

Status read_decisions(const Json& json, PlanDecisions& decisions) {
  Reader in(json, "decisions.");
  in.read("context_length", decisions.context_length);
  in.read_optional("context_length_min", decisions.context_length_min);
  in.read_optional("context_length_wanted", decisions.context_length_wanted);
  in.read("max_running_requests", decisions.max_running_requests);
  in.read("step_tokens_max", decisions.step_tokens_max);
  in.read("logit_rows_max", decisions.logit_rows_max);
  in.read("cuda_graph_max_bs", decisions.cuda_graph_max_bs);
  in.read("kv_blocks", decisions.kv_blocks);
  in.read("kv_type", decisions.kv_type, kKvTypes, kv_type_name);
  in.each("notes", [&](const Json& note) { return read_string(note, decisions.notes); });
  return in.status();
}

Status read_kv(const Json& json, KvFigures& kv) {
  Reader in(json, "kv.");
  in.read("bytes", kv.bytes);
  in.read("blocks", kv.blocks);
  in.read("tokens", kv.tokens);
  in.read("bytes_per_token", kv.bytes_per_token);
  in.read("copies", kv.copies);
  return in.status();
}

Json auto_to_json(const std::optional<AutoChoice>& choice) {
  if (!choice) return {};
  Json json = Json::object({{"kv_bytes", choice->kv_bytes},
                            {"kv_tokens", choice->kv_tokens},
                            {"context_length", choice->context_length},
                            {"max_running_requests", choice->max_running_requests}});
  if (choice->fraction) {
    json.set("mem_fraction_static",
             static_cast<double>(*choice->fraction) / static_cast<double>(kWhole));
  }
  return json;
}

Status read_auto(const Json& json, std::optional<AutoChoice>& choice) {
  AutoChoice read;
  Reader in(json, "auto.");
  in.read("kv_bytes", read.kv_bytes);
  in.read("kv_tokens", read.kv_tokens);
  in.read("context_length", read.context_length);
  in.read("max_running_requests", read.max_running_requests);
  if (in.optional("mem_fraction_static") != nullptr) {
    double fraction = 0;
    in.read("mem_fraction_static", fraction);
    read.fraction = static_cast<Millionths>(std::llround(fraction * kWhole));
  }
  choice = read;
  return in.status();
}

}  // namespace

Json memory_plan_to_json(const MemoryPlan& plan) {
  Json ranks = Json::array();
  for (const RankPlan& rank : plan.ranks) ranks.push(rank_to_json(rank));
  const PlanDecisions& decided = plan.decisions;
  Json refusal;
  if (plan.refusal) {
    refusal =
        Json::object({{"code", code_name(plan.refusal->code)}, {"message", plan.refusal->message}});
  }
  return Json::object(
      {{"version", kPlanJsonVersion},
       {"verdict", plan.refusal ? "refused" : "fits"},
       {"kv", Json::object({{"bytes", plan.kv.bytes},
                            {"blocks", plan.kv.blocks},
                            {"tokens", plan.kv.tokens},
                            {"bytes_per_token", plan.kv.bytes_per_token},
                            {"copies", plan.kv.copies}})},
       {"auto", auto_to_json(plan.auto_choice)},
       {"devices", plan.devices},
       {"machine", plan.machine},
       {"tp", plan.tp},
       {"dp", plan.dp},
       {"budget_total", plan.budget_total},
       {"budget_source", plan.budget_source},
       {"decisions", Json::object({{"context_length", decided.context_length},
                                   {"context_length_min", decided.context_length_min},
                                   {"context_length_wanted", decided.context_length_wanted},
                                   {"max_running_requests", decided.max_running_requests},
                                   {"step_tokens_max", decided.step_tokens_max},
                                   {"logit_rows_max", decided.logit_rows_max},
                                   {"cuda_graph_max_bs", decided.cuda_graph_max_bs},
                                   {"kv_blocks", decided.kv_blocks},
                                   {"kv_type", kv_type_name(decided.kv_type)},
                                   {"notes", strings_to_json(decided.notes)}})},
       {"assumptions", strings_to_json(plan.assumptions)},
       {"ranks", std::move(ranks)},
       {"refusal", std::move(refusal)}});
}

Json memory_window_to_json(const MemoryWindow& window) {
  Json json = Json::object();
  for (const OptionWindow& option : window.options) {
    const bool is_fraction =
        option.option == "mem-fraction-static" || option.option == "gpu-memory-utilization";
    const auto value = [&](std::int64_t number) {
      return is_fraction ? Json(static_cast<double>(number) / static_cast<double>(kWhole))
                         : Json(number);
    };
    Json one = Json::object({{"empty", option.is_empty}});
    one.set("min", value(option.low));
    one.set("max", value(option.high));
    one.set("binds_min", option.binds_low);
    one.set("binds_max", option.binds_high);
    if (option.option == "mem-fraction-static" && window.fraction_of_any_kv) {
      one.set("any_kv", value(*window.fraction_of_any_kv));
    }
    json.set(option.option, std::move(one));
  }
  return json;
}

Result<MemoryPlan> memory_plan_from_json(const Json& json) {
  if (!json.is_object()) {
    return invalid(fmt::format("memory plan: must be an object, not {}", json.type_name()));
  }
  MemoryPlan plan;
  Reader in(json, "");
  std::int64_t version = 0;
  in.read("version", version);
  TRY(in.status());
  if (version != kPlanJsonVersion) {
    return invalid(fmt::format("memory plan: version {} is not {}, which is what is read here",
                               version, kPlanJsonVersion));
  }
  in.read("devices", plan.devices);
  in.read("machine", plan.machine);
  in.read("tp", plan.tp);
  in.read("dp", plan.dp);
  in.read("budget_total", plan.budget_total);
  in.read("budget_source", plan.budget_source);
  const Json* decisions = in.optional("decisions");
  if (decisions == nullptr) return invalid("memory plan: decisions are missing");
  TRY(read_decisions(*decisions, plan.decisions));
  const Json* kv = in.optional("kv");
  if (kv == nullptr) return invalid("memory plan: kv is missing");
  TRY(read_kv(*kv, plan.kv));
  if (const Json* choice = in.optional("auto")) TRY(read_auto(*choice, plan.auto_choice));
  if (in.optional("assumptions") != nullptr) {  // records of before it was there are read too
    in.each("assumptions", [&](const Json& one) { return read_string(one, plan.assumptions); });
  }
  in.each("ranks", [&](const Json& rank) { return read_rank(rank, plan); });
  if (const Json* refusal = in.optional("refusal")) {
    Error error;
    Reader inner(*refusal, "refusal.");
    inner.read("code", error.code, kCodes, code_name);
    inner.read("message", error.message);
    TRY(inner.status());
    plan.refusal = std::move(error);
  }
  TRY(in.status());
  return plan;
}

}  // namespace plimsoll
