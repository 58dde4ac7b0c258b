#include "shared/memory/foreign_log/sglang_rules.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "shared/base/text.h"
#include "shared/memory/memory_terms.h"
#include "shared/memory/sglang_fraction.h"

namespace plimsoll {
namespace {

constexpr double kThousand = 1000;
// Three figures of a log, each of two digits behind the point of a GiB.
constexpr Bytes kLogRounding = 32 * kMiB;
// A computed fraction of another version lies within this of ours.
constexpr double kRuleTolerance = 0.03;
// A card has that much more than what is free on it once a process has begun.
constexpr Bytes kTakenAtStart = 2 * kGiB;
constexpr double kAutoMin = 0.55;
constexpr double kAutoMax = 0.96;

struct BuiltIn {
  std::string_view name;  // as written there
  std::string_view value;
};
// Defaults that matter for telling what was given; an unset argument is None.
constexpr BuiltIn kDefaults[] = {
    {"host", "127.0.0.1"},
    {"port", "30000"},
    {"tp_size", "1"},
    {"pp_size", "1"},
    {"dp_size", "1"},
    {"ep_size", "1"},
    {"dtype", "auto"},
    {"kv_cache_dtype", "auto"},
    {"load_format", "auto"},
    {"tokenizer_mode", "auto"},
    {"log_level", "info"},
    {"device", "cuda"},
    {"schedule_policy", "fcfs"},
    {"schedule_policy", "lpm"},
    {"max_prefill_tokens", "16384"},
    {"schedule_conservativeness", "1.0"},
    {"stream_interval", "1"},
    {"num_continuous_decode_steps", "1"},
    {"page_size", "1"},
    {"watchdog_timeout", "300"},
    {"nnodes", "1"},
    {"node_rank", "0"},
    {"base_gpu_id", "0"},
    {"gpu_id_step", "1"},
    {"decode_log_interval", "40"},
    {"load_balance_method", "round_robin"},
    {"model_impl", "auto"},
    {"hicache_ratio", "2.0"},
    {"moe_a2a_backend", "none"},
    {"deepep_mode", "auto"},
};
// Values that it chooses itself where nothing is given.
constexpr std::array<std::string_view, 5> kChunks = {"2048", "4096", "8192", "16384", "-1"};
constexpr std::array<std::string_view, 8> kGraphBatches = {"8",  "24",  "32",  "48",
                                                           "80", "160", "256", "512"};
constexpr std::array<std::string_view, 9> kChosen = {
    "attention_backend", "sampling_backend",  "random_seed",
    "nccl_port",         "served_model_name", "tokenizer_path",
    "grammar_backend",   "cuda_graph_bs",     "moe_runner_backend"};

std::int64_t count_of(const ForeignLog& log, std::string_view name, std::int64_t otherwise) {
  const ForeignArg* arg = log.arg(name);
  if (arg == nullptr) return otherwise;
  std::int64_t value = 0;
  const char* end = arg->value.data() + arg->value.size();
  const auto [rest, bad] = std::from_chars(arg->value.data(), end, value);
  return bad == std::errc() && rest == end && value >= 0 && value < (1LL << 32) ? value : otherwise;
}

std::optional<Bytes> least_base(const ForeignLog& log) {
  std::optional<Bytes> base;
  for (const ForeignRank& rank : log.ranks) {
    if (rank.base && (!base || *rank.base < *base)) base = rank.base;
  }
  return base;
}

// Up to 0.4.6.
double table_fraction(std::int64_t tp) {
  return tp >= 16 ? 0.79 : tp >= 8 ? 0.81 : tp >= 4 ? 0.85 : tp >= 2 ? 0.87 : 0.88;
}

bool is_set(const ForeignLog& log, std::string_view name, std::string_view value) {
  const ForeignArg* arg = log.arg(name);
  return arg != nullptr && arg->value == value;
}

// An argument that is unset is by the device's memory, a chunk of -1 is none at all.
SglangLaunch launch_of(const ForeignLog& log, Bytes total) {
  SglangLaunch launch{.device_mib = total / kMiB};
  launch.tp = std::max<std::int64_t>(count_of(log, "tp", 1), 1);
  launch.pp = std::max<std::int64_t>(count_of(log, "pp", 1), 1);
  if (is_set(log, "enable-dp-attention", "True")) launch.dp_attention = count_of(log, "dp", 1);
  launch.is_latent = log.model_type.starts_with("Deepseek") || log.model_type.starts_with("Kimi");
  launch.chunked_prefill = is_set(log, "chunked-prefill-size", "-1")
                               ? count_of(log, "max-prefill-tokens", 16'384)
                               : count_of(log, "chunked-prefill-size", 0);
  const std::int64_t batch = count_of(log, "cuda-graph-max-bs", -1);
  if (batch >= 0) launch.graph_batch = batch;
  if (is_set(log, "disable-cuda-graph", "True")) launch.graph_batch = 0;
  launch.requests = count_of(log, "max-running-requests", 0);
  const ForeignArg* graphs = log.arg("cuda-graph-max-bs");
  // Since it tells graphs of decoding from those of prefill.
  launch.has_prefill_graphs = graphs != nullptr && graphs->written.ends_with("_decode");
  const bool exchanges =
      is_set(log, "moe-a2a-backend", "deepep") || is_set(log, "enable-deepep-moe", "True");
  launch.has_deepep = exchanges && launch.graph_batch != 0;
  return launch;
}

bool is_one_of(std::string_view value, auto& values) {
  return std::ranges::find(values, value) != std::end(values);
}

ArgOrigin origin_of(const ForeignArg& arg, const ForeignLog& log) {
  if (arg.value == "None" || arg.value == "False" || arg.value == "[]" || arg.value == "{}") {
    return ArgOrigin::built_in;
  }
  for (const BuiltIn& row : kDefaults) {
    if (row.name == arg.written && row.value == arg.value) return ArgOrigin::built_in;
  }
  if (arg.name == "mem-fraction-static") {
    if (log.is_fraction_inferred) return ArgOrigin::automatic;
    return log.fraction && may_be_automatic(*log.fraction, log) ? ArgOrigin::automatic
                                                                : ArgOrigin::given;
  }
  if (arg.name == "chunked-prefill-size" && is_one_of(arg.value, kChunks)) {
    return ArgOrigin::automatic;
  }
  if (arg.name == "cuda-graph-max-bs" && is_one_of(arg.value, kGraphBatches)) {
    return ArgOrigin::automatic;
  }
  return is_one_of(arg.written, kChosen) ? ArgOrigin::automatic : ArgOrigin::given;
}

}  // namespace

Bytes sglang_kv(Bytes base, Bytes left, double fraction) {
  return left - static_cast<Bytes>(std::llround(static_cast<double>(base) * (1 - fraction)));
}

std::optional<double> sglang_fraction_for(Bytes base, Bytes left, Bytes kv) {
  if (base <= 0) return {};
  const Bytes wanted = std::max<Bytes>(kv, 1);
  const double exact = 1 - static_cast<double>(left - wanted) / static_cast<double>(base);
  for (double k = std::max(0.0, std::floor(exact * kThousand) - 1); k <= kThousand; ++k) {
    if (sglang_kv(base, left, k / kThousand) >= wanted) return k / kThousand;
    if (k > exact * kThousand + 2) break;
  }
  return {};
}

std::string sglang_no_kv_reason(const std::string& fraction, double filled, Bytes kv) {
  const std::string rule = fmt::format(
      "{} is how much of the memory that was free before loading weights and KV "
      "together may fill. ",
      fraction);
  if (kv > kLogRounding) {
    return rule + fmt::format(
                      "Weights alone fill {:.3f} of it, and by that {} should be left for "
                      "KV: something that this log does not name took it (a reservation "
                      "for images, states of recurrent layers, another rank).",
                      filled, format_bytes(kv));
  }
  return rule + fmt::format(
                    "Weights alone fill {:.3f} of it, so nothing is left for KV: the value "
                    "is too small, not the device.",
                    filled);
}

std::optional<SglangChoice> sglang_choice(const ForeignLog& log) {
  const std::optional<Bytes> base = least_base(log);
  const std::optional<Bytes> total = log.total ? log.total : base;
  if (!total || *total < kMiB) return {};
  SglangChoice choice;
  if (log.has_fraction_table) {
    const std::int64_t tp = count_of(log, "tp", 1);
    choice.fraction = choice.most = table_fraction(tp);
    choice.words = fmt::format("took {} with {}, by the table that it had up to 0.4.6",
                               choice.fraction, counted(tp, "rank"));
    return choice;
  }
  const SglangReserve reserve = sglang_reserve(launch_of(log, *total));
  const auto fraction_of = [&](Bytes device) {
    return 1 - static_cast<double>(reserve.bytes()) / static_cast<double>(device);
  };
  choice.fraction = std::round(fraction_of(*total) * kThousand) / kThousand;
  choice.most = fraction_of(log.total.value_or(*total + kTakenAtStart));
  if (choice.fraction <= 0) return {};
  choice.words = fmt::format("keeps back {} ({}), which is about {:.3f}",
                             format_bytes(reserve.bytes()), reserve.formula, choice.fraction);
  return choice;
}

bool may_be_automatic(double fraction, const ForeignLog& log) {
  // Up to 0.4.6 it was a table by ranks; 0.88 remains what it takes where it cannot read the
  // device.
  const double table = table_fraction(count_of(log, "tp", 1));
  const auto same = [&](double other) { return std::abs(fraction - other) < 1e-9; };
  if (same(0.88) || same(table)) return true;
  // The computed one has three digits; people write two.
  const double hundredths = fraction * 100;
  if (std::abs(hundredths - std::round(hundredths)) < 1e-6) return false;
  if (fraction < kAutoMin || fraction > kAutoMax) return false;
  const std::optional<SglangChoice> ours = sglang_choice(log);
  return !ours || std::abs(ours->fraction - fraction) <= kRuleTolerance || log.model_type.empty() ||
         log.model_type.ends_with("ForConditionalGeneration");
}

void infer_sglang_fraction(ForeignLog& log) {
  const auto arg = std::ranges::find(log.args, "mem-fraction-static", &ForeignArg::name);
  const ForeignRank* rank = log.tightest();
  if (log.fraction || arg == log.args.end() || arg->value != "None" || rank == nullptr) return;
  if (!rank->base || !rank->left || !rank->kv || *rank->base <= 0 || *rank->kv <= 0) return;
  const double kept = static_cast<double>(*rank->left - *rank->kv);
  const double fraction =
      std::round((1 - kept / static_cast<double>(*rank->base)) * kThousand) / kThousand;
  if (fraction <= 0 || fraction > 1) return;
  log.fraction = fraction;
  arg->value = fmt::format("{}", fraction);
  log.is_fraction_inferred = true;
}

void infer_sglang_origins(ForeignLog& log) {
  for (ForeignArg& arg : log.args) arg.origin = origin_of(arg, log);
}

}  // namespace plimsoll
