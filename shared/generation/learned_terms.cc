#include "shared/generation/learned_terms.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "shared/memory/memory_plan.h"
#include "shared/memory/memory_report.h"
#include "shared/options/option_table.h"
#include "shared/options/option_value.h"

namespace plimsoll {
namespace {

using TermSizes = std::map<std::string, Bytes, std::less<>>;

// That decide over what is learned, beside the model and the machine.
constexpr std::array<std::string_view, 11> kLayout = {"tp",
                                                      "dp",
                                                      "ep",
                                                      "devices",
                                                      "machine",
                                                      "simulation",
                                                      "threads",
                                                      "cpu-path",
                                                      "draft-model",
                                                      "collective",
                                                      "disable-custom-all-reduce"};

bool same_settings(const std::vector<Setting>& a, const std::vector<Setting>& b) {
  return std::ranges::equal(a, b, [](const Setting& x, const Setting& y) {
    return x.name == y.name && x.value == y.value;
  });
}

bool same_layout(const Options& a, const Options& b) {
  return std::ranges::all_of(kLayout, [&](std::string_view name) {
    const OptionRow* row = find_option(name);
    return row != nullptr && option_text(a, *row) == option_text(b, *row);
  });
}

bool is_comparable(const GenerationRecord& record, const LearnQuestion& question) {
  if (!same_settings(record.environment, question.environment)) return false;
  Result<OptionSet> options = option_set_from_json(record.options);
  if (!options) return false;
  // A layout that was left to us is what its plan says.
  const auto decided = [&](const char* name, std::int64_t& value) {
    const Json* found = record.plan.find(name);
    if (value == 0 && found != nullptr && found->is_integer()) value = found->as_int();
  };
  decided("tp", options->values.tp);
  decided("dp", options->values.dp);
  return same_layout(options->values, question.options.values);
}

// Of a rank: its terms, with everything that is none of the plan's added up as the process.
TermSizes sizes_of(const Json& rank) {
  TermSizes sizes;
  const Json* bytes = rank.find("bytes");
  if (bytes == nullptr || !bytes->is_object()) return sizes;
  for (const auto& [name, value] : bytes->as_object()) {
    if (!value.is_integer()) continue;
    sizes[term_from_name(name) ? name : std::string(term_name(Term::process))] += value.as_int();
  }
  return sizes;
}

TermSizes largest_of(const Json& measured) {
  TermSizes largest;
  if (!measured.is_array()) return largest;
  for (const Json& rank : measured.as_array()) {
    for (const auto& [term, bytes] : sizes_of(rank)) {
      largest[term] = std::max(largest[term], bytes);
    }
  }
  return largest;
}

bool is_learned(Term term) {
  return term == Term::context || term == Term::collective || term == Term::graphs ||
         term == Term::process;
}

// What launches differ by; more would be far off beside a small model.
constexpr Bytes kProcessStep = kMiB / 4;

// Its pages of libraries are shared with whoever else maps them just then, so a launch may see too
// little of a process and never too much: the most that any has seen counts.
void learn_process(const TermSizes& sizes, const GenerationRecord& record,
                   std::vector<LearnedTerm>& terms) {
  const auto process = sizes.find(std::string_view(term_name(Term::process)));
  if (process == sizes.end()) return;
  const Bytes bytes = round_up(process->second, kProcessStep);
  if (!terms.empty() && terms.front().bytes >= bytes) return;
  terms = {{.term = process->first,
            .bytes = bytes,
            .from = fmt::format("generation {}", record.number)}};
}

}  // namespace

std::vector<LearnedTerm> learned_terms(const Generations& all, const LearnQuestion& question) {
  std::vector<LearnedTerm> of_cpu;
  for (const GenerationRecord& record : std::views::reverse(all.records)) {
    const TermSizes sizes = largest_of(record.measured);
    if (sizes.empty() || !is_comparable(record, question)) continue;
    const Result<MemoryPlan> plan = memory_plan_from_json(record.plan);
    if (!plan) continue;
    if (plan->devices == "cpu") {
      learn_process(sizes, record, of_cpu);
      continue;
    }
    std::vector<LearnedTerm> terms;
    for (const auto& [name, bytes] : sizes) {
      const std::optional<Term> term = term_from_name(name);
      if (!term || !is_learned(*term)) continue;
      LearnedTerm learned{.term = name,
                          .bytes = round_up(bytes, kMiB),
                          .from = fmt::format("generation {}", record.number)};
      if (*term == Term::graphs) learned.graph_batch = plan->decisions.cuda_graph_max_bs;
      terms.push_back(std::move(learned));
    }
    return terms;
  }
  return of_cpu;
}

Json learned_collectives(const Generations& all, const LearnQuestion& question) {
  for (const GenerationRecord& record : std::views::reverse(all.records)) {
    if (!record.measured.is_array() || record.measured.as_array().empty()) continue;
    const Json* table = record.measured.as_array().front().find("collectives");
    if (table == nullptr || !table->is_object() || !is_comparable(record, question)) continue;
    return *table;
  }
  return {};
}

Json read_learned_collectives(const std::filesystem::path& state, const LearnQuestion& question) {
  const Result<Generations> all = read_generations(state);
  return all ? learned_collectives(*all, question) : Json();
}

std::vector<LearnedTerm> read_learned_terms(const std::filesystem::path& state,
                                            const LearnQuestion& question) {
  const Result<Generations> all = read_generations(state);
  return all ? learned_terms(*all, question) : std::vector<LearnedTerm>{};
}

void add_learned(std::vector<LearnedTerm> terms, Machine& machine) {
  for (LearnedTerm& term : terms) {
    const auto said = std::ranges::find(machine.learned, term.term, &LearnedTerm::term);
    if (said == machine.learned.end()) machine.learned.push_back(std::move(term));
  }
}

}  // namespace plimsoll
