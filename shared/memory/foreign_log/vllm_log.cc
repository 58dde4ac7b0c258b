// vLLM's lines, in the wordings of both engines, 0.2 to 0.33.
#include <algorithm>

#include "shared/base/text.h"
#include "shared/memory/foreign_log/launch_state.h"
#include "shared/memory/foreign_log/python_literal.h"

namespace plimsoll {
namespace {

constexpr std::size_t kScalarMax = 200;  // longer values of the resolved configuration are nested
constexpr std::int64_t kBlockTokens = 16;
constexpr std::size_t kEnginesMax = 1024;

void take_known(ForeignLog& log, std::string_view name, const Json& value) {
  if (name == "gpu_memory_utilization" && value.is_number()) log.fraction = value.as_double();
  if ((name == "max_model_len" || name == "max_seq_len") && value.is_integer() &&
      value.as_int() > 0 && !log.context) {
    log.context = value.as_int();
  }
}

// "non-default args: {'model': ...}" and "args: Namespace(host=None, ...)".
bool read_arguments(LaunchState& state, const LogLine& line) {
  const std::size_t given = line.text.find("non-default args: {");
  const std::size_t all = line.text.find("args: Namespace(");
  if (given == line.text.npos && all == line.text.npos) return false;
  state.begin_launch();
  const bool is_given = given != line.text.npos;
  const std::string_view text = line.text.substr(is_given ? given + 19 : all + 16);
  for (const auto& [name, value] : parse_python_arguments(text).values) {
    const bool is_unset = value.is_null() || (value.is_bool() && !value.as_bool());
    const ArgOrigin origin = is_given   ? ArgOrigin::given
                             : is_unset ? ArgOrigin::built_in
                                        : ArgOrigin::unknown;
    state.set_arg(name, python_value_text(value), origin);
    take_known(state.log(), name, value);
  }
  return true;
}

// "Initializing a V1 LLM engine (v0.20.2) with config: model='x', ..., max_seq_len=4096, ...".
bool read_config(LaunchState& state, const LogLine& line) {
  const std::size_t engine = line.text.find(" LLM engine ");
  const std::size_t config = line.text.find("with config: ");
  if (engine == line.text.npos || config == line.text.npos) return false;
  // Without a server nobody prints arguments first. Engines of one launch start one after another.
  const bool has_begun =
      state.furthest() > RankPhase::starting || state.log().end != ForeignEnd::unknown;
  if (has_begun && (line.rank.empty() || state.engines.contains(line.rank))) state.begin_launch();
  if (state.engines.size() < kEnginesMax) state.engines.insert(line.rank);
  const std::size_t version = line.text.find("(v", engine);
  if (version != line.text.npos && version < config) {
    const std::string_view rest = line.text.substr(version + 2, 64);
    state.log().version = to_valid_utf8(rest.substr(0, rest.find(')')));
  }
  for (const auto& [name, value] : parse_python_arguments(line.text.substr(config + 13)).values) {
    std::string text = python_value_text(value);
    const bool is_unset = value.is_null() || (value.is_bool() && !value.as_bool());
    if (text.size() <= kScalarMax) {
      state.set_arg(name, std::move(text), is_unset ? ArgOrigin::built_in : ArgOrigin::unknown);
    }
    take_known(state.log(), name, value);
  }
  return true;
}

bool read_weights(LaunchState& state, const LogLine& line) {
  if (has(line.text, "Starting to load model")) {
    state.phase(line.rank) = std::max(state.phase(line.rank), RankPhase::loading);
    return true;
  }
  auto used = bytes_behind(line.text, "Model loading took ", 0);
  if (!used || *used == 0) used = bytes_behind(line.text, "Loading model weights took ", 0);
  if (!used || *used == 0) return false;      // without a unit it is seconds
  ForeignRank& rank = state.rank(line.rank);  // workers of the older engine share one name
  rank.weights = std::max(rank.weights.value_or(0), *used);
  state.phase(line.rank) = std::max(state.phase(line.rank), RankPhase::loaded);
  return true;
}

// The account of the older engine, in one line or in four, and the newer one's.
bool read_profile(LaunchState& state, const LogLine& line) {
  ForeignLog& log = state.log();
  bool found = false;
  const auto take = [&](std::optional<Bytes>& into, std::string_view key) {
    if (const auto bytes = bytes_behind(line.text, key)) {
      into = bytes;
      found = true;
    }
  };
  take(log.total, "total_gpu_memory (");
  take(log.total, "total_gpu_memory=");
  if (const auto fraction = number_behind(line.text, "gpu_memory_utilization (")) {
    log.fraction = fraction;
    take(log.budget, ") = ");
  }
  if (const auto fraction = number_behind(line.text, " gpu_memory_utilization=");
      fraction && found) {
    log.fraction = fraction;
  }
  take(log.other_use, "non_torch_memory takes ");
  take(log.other_use, "non_torch_memory=");
  take(log.other_use, "non-torch forward increase memory: ");
  if (const auto peak = bytes_behind(line.text, "peak_torch_memory=")) {  // weights and trial step
    log.activation = std::max<Bytes>(0, *peak - state.rank(line.rank).weights.value_or(0));
    found = true;
  }
  const auto in_use = bytes_behind(line.text, "initial_memory_usage=");  // once they are loaded
  if (in_use) log.counts_others = true;
  if (in_use && log.total && !log.free_at_start) {
    const Bytes others = *in_use - state.rank(line.rank).weights.value_or(0);
    log.free_at_start = *log.total - std::max<Bytes>(0, others);
  }
  take(log.activation, "activation peak memory takes ");
  take(log.activation, "torch peak memory increase: ");
  const auto take_of_rank = [&](std::optional<Bytes> ForeignRank::*into, std::string_view key) {
    const auto bytes = bytes_behind(line.text, key);
    if (!bytes) return;
    ForeignRank& rank = state.rank(line.rank);
    if (into == &ForeignRank::kv || !(rank.*into)) rank.*into = bytes;
    state.phase(line.rank) = std::max(state.phase(line.rank), RankPhase::loaded);
    found = true;
  };
  take_of_rank(&ForeignRank::weights, "model weights take ");
  take_of_rank(&ForeignRank::weights, "weights memory: ");
  take_of_rank(&ForeignRank::kv, "reserved for KV Cache is ");
  take_of_rank(&ForeignRank::kv, " kv_cache_size=");
  take_of_rank(&ForeignRank::kv, "Available KV cache memory: ");
  take(log.graphs_estimate, "Estimated CUDA graph memory: ");
  if (!log.fraction) log.fraction = number_behind(line.text, "current --gpu-memory-utilization=");
  return found;
}

bool read_blocks(LaunchState& state, const LogLine& line) {
  ForeignLog& log = state.log();
  auto tokens = count_behind(line.text, "GPU KV cache size: ");
  if (!tokens) {
    auto blocks = count_behind(line.text, "# GPU blocks: ");
    if (!blocks) blocks = count_behind(line.text, "# cuda blocks: ");
    if (blocks) {
      const ForeignArg* size = log.arg("block-size");
      const auto of_one = size == nullptr ? std::nullopt : count_behind(size->value, "");
      tokens = *blocks * of_one.value_or(kBlockTokens);
    }
  }
  if (tokens) {
    log.kv_tokens = log.kv_tokens ? std::min(*log.kv_tokens, *tokens) : *tokens;
    if (*tokens > 0) {
      state.phase(line.rank) = std::max(state.phase(line.rank), RankPhase::sized);
      state.reach(RankPhase::sized);  // its workers do not say it
    }
  }
  const auto concurrency = number_behind(line.text, "tokens per request: ");
  if (concurrency) {
    log.concurrency = concurrency;
    if (!log.context) log.context = count_behind(line.text, "Maximum concurrency for ");
  }
  return tokens || concurrency;
}

bool read_capture(LaunchState& state, const LogLine& line) {
  if (has(line.text, "Graph capturing finished in ")) {
    if (const auto used = bytes_behind(line.text, " took ")) {
      state.rank(line.rank).graphs = used;
    }
    state.phase(line.rank) = RankPhase::captured;
    return true;
  }
  if (!has(line.text, "Capturing CUDA graph") && !has(line.text, "Capturing the model for CUDA")) {
    return false;
  }
  // The estimate before KV captures too.
  RankPhase& phase = state.phase(line.rank);
  if (state.furthest() >= RankPhase::sized) phase = std::max(phase, RankPhase::capturing);
  return true;
}

// "Actual usage is 60.2 GiB for weight, 5.6 GiB for peak activation, 0.1 GiB for non-torch memory,
// and 0.64 GiB for CUDAGraph memory." It is printed when everything is captured.
void read_usage(LaunchState& state, const LogLine& line, std::string_view text) {
  if (!has(text, "Actual usage")) return;
  text = text.substr(text.find("Actual usage"));
  ForeignLog& log = state.log();
  ForeignRank& rank = state.rank(line.rank);
  if (!rank.weights) rank.weights = bytes_before(text, " for weight");
  if (const auto peak = bytes_before(text, " for peak activation")) log.activation = peak;
  if (const auto other = bytes_before(text, " for non-torch memory")) log.other_use = other;
  for (const std::string_view key : {" for CUDAGraph memory", " for NPU graph memory"}) {
    if (const auto used = bytes_before(text, key)) rank.graphs = used;
  }
  state.phase(line.rank) = RankPhase::captured;
}

// "Free memory on device cuda:0 (2.6/121.63 GiB) on startup ..." of both kinds.
bool read_free(LaunchState& state, const LogLine& line) {
  const std::size_t at = line.text.find("Free memory on device");
  if (at == line.text.npos) return false;
  const std::string_view text = line.text.substr(at);
  ForeignLog& log = state.log();
  const std::size_t slash = text.find('/');
  if (text.find('(') < slash && slash != text.npos) {
    log.free_at_start = bytes_behind(text.substr(0, slash), "(");
    log.total = bytes_behind(text, "/");
  }
  const bool is_refused = has(text, "is less than desired GPU memory utilization");
  const std::size_t wanted = text.find("esired GPU memory utilization");
  if (wanted != text.npos) {
    const std::string_view pair = text.substr(wanted);
    log.fraction = number_behind(pair, "(");
    log.budget = bytes_behind(pair, ", ");
  }
  read_usage(state, line, text);
  if (const auto kv = bytes_behind(text, "memory in use is ")) state.rank(line.rank).kv = kv;
  if (is_refused) state.fail(ForeignEnd::neighbour, line);
  return true;
}

bool read_failure(LaunchState& state, const LogLine& line) {
  ForeignLog& log = state.log();
  const std::string_view text = line.text;
  if (says(text, "No available memory for the cache blocks")) {
    state.fail(ForeignEnd::no_kv, line);
    return true;
  }
  if (says(text, "To serve at least one request")) {
    if (const auto context = count_behind(text, "max seq len (")) log.context = context;
    const std::size_t len = text.find("max seq len (");
    const std::size_t close = len == text.npos ? text.npos : text.find(')', len);
    if (close != text.npos) {  // "), (6.11 GiB KV cache is needed" and "), 6.11 GiB KV ..."
      const std::size_t digit = text.find_first_of("0123456789", close);
      if (digit != text.npos && digit < close + 8)
        log.kv_needed = bytes_behind(text.substr(digit), "");
    }
    auto there = bytes_behind(text, "KV cache memory (");
    if (!there) there = bytes_behind(text, "KV Cache memory (");
    if (there) state.rank(line.rank).kv = there;
    log.context_max = count_behind(text, "estimated maximum model length is ");
    state.fail(ForeignEnd::short_kv, line);
    return true;
  }
  if (has(text, "larger than the maximum number of tokens that can be stored")) {
    if (const auto context = count_behind(text, "max seq len (")) log.context = context;
    if (const auto tokens = count_behind(text, "KV cache (")) {
      log.kv_tokens = tokens;
      log.context_max = tokens;
    }
    state.fail(ForeignEnd::short_kv, line);
    return true;
  }
  if (has(text, "Error in memory profiling")) {
    state.fail(ForeignEnd::neighbour, line);
    return true;
  }
  if (has(text, "when warming up sampler with")) {
    state.fail(ForeignEnd::no_graphs, line);
    return true;
  }
  return false;
}

bool read_ready(LaunchState& state, const LogLine& line) {
  // "Auto-fit max_model_len: reduced from 40960 to 31328 to fit in available GPU memory".
  if (const std::size_t at = line.text.find("Auto-fit max_model_len: "); at != line.text.npos) {
    const std::string_view text = line.text.substr(at);
    if (const auto context = count_behind(text, " to ")) state.log().context = context;
    state.note(text);
    return true;
  }
  if (has(line.text, "vLLM API server version ")) {
    const std::size_t at = line.text.find("version ") + 8;
    const std::string_view rest = line.text.substr(at, 64);
    state.set_version(to_valid_utf8(rest.substr(0, rest.find_first_of(" ,;"))));
    return true;
  }
  return has(line.text, "init engine (profile, create kv cache") ||
         has(line.text, "EngineCore failed to start") ||
         has(line.text, "Engine core initialization failed");
}

}  // namespace

bool read_vllm_line(LaunchState& state, const LogLine& line) {
  return read_arguments(state, line) || read_config(state, line) || read_weights(state, line) ||
         read_free(state, line) || read_profile(state, line) || read_blocks(state, line) ||
         read_capture(state, line) || read_failure(state, line) || read_ready(state, line);
}

}  // namespace plimsoll
