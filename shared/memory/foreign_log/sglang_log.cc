// SGLang's lines, in the wordings of 0.1 to 0.5.
#include <algorithm>

#include "shared/base/text.h"
#include "shared/memory/foreign_log/launch_state.h"
#include "shared/memory/foreign_log/python_literal.h"

namespace plimsoll {
namespace {

void read_arguments(LaunchState& state, std::string_view text) {
  const std::size_t call = text.find("ServerArgs(");
  const std::size_t dict = text.find("server_args={");
  const std::size_t begin = call != text.npos   ? call + 11
                            : dict != text.npos ? dict + 13
                                                : text.npos;
  if (begin == text.npos) return;
  state.begin_launch();
  for (const auto& [name, value] : parse_python_arguments(text.substr(begin)).values) {
    state.set_arg(name, python_value_text(value), ArgOrigin::unknown);
    if (name == "mem_fraction_static" && value.is_number())
      state.log().fraction = value.as_double();
    if (name == "context_length" && value.is_integer()) state.log().context = value.as_int();
  }
}

// "type=LlamaForCausalLM, dtype=..."
std::string word_behind(std::string_view text, std::string_view key) {
  const std::size_t found = text.find(key);
  if (found == text.npos) return "";
  const std::string_view rest = text.substr(found + key.size(), 128);
  return to_valid_utf8(trim(rest.substr(0, rest.find_first_of(",; )"))));
}

// A log without arguments may have anything.
bool may_have_draft(const ForeignLog& log) {
  return log.args.empty() || std::ranges::any_of(log.args, [](const ForeignArg& arg) {
           return arg.written.starts_with("speculative_") && arg.value != "None";
         });
}

bool read_weights(LaunchState& state, const LogLine& line) {
  if (has(line.text, "Load weight begin")) {
    ForeignRank& rank = state.rank(line.rank);
    const auto free = bytes_behind(line.text, "avail mem=");
    if (!rank.base) rank.base = free;
    rank.draft_began = state.phase(line.rank) >= RankPhase::sized;
    state.phase(line.rank) = std::max(state.phase(line.rank), RankPhase::loading);
    return true;
  }
  if (!has(line.text, "Load weight end")) return false;
  ForeignRank& rank = state.rank(line.rank);
  const auto free = bytes_behind(line.text, "avail mem=");
  auto used = bytes_behind(line.text, "mem usage=");
  if (!used) state.log().has_fraction_table = true;
  if (!used && rank.base && free && !rank.weights) used = *rank.base - *free;
  rank.draft_began = false;
  const bool is_other = word_behind(line.text, "type=") != state.log().model_type;
  if (rank.weights && (is_other || may_have_draft(state.log()))) {
    rank.draft = used;  // a second model in the same process
  } else if (rank.weights) {
    rank.weights = std::max(rank.weights, used);  // of a rank that is not named
  } else {
    rank.weights = used;
    state.log().model_type = word_behind(line.text, "type=");
  }
  // Where KV is allocated before the draft model comes, its budget is older than this.
  if (free && state.phase(line.rank) <= RankPhase::loaded) rank.left = free;
  state.phase(line.rank) = std::max(state.phase(line.rank), RankPhase::loaded);
  return true;
}

bool read_kv(LaunchState& state, const LogLine& line) {
  if (has(line.text, "Memory profiling: available_gpu_memory=")) {
    ForeignRank& rank = state.rank(line.rank);
    rank.left = bytes_behind(line.text, "available_gpu_memory=");
    rank.base = bytes_behind(line.text, "total_gpu_memory=");
    rank.kv = bytes_behind(line.text, "rest_memory=");
    return true;
  }
  if (has(line.text, "KV Cache is allocated") || has(line.text, "KV cache allocated")) {
    ForeignRank& rank = state.rank(line.rank);
    const auto k = bytes_behind(line.text, "K size:");
    const auto v = bytes_behind(line.text, "V size:");
    const auto both = k && v ? std::optional(*k + *v) : bytes_behind(line.text, "KV size:");
    const bool is_more = state.phase(line.rank) >= RankPhase::sized && rank.kv && both;
    rank.kv = is_more ? *rank.kv + *both : both ? both : rank.kv;
    if (!rank.kv_tokens) rank.kv_tokens = count_behind(line.text, "#tokens:");
    state.phase(line.rank) = std::max(state.phase(line.rank), RankPhase::sized);
    return true;
  }
  if (has(line.text, "SWAKVPool mem usage:")) {  // the sum of the pools before it
    ForeignRank& rank = state.rank(line.rank);
    rank.kv = bytes_behind(line.text, "mem usage:");
    rank.kv_tokens = count_behind(line.text, "full size:");
    state.phase(line.rank) = std::max(state.phase(line.rank), RankPhase::sized);
    return true;
  }
  if (const auto kept = bytes_behind(line.text, "Reserving ");
      kept && has(line.text, "of the KV budget")) {
    state.rank(line.rank).reserved = kept;
    return true;
  }
  if (has(line.text, "Mamba Cache is allocated")) {
    const auto conv = bytes_behind(line.text, "conv_state size:");
    const auto ssm = bytes_behind(line.text, "ssm_state size:");
    if (conv && ssm) {
      // With a draft model also those between its tokens.
      state.rank(line.rank).state =
          *conv + *ssm + bytes_behind(line.text, "intermediate_ssm_state_cache size:").value_or(0) +
          bytes_behind(line.text, "intermediate_conv_window_cache size:").value_or(0);
    }
    return true;
  }
  if (!has(line.text, "Memory pool end")) return false;
  state.rank(line.rank).after_pool = bytes_behind(line.text, "avail mem=");
  state.phase(line.rank) = std::max(state.phase(line.rank), RankPhase::sized);
  return true;
}

// "Capture cuda graph begin.", "Capture draft cuda graph end.", "Capture target decode CUDA graph
// end. elapsed=2.18 s, mem usage=1.00 GB, avail mem=9.00 GB."
bool read_capture(LaunchState& state, const LogLine& line) {
  const std::size_t capture = line.text.find("Capture ");
  if (capture == line.text.npos) return false;
  const std::string_view text = line.text.substr(capture, 4096);
  const std::size_t graph = std::min(text.find("graph "), text.find("Graph "));
  if (graph == text.npos || graph > 48) return false;
  const std::string_view what = text.substr(graph + 6);
  ForeignRank& rank = state.rank(line.rank);
  RankPhase& phase = state.phase(line.rank);
  if (what.starts_with("begin")) {
    phase = std::max(phase, RankPhase::capturing);
    if (const auto free = bytes_behind(text, "avail mem=")) rank.spare = free;
    return true;
  }
  if (what.starts_with("end")) {
    const auto free = bytes_behind(text, "avail mem=");
    auto used = bytes_behind(text, "mem usage=");
    if (!used && free && rank.spare) used = *rank.spare - *free;
    if (used) rank.graphs = rank.graphs.value_or(0) + *used;
    if (free) rank.spare = free;
    phase = RankPhase::captured;
    return true;
  }
  if (!what.starts_with("failed")) return false;
  phase = std::max(phase, RankPhase::capturing);
  if (const auto oom = parse_oom_line(line.text)) {
    state.fail_of_oom(*oom, line);
  } else {
    state.fail(ForeignEnd::other, line);
  }
  return true;
}

bool read_sizes(LaunchState& state, const LogLine& line) {
  if (const auto tokens = count_behind(line.text, "max_total_num_token=")) {  // of 0.1
    ForeignLog& log = state.log();
    log.kv_tokens = std::min(log.kv_tokens.value_or(*tokens), *tokens);
    if (const auto context = count_behind(line.text, "context_len=")) log.context = context;
    state.rank(line.rank).kv_tokens = tokens;
    state.phase(line.rank) = std::max(state.phase(line.rank), RankPhase::sized);
    return true;
  }
  const std::size_t at = line.text.find("max_total_num_tokens=");
  if (at == line.text.npos || !has(line.text, "max_running_requests=")) return false;
  ForeignLog& log = state.log();
  log.kv_tokens = count_behind(line.text, "max_total_num_tokens=");
  log.running_max = count_behind(line.text, "max_running_requests=");
  if (const auto context = count_behind(line.text, "context_len=")) log.context = context;
  if (const auto free = bytes_behind(line.text, "available_gpu_mem=")) {
    state.rank(line.rank).spare = free;
  }
  return true;
}

// Of pools that were sized, not of the device.
bool is_pool_exhausted(std::string_view text) {
  return has(text, "alloc_req_slots runs out of memory") || has(text, "Prefill out of memory") ||
         has(text, "Decode out of memory");
}

bool read_failure(LaunchState& state, const LogLine& line) {
  if (is_pool_exhausted(line.text)) {
    state.fail(ForeignEnd::other, line);
    return true;
  }
  if (const auto tokens = count_behind(line.text, "is larger than the profiled value ")) {
    state.log().kv_tokens = tokens;
    return true;
  }
  if (says(line.text, "Not enough memory. Please try to increase") ||
      says(line.text, "Not enough memory to allocate KV")) {
    if (const auto fraction = number_behind(line.text, "mem_fraction_static=")) {
      state.log().fraction = fraction;
    }
    state.fail(ForeignEnd::no_kv, line);
    return true;
  }
  if (has(line.text, "leave no GPU memory for the KV cache")) {
    if (const auto fraction = number_behind(line.text, "--mem-fraction-static=")) {
      state.log().fraction = fraction;
    }
    state.fail(ForeignEnd::no_kv, line);
    return true;
  }
  if (has(line.text, "memory capacity is unbalanced")) {
    ForeignRank& rank = state.rank(line.rank);
    auto least = bytes_behind(line.text, "pre_model_load_memory=");
    if (!least) least = bytes_behind(line.text, "min_per_gpu_memory=");
    if (!rank.base) rank.base = least;
    state.log().free_at_start = bytes_behind(line.text, "local_gpu_memory=");
    state.fail(ForeignEnd::unbalanced, line);
    return true;
  }
  return false;
}

// What was typed, where the log has it: it alone says what was given.
bool read_command(LaunchState& state, const LogLine& line) {
  if (!has(line.text, "sglang.launch_server ") && !has(line.text, "sglang serve ")) return false;
  if (!has(line.text, " --")) return false;
  for (const std::string_view word : split(line.text, ' ')) {
    if (word.starts_with("--") && word.size() > 2) state.give(word.substr(0, word.find('=')));
  }
  return true;
}

}  // namespace

bool read_sglang_line(LaunchState& state, const LogLine& line) {
  if (has(line.text, "erver_args") &&
      (has(line.text, "ServerArgs(") || has(line.text, "_args={"))) {
    read_arguments(state, line.text);
    return true;
  }
  if (read_weights(state, line) || read_kv(state, line) || read_capture(state, line) ||
      read_sizes(state, line) || read_failure(state, line) || read_command(state, line)) {
    return true;
  }
  if (has(line.text, "The server is fired up and ready to roll")) {
    state.become_ready();
    return true;
  }
  if (has(line.text, "ustom allreduce") || has(line.text, "ustom all-reduce")) {
    state.note(line.text);
    return false;  // vLLM says the same
  }
  return false;
}

}  // namespace plimsoll
