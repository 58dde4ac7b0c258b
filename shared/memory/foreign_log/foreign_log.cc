#include "shared/memory/foreign_log/foreign_log.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include <fmt/format.h>

#include "shared/base/text.h"
#include "shared/memory/foreign_log/launch_state.h"
#include "shared/memory/foreign_log/sglang_rules.h"

namespace plimsoll {
namespace {

// Lines of a server that runs: most of a long log. They hold nothing, and may hold anything.
constexpr std::array<std::string_view, 5> kServingLines = {
    "Decode batch", "Prefill batch", "HTTP/1.", "Avg prompt throughput", "Finish: obj="};

bool is_serving_line(std::string_view text) {
  return std::ranges::any_of(kServingLines, [&](std::string_view part) { return has(text, part); });
}

// A line without a head of its own goes on with what the rank before it says.
bool is_continuation(std::string_view text) {
  static constexpr std::array<std::string_view, 6> kHeads = {"[",       "(",     "INFO",
                                                             "WARNING", "ERROR", "DEBUG"};
  return !text.empty() && std::ranges::none_of(kHeads, [&](std::string_view head) {
    return text.starts_with(head);
  });
}

// "RuntimeError: ...", "torch.OutOfMemoryError: ...", with or without a head before it.
bool is_exception_line(std::string_view text) {
  for (const std::string_view kind : {"Error: ", "Exception: "}) {
    const std::size_t at = text.find(kind);
    if (at == text.npos || at == 0) continue;
    const char before = text[at - 1];  // of a name such as ValueError
    if ((before >= 'a' && before <= 'z') || (before >= 'A' && before <= 'Z')) return true;
  }
  return text.starts_with("AssertionError") || text.starts_with("Exception: ");
}

// Arguments that are printed are those that differ from defaults; the account names it anyway.
void name_utilization(LaunchState& state) {
  const std::optional<double> fraction = state.log().fraction;
  if (!fraction || state.log().args.empty()) return;
  state.set_arg("gpu_memory_utilization", fmt::format("{}", *fraction), ArgOrigin::built_in);
}

template <typename T>
void lessen(std::optional<T>& least, const std::optional<T>& value) {
  if (value && (!least || *value < *least)) least = value;
}

}  // namespace

const char* foreign_server_name(ForeignServer server) {
  return server == ForeignServer::sglang ? "SGLang" : "vLLM";
}

const char* arg_origin_name(ArgOrigin origin) {
  static constexpr const char* kNames[] = {"", "flag", "auto", "default"};
  return kNames[static_cast<std::size_t>(origin)];
}

const char* foreign_end_name(ForeignEnd end) {
  static constexpr const char* kNames[] = {"unknown", "served",    "no-weights", "no-profile",
                                           "no-pool", "no-kv",     "short-kv",   "no-graphs",
                                           "no-step", "neighbour", "unbalanced", "other"};
  return kNames[static_cast<std::size_t>(end)];
}

const char* foreign_end_text(ForeignEnd end) {
  static constexpr const char* kTexts[] = {"not finished in this log",
                                           "served",
                                           "out of memory while loading weights",
                                           "out of memory in the trial step that sizes KV",
                                           "out of memory while allocating KV",
                                           "no memory for KV",
                                           "KV is smaller than one request",
                                           "out of memory while capturing graphs or warming up",
                                           "out of memory while serving",
                                           "other processes hold or moved memory",
                                           "one device has much less free than another",
                                           "failed, and not for memory"};
  return kTexts[static_cast<std::size_t>(end)];
}

const ForeignArg* ForeignLog::arg(std::string_view name) const {
  const auto found = std::ranges::find(args, name, &ForeignArg::name);
  return found == args.end() ? nullptr : &*found;
}

const ForeignRank* ForeignLog::tightest() const {
  const ForeignRank* least = nullptr;
  const auto key = [](const ForeignRank& rank) {
    return rank.left ? *rank.left : rank.kv ? *rank.kv : rank.base.value_or(Bytes{1} << 60);
  };
  for (const ForeignRank& rank : ranks) {
    if (least == nullptr || key(rank) < key(*least)) least = &rank;
  }
  return least;
}

std::optional<Bytes> ForeignLog::kv_rule() const {
  std::optional<Bytes> base;
  std::optional<Bytes> left;
  std::optional<Bytes> kv;
  for (const ForeignRank& rank : ranks) {
    lessen(base, rank.base);
    lessen(left, rank.left);
    lessen(kv, rank.kv);
  }
  if (server == ForeignServer::vllm) return kv;
  if (!base || !left || !fraction) return kv;
  return sglang_kv(*base, *left, *fraction);
}

std::optional<double> ForeignLog::kv_bytes_per_token() const {
  const ForeignRank* rank = tightest();
  if (rank == nullptr || !rank->kv || *rank->kv <= 0) return {};
  const std::optional<Tokens> tokens = rank->kv_tokens ? rank->kv_tokens : kv_tokens;
  if (!tokens || *tokens <= 0) return {};
  return static_cast<double>(*rank->kv) / static_cast<double>(*tokens);
}

Bytes ForeignLog::beside_kv() const {
  const ForeignRank* rank = tightest();
  return rank == nullptr ? 0 : rank->state.value_or(0) + rank->reserved.value_or(0);
}

bool ForeignLog::has_kv_in_bytes() const {
  const ForeignArg* bytes = arg("kv-cache-bytes");
  return bytes != nullptr && !bytes->value.empty() &&
         std::ranges::all_of(bytes->value, [](unsigned char c) { return std::isdigit(c) != 0; });
}

struct ForeignLogReader::State {
  LaunchState sglang{ForeignServer::sglang};
  LaunchState vllm{ForeignServer::vllm};
  std::string rank;   // of the line before
  std::string plain;  // a line without its colours
  bool in_traceback = false;
  // The last line that a server logged as an error and that names an exception, without its
  // traceback: what ended a launch of which nothing else says the end.
  struct LoneError {
    std::string text;
    std::string rank;
    std::int64_t number = 0;
    std::int64_t launches = 0;
  };
  std::optional<LoneError> lone_error;

  std::int64_t launches() { return sglang.log().launches + vllm.log().launches; }

  void take_lone_error(LaunchState& state) {
    ForeignLog& log = state.log();
    const bool is_open = log.end == ForeignEnd::unknown && !log.became_ready;
    if (!lone_error || !is_open || lone_error->launches != launches()) return;
    state.fail(ForeignEnd::other, {.rank = lone_error->rank, .text = lone_error->text});
    log.end_line_number = lone_error->number;
  }

  // What both servers share: OOM, errors, readiness of the HTTP server.
  void common(const LogLine& line) {
    if (has(line.text, "Traceback (most recent call last)")) in_traceback = true;
    if (const auto oom = parse_oom_line(line.text)) {
      for (LaunchState* state : {&sglang, &vllm}) state->fail_of_oom(*oom, line);
      in_traceback = false;
      return;
    }
    if (has(line.text, "Application startup complete")) {
      for (LaunchState* state : {&sglang, &vllm}) state->become_ready();
    }
    if (!is_exception_line(line.text)) return;
    if (!in_traceback) {
      if (has(line.text, "ERROR")) {
        lone_error = LoneError{std::string(line.text), line.rank, vllm.log().lines, launches()};
      }
      return;
    }
    in_traceback = false;
    for (LaunchState* state : {&sglang, &vllm}) {
      // An error that a running server prints is one request's.
      if (!state->log().became_ready) state->fail(ForeignEnd::other, line);
    }
  }
};

ForeignLogReader::ForeignLogReader() : state_(std::make_unique<State>()) {}
ForeignLogReader::~ForeignLogReader() = default;

void ForeignLogReader::line(std::string_view text) {
  State& s = *state_;
  s.sglang.count_line();
  s.vllm.count_line();
  text = without_colours(text.substr(0, kLogLineMax), s.plain);
  if (trim(text).empty() || is_serving_line(text)) return;
  LogLine line{.rank = rank_of_line(text), .text = text};
  if (line.rank.empty() && is_continuation(text)) line.rank = s.rank;
  s.rank = line.rank;
  const bool is_sglang = read_sglang_line(s.sglang, line);
  const bool is_vllm = read_vllm_line(s.vllm, line);
  s.sglang.recognised += is_sglang ? 1 : 0;
  s.vllm.recognised += is_vllm ? 1 : 0;
  if (is_sglang || is_vllm) {
    s.lone_error.reset();  // the launch went on
  } else {
    s.common(line);
  }
}

Result<ForeignLog> ForeignLogReader::finish() {
  State& s = *state_;
  if (s.sglang.recognised == 0 && s.vllm.recognised == 0) {
    return invalid(
        fmt::format("no launch of SGLang or vLLM is in these {} lines; looked for SGLang's "
                    "`server_args=ServerArgs(...)`, `Load weight begin`, `KV Cache is allocated`, "
                    "`max_total_num_tokens=`, `Not enough memory`, and vLLM's `non-default args:`, "
                    "`LLM engine ... with config:`, `Model loading took`, `Available KV cache "
                    "memory`, `GPU KV cache size`, `# GPU blocks`",
                    s.sglang.log().lines));
  }
  LaunchState& state = s.sglang.recognised >= s.vllm.recognised ? s.sglang : s.vllm;
  s.take_lone_error(state);
  if (state.log().server == ForeignServer::sglang) {
    // Whatever words it found for it.
    const std::optional<Bytes> kv = state.log().kv_rule();
    if (state.log().end == ForeignEnd::other && kv && *kv <= 0) {
      state.log().end = ForeignEnd::no_kv;
    }
    infer_sglang_fraction(state.log());
    infer_sglang_origins(state.log());
  } else {
    state.fold_speakers();
    name_utilization(state);
  }
  state.apply_given();
  state.log().launches = std::max<std::int64_t>(state.log().launches, 1);
  return state.log();
}

Result<ForeignLog> parse_foreign_log(std::string_view text) {
  ForeignLogReader reader;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    reader.line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return reader.finish();
}

}  // namespace plimsoll
