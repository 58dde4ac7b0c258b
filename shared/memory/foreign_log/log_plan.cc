#include "shared/memory/foreign_log/log_plan.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "shared/base/text.h"
#include "shared/memory/memory_terms.h"
#include "shared/model/kv_shape.h"
#include "shared/options/assumption.h"
#include "shared/options/fraction.h"
#include "shared/options/option_table.h"
#include "shared/options/option_value.h"

namespace plimsoll {
namespace {

// That mean the same there and here.
constexpr std::array<std::string_view, 7> kTaken = {"tp",
                                                    "dp",
                                                    "context-length",
                                                    "max-running-requests",
                                                    "chunked-prefill-size",
                                                    "cuda-graph-max-bs",
                                                    "max-total-tokens"};
constexpr double kSameTokens = 0.02;
// A card has that much more than what is free on it once a process has begun.
constexpr Bytes kTakenAtStart = 2 * kGiB;

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

// "fp8_e4m3" is fp8 here; what is not stored by us is left to auto.
std::optional<std::string> kv_type_of(std::string_view written) {
  if (written.starts_with("fp8")) return "fp8";
  if (written == "bfloat16" || written == "bf16") return "bf16";
  if (written == "float16" || written == "half") return "f16";
  if (written.starts_with("int8")) return "int8";
  return std::nullopt;
}

class Assumptions {
 public:
  void add(std::string_view term, std::optional<Bytes> bytes) {
    if (bytes && *bytes >= 0) terms_.push_back(fmt::format("{}={}B", term, *bytes));
  }
  std::string text() const { return join(terms_, ","); }

 private:
  std::vector<std::string> terms_;
};

bool is_on(const ForeignLog& log, std::string_view name) {
  const ForeignArg* arg = log.arg(name);
  return arg != nullptr && (arg->value == "True" || arg->value == "true");
}

// SGLang's: attention in data parallel over the ranks of tp, everything else divided by all.
bool has_dp_attention(const ForeignLog& log) {
  return log.server == ForeignServer::sglang && is_on(log, "enable-dp-attention");
}

std::int64_t count_of(const ForeignLog& log, std::string_view name) {
  const ForeignArg* arg = log.arg(name);
  if (arg == nullptr || !is_number(arg->value) || arg->value.size() > 6) return 1;
  return std::stoll(arg->value);
}

// What its share of the device comes to.
std::optional<Bytes> share_of_device(const ForeignLog& log) {
  const bool is_share = log.fraction && *log.fraction > 0 && *log.fraction <= 1;
  if (!log.total || !is_share) return std::nullopt;
  return share_of_bytes_up(*log.total, std::llround(*log.fraction * kWhole));
}

// Of processes that were there before it, in the engine whose share counts them.
Bytes counted_others(const ForeignLog& log) {
  if (!log.counts_others || !log.total || !log.free_at_start) return 0;
  const Bytes held = *log.total - *log.free_at_start;
  return held > kTakenAtStart ? held : 0;  // less is its own context
}

// Before weights, with context and communicators up: where the log does not say it and went on to
// load them, its share of the device was there.
std::optional<Bytes> free_by_share(const ForeignLog& log) {
  const ForeignRank* rank = log.tightest();
  const std::optional<Bytes> share = share_of_device(log);
  if (!share || rank == nullptr || !rank->weights) return std::nullopt;
  if (*share < *log.total - kTakenAtStart) return std::nullopt;
  return share;
}

// vLLM's: all that its share holds beside weights, graphs and KV; what the log does not say follows
// from what it says was left.
std::optional<Bytes> buffers_of(const ForeignLog& log) {
  const ForeignRank* rank = log.tightest();
  const std::optional<Bytes> kv = log.kv_rule();
  const std::optional<Bytes> share = share_of_device(log);
  if (!log.has_kv_in_bytes() && share && rank != nullptr && rank->weights && kv) {
    const Bytes beside = *share - *rank->weights - log.graphs_estimate.value_or(0) - *kv;
    if (beside >= 0) return beside;
  }
  if (!log.activation) return std::nullopt;
  return *log.activation + log.other_use.value_or(0);
}

// Of a request of the full context, where the log says how many such there is room for: tokens of
// layers that look back a window count for less the longer it is.
std::optional<double> kv_token_of(const ForeignLog& log) {
  const std::optional<Bytes> kv = log.kv_rule();
  const double tokens = log.concurrency.value_or(0) * static_cast<double>(log.context.value_or(0));
  const bool is_known = log.server == ForeignServer::vllm && kv && *kv > 0 && tokens >= 1;
  // It is said in two digits, so where both are the same the count is nearer.
  const double counted_tokens = static_cast<double>(log.kv_tokens.value_or(0));
  if (is_known && std::abs(tokens / std::max(counted_tokens, 1.0) - 1) > kSameTokens)
    return static_cast<double>(*kv) / tokens;
  return log.kv_bytes_per_token();
}

std::string assumptions_of(const ForeignLog& log) {
  Assumptions assumed;
  const ForeignRank* rank = log.tightest();
  const bool has_both = rank != nullptr && rank->base && rank->left;
  if (log.server == ForeignServer::sglang) {
    if (rank != nullptr) assumed.add("free", rank->base);
    // What is gone before KV is taken: a draft's weights and the states of layers included.
    if (rank != nullptr) {
      assumed.add("weights", has_both ? std::optional(*rank->base - *rank->left + log.beside_kv())
                                      : rank->weights);
    }
  } else {
    assumed.add("total", log.total);
    // Where its share counts others, these are a row, and not missing from what is free.
    const Bytes others = counted_others(log);
    assumed.add("free", others > 0          ? log.total
                        : log.free_at_start ? log.free_at_start
                                            : free_by_share(log));
    if (rank != nullptr) assumed.add("weights", rank->weights);
    const std::optional<Bytes> buffers = buffers_of(log);
    if (buffers) {
      // The trial step has all buffers of a step; the rest is outside PyTorch.
      const Bytes step = log.activation.value_or(*buffers);
      assumed.add("activations", step);
      const Bytes rest = std::max<Bytes>(0, *buffers - step);
      const Bytes held = std::min(others, rest);
      assumed.add("workspace", rest - held);
      if (held > 0) assumed.add("process", held);
      assumed.add("tables", 0);
      assumed.add("logits", 0);
      // Taken after KV, so of the share only as estimated; beside KV in bytes all of them.
      const bool is_beside = log.has_kv_in_bytes() && rank != nullptr && rank->graphs;
      assumed.add("graphs", is_beside ? rank->graphs : log.graphs_estimate.value_or(0));
    } else {
      assumed.add("graphs", log.graphs_estimate);
    }
  }
  if (const std::optional<double> token = kv_token_of(log)) {
    assumed.add("kv-token", static_cast<Bytes>(*token + 0.5));
  }
  return assumed.text();
}

std::optional<Bytes> device_size(const ForeignLog& log) {
  if (log.total) return log.total;
  const ForeignRank* rank = log.tightest();
  if (rank == nullptr || !rank->base) return std::nullopt;
  return round_up(*rank->base + kTakenAtStart, kGiB);
}

}  // namespace

std::vector<LogOption> options_of_log(const ForeignLog& log) {
  std::vector<LogOption> options;
  for (const std::string_view name : kTaken) {
    const ForeignArg* arg = log.arg(name);
    if (arg == nullptr || !is_number(arg->value)) continue;
    if (name == "dp" && has_dp_attention(log)) continue;  // it divides the tp ranks
    options.push_back({std::string(name), arg->value});
  }
  if (log.has_kv_in_bytes()) {
    options.push_back({"kv-cache-bytes", log.arg("kv-cache-bytes")->value + "B"});
  }
  if (log.fraction) {
    const char* name =
        log.server == ForeignServer::sglang ? "mem-fraction-static" : "gpu-memory-utilization";
    options.push_back({name, fmt::format("{:.6g}", *log.fraction)});
  }
  const ForeignArg* kv_type = log.arg("kv-cache-dtype");
  const auto type = kv_type != nullptr ? kv_type_of(kv_type->value) : std::nullopt;
  if (type) options.push_back({"kv-cache-dtype", *type});
  if (std::string assumed = assumptions_of(log); !assumed.empty()) {
    options.push_back({"assume", std::move(assumed)});
  }
  if (const std::optional<Bytes> size = device_size(log)) {
    options.push_back({"devices", "simulated:" + format_exact_bytes(*size)});
  }
  return options;
}

std::vector<std::string> log_plan_notes(const ForeignLog& log) {
  std::vector<std::string> notes;
  const bool has_weights = log.tightest() != nullptr && log.tightest()->weights;
  if (has_dp_attention(log)) {
    notes.push_back(fmt::format(
        "the log has attention in data parallel: dp {} divides its {} ranks, each of which keeps "
        "KV of its own requests only; planned is one such rank{}",
        count_of(log, "dp"), count_of(log, "tp"),
        has_weights ? "" : ", with attention's weights and KV heads as if they were divided"));
  }
  if (const Bytes others = counted_others(log); others > 0) {
    notes.push_back(fmt::format(
        "{} that other processes held are in the row process: this engine's share counts them",
        format_bytes(others)));
  }
  if (count_of(log, "pp") > 1) {
    notes.push_back(fmt::format(
        "the log has pipeline parallelism over {} stages; planned are the {} of one stage{}",
        count_of(log, "pp"), counted(count_of(log, "tp"), "rank"),
        has_weights ? ", with the weights and KV that the log measured"
                    : " with all layers: the log does not say what a stage took, so the plan "
                      "takes several times too much"));
  }
  if (count_of(log, "ep") > 1) {
    notes.push_back(fmt::format(
        "the log has experts divided over {} ranks; their exchange's buffers are not planned: add "
        "--ep {} for those of DeepEP",
        count_of(log, "ep"), count_of(log, "ep")));
  }
  const std::optional<Bytes> share = share_of_device(log);
  if (log.has_kv_in_bytes() && share && log.free_at_start) {
    const Bytes asked = *share;
    if (asked > *log.free_at_start) {
      notes.push_back(fmt::format(
          "KV is planned by its bytes; vLLM itself also asks that {} ({} of the device) are free "
          "when it begins, and {} were",
          format_bytes(asked), *log.fraction, format_bytes(*log.free_at_start)));
    }
  }
  return notes;
}

namespace {

constexpr std::array<std::string_view, 3> kSizeKv = {"kv-cache-bytes", "mem-fraction-static",
                                                     "gpu-memory-utilization"};
// Of the device; all else is of a rank as that launch had divided the model.
constexpr std::array<std::string_view, 2> kOfDevice = {"free", "total"};

bool is_given(const OptionSet& options, std::string_view name) {
  return options.origin(name).source != Source::built_in;
}

bool differs(const OptionSet& given, const ForeignLog& log, std::string_view name,
             std::int64_t value) {
  return is_given(given, name) && value != count_of(log, name);
}

bool has_own_devices(const OptionSet& given) {
  return !given.values.machine.empty() || is_given(given, "devices");
}

bool is_divided_otherwise(const OptionSet& given, const ForeignLog& log) {
  return differs(given, log, "tp", given.values.tp) || differs(given, log, "ep", given.values.ep);
}

bool has_other_kv(const OptionSet& given, const ForeignLog& log) {
  if (!is_given(given, "kv-cache-dtype")) return false;
  const ForeignArg* arg = log.arg("kv-cache-dtype");
  // What is auto there is the model's own, of two bytes.
  const std::string theirs =
      (arg == nullptr ? std::nullopt : kv_type_of(arg->value)).value_or("bf16");
  const auto bytes = [](std::string_view type) {
    return kv_row_bytes(kv_type_from_name(type == "auto" ? "bf16" : type).value_or(KvType::bf16),
                        128);
  };
  return bytes(given.values.kv_cache_dtype) != bytes(theirs);
}

// Term by term: what is assumed by hand, then what the log measured and nothing speaks against.
std::string merged_assumptions(const OptionSet& given, const ForeignLog& log,
                               const std::string& said) {
  const auto by_hand = parse_assumptions(given.values.assume);
  const auto of_log = parse_assumptions(said);
  if (!by_hand || !of_log) return given.values.assume;
  std::vector<std::string> terms;
  for (const Assumption& one : *of_log) {
    const bool is_of_device = std::ranges::find(kOfDevice, one.term) != kOfDevice.end();
    const bool is_overruled =
        std::ranges::any_of(*by_hand, [&](const Assumption& a) { return a.term == one.term; }) ||
        (is_of_device && has_own_devices(given)) ||
        (!is_of_device && is_divided_otherwise(given, log)) ||
        (one.term == "kv-token" && has_other_kv(given, log));
    if (!is_overruled) terms.push_back(fmt::format("{}={}B", one.term, one.bytes));
  }
  for (const Assumption& one : *by_hand)
    terms.push_back(fmt::format("{}={}B", one.term, one.bytes));
  return join(terms, ",");
}

}  // namespace

std::vector<std::string> log_replay_notes(const OptionSet& given, const ForeignLog& log) {
  std::vector<std::string> notes;
  const std::vector<LogOption> said = options_of_log(log);
  const bool knows_devices =
      std::ranges::any_of(said, [](const LogOption& one) { return one.name == "devices"; });
  if (has_own_devices(given) && knows_devices) {
    notes.emplace_back("devices are given: what was free on the log's is not taken");
  }
  if (is_divided_otherwise(given, log)) {
    notes.emplace_back(
        "the log's model is divided otherwise: what its ranks measured is not taken");
  } else if (has_other_kv(given, log)) {
    notes.emplace_back("the log's KV has another type: its bytes a token are not taken");
  }
  return notes;
}

OptionSet with_log_options(OptionSet options, const ForeignLog& log, const std::string& label) {
  const OptionSet given = options;
  const bool has_machine = !options.values.machine.empty();
  const bool sizes_kv =
      std::ranges::any_of(kSizeKv, [&](std::string_view name) { return is_given(given, name); });
  for (LogOption& said : options_of_log(log)) {
    const OptionRow* row = find_option(said.name);
    if (said.name == "assume") {
      said.value = merged_assumptions(given, log, said.value);
    } else if (row == nullptr || is_given(given, row->name)) {
      continue;
    }
    if (sizes_kv && std::ranges::find(kSizeKv, said.name) != kSizeKv.end()) continue;
    const bool is_device = said.name == "devices";
    Options changed = options.values;
    if (!set_option(changed, *row, is_device && has_machine ? "simulated" : said.value)) continue;
    options.values = std::move(changed);
    options.origins[std::string(row->name)] = {Source::file, label};
  }
  return options;
}

}  // namespace plimsoll
