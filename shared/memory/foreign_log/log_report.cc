#include "shared/memory/foreign_log/log_report.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "shared/memory/memory_terms.h"

namespace plimsoll {
namespace {

constexpr std::size_t kLineMax = 100;

// Arguments that have a part in memory, in the order in which they are shown.
constexpr std::array<std::string_view, 21> kShownArguments = {"model",
                                                              "mem-fraction-static",
                                                              "gpu-memory-utilization",
                                                              "tp",
                                                              "dp",
                                                              "pp",
                                                              "ep",
                                                              "enable-dp-attention",
                                                              "moe-a2a-backend",
                                                              "kv-cache-bytes",
                                                              "context-length",
                                                              "kv-cache-dtype",
                                                              "quantization",
                                                              "max-total-tokens",
                                                              "max-running-requests",
                                                              "chunked-prefill-size",
                                                              "cuda-graph-max-bs",
                                                              "disable-cuda-graph",
                                                              "enforce-eager",
                                                              "disable-custom-all-reduce",
                                                              "speculative-algorithm"};

std::string shown(const ForeignArg& arg) {
  const std::string origin = arg_origin_name(arg.origin);
  return origin.empty() ? fmt::format("{} {}", arg.name, arg.value)
                        : fmt::format("{} {} ({})", arg.name, arg.value, origin);
}

// Words that wrap, with an indent for all lines but the first.
std::string wrapped(const std::string& text, std::string_view indent) {
  std::string out;
  std::size_t column = 0;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::size_t length = end - at;
    if (column > 0 && column + 1 + length > kLineMax - indent.size()) {
      out += fmt::format("\n{}", indent);
      column = 0;
    } else if (column > 0) {
      out += ' ';
      ++column;
    }
    out += text.substr(at, length);
    column += length;
    at = end + 1;
  }
  return out;
}

std::string arguments_text(const ForeignLog& log) {
  std::string text;
  std::size_t column = 0;
  for (const std::string_view name : kShownArguments) {
    const ForeignArg* arg = log.arg(name);
    if (arg == nullptr || arg->value == "None") continue;
    const std::string word = shown(*arg);
    const bool fits = column > 0 && column + word.size() + 3 <= kLineMax;
    text += fits ? " · " : column > 0 ? "\n  " : "  ";
    column = (fits ? column + 3 : 2) + word.size();
    text += word;
  }
  return text.empty() ? text : text + "\n";
}

std::string origins_text(const ForeignLog& log) {
  const bool inferred = log.server == ForeignServer::sglang &&
                        std::ranges::any_of(log.args, [](const ForeignArg& arg) {
                          return arg.origin == ArgOrigin::automatic;
                        });
  return inferred ? "  (SGLang logs values without their origin: `auto` is what its own rules may "
                    "choose, `flag` is not)\n"
                  : "";
}

void set_optional(Json& json, std::string_view name, const auto& value) {
  if (value) json.set(name, *value);
}

Json rank_json(const ForeignRank& rank) {
  Json json = Json::object({{"name", rank.name}});
  set_optional(json, "free_before_weights", rank.base);
  set_optional(json, "weights", rank.weights);
  set_optional(json, "draft_weights", rank.draft);
  set_optional(json, "free_after_weights", rank.left);
  set_optional(json, "kv", rank.kv);
  set_optional(json, "kv_tokens", rank.kv_tokens);
  set_optional(json, "free_after_kv", rank.after_pool);
  set_optional(json, "graphs", rank.graphs);
  set_optional(json, "free_at_the_end", rank.spare);
  return json;
}

Json figures_json(const ForeignLog& log) {
  Json json = Json::object();
  set_optional(json, "fraction", log.fraction);
  set_optional(json, "device", log.total);
  set_optional(json, "free_at_start", log.free_at_start);
  set_optional(json, "budget", log.budget);
  set_optional(json, "outside_pytorch", log.other_use);
  set_optional(json, "trial_step", log.activation);
  set_optional(json, "graphs_estimate", log.graphs_estimate);
  set_optional(json, "kv_by_rule", log.kv_rule());
  set_optional(json, "kv_needed", log.kv_needed);
  set_optional(json, "kv_tokens", log.kv_tokens);
  set_optional(json, "kv_bytes_per_token", log.kv_bytes_per_token());
  set_optional(json, "context", log.context);
  set_optional(json, "context_max", log.context_max);
  set_optional(json, "running_max", log.running_max);
  return json;
}

}  // namespace

std::string log_report(const ForeignLog& log, const LogExplanation& explanation,
                       LogReportParts parts) {
  std::string text = fmt::format("{}\n{}", explanation.title, explanation.outcome);
  if (log.end_line_number > 0 && !log.end_line.empty()) {
    text += fmt::format("; first in line {}:\n  {}", grouped(log.end_line_number),
                        wrapped(log.end_line, "  "));
  }
  text += "\n";
  if (!explanation.rows.empty()) text += "\n";
  for (const LogRow& row : explanation.rows) {
    text += fmt::format("  {:<20} {:>12}{}{}\n", row.name, format_bytes(row.bytes),
                        row.remark.empty() ? "" : "  ", row.remark);
  }
  if (!explanation.why.empty()) text += "\n";
  for (const std::string& sentence : explanation.why) text += wrapped(sentence, "") + "\n";
  if (!explanation.advice.empty()) text += "\nwhat to change:\n";
  for (const LogAdvice& advice : explanation.advice) {
    text +=
        fmt::format("  - {}\n", wrapped(fmt::format("{}: {}", advice.change, advice.why), "    "));
  }
  if (parts.arguments) {
    const std::string arguments = arguments_text(log);
    if (!arguments.empty()) text += fmt::format("\narguments:\n{}{}", arguments, origins_text(log));
  }
  for (const std::string& note : log.notes) text += fmt::format("note: {}\n", wrapped(note, "  "));
  return text;
}

Json log_report_json(const ForeignLog& log, const LogExplanation& explanation) {
  Json arguments = Json::array();
  for (const ForeignArg& arg : log.args) {
    arguments.push(Json::object({{"name", arg.name},
                                 {"written", arg.written},
                                 {"value", arg.value},
                                 {"source", arg_origin_name(arg.origin)}}));
  }
  Json ranks = Json::array();
  for (const ForeignRank& rank : log.ranks) ranks.push(rank_json(rank));
  Json rows = Json::array();
  for (const LogRow& row : explanation.rows) {
    rows.push(Json::object({{"name", row.name}, {"bytes", row.bytes}, {"remark", row.remark}}));
  }
  Json why = Json::array();
  for (const std::string& sentence : explanation.why) why.push(sentence);
  Json advice = Json::array();
  for (const LogAdvice& item : explanation.advice) {
    advice.push(Json::object({{"change", item.change}, {"why", item.why}}));
  }
  Json window = Json::object();
  set_optional(window, "any_kv_min", explanation.window.any_kv);
  set_optional(window, "one_request_min", explanation.window.one_request);
  set_optional(window, "automatic", explanation.window.automatic);
  set_optional(window, "max", explanation.window.most);
  return Json::object({{"server", foreign_server_name(log.server)},
                       {"version", log.version},
                       {"model_type", log.model_type},
                       {"outcome", foreign_end_name(log.end)},
                       {"served", log.became_ready},
                       {"said", log.end_line},
                       {"line", log.end_line_number},
                       {"launches", log.launches},
                       {"figures", figures_json(log)},
                       {"rows", std::move(rows)},
                       {"fraction_window", std::move(window)},
                       {"why", std::move(why)},
                       {"advice", std::move(advice)},
                       {"arguments", std::move(arguments)},
                       {"ranks", std::move(ranks)}});
}

}  // namespace plimsoll
