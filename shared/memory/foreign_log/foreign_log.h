// ForeignLog: what a log of SGLang or vLLM says about one launch: arguments, memory, how it ended.
//
// Pure: lines in, one record out, in bounded memory whatever the log's length. A file that holds
// several launches yields the last. Figures are of the rank that says them; SGLang's "GB" is 2^30.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/base/units.h"
#include "shared/memory/foreign_log/oom_line.h"

namespace plimsoll {

enum class ForeignServer { sglang, vllm };
const char* foreign_server_name(ForeignServer server);  // "SGLang"

// Logs say values, not where they came from: where no command line is in the log, SGLang's are
// told apart by what its own rules could have chosen.
enum class ArgOrigin { unknown, given, automatic, built_in };
const char* arg_origin_name(ArgOrigin origin);  // "flag", "auto", "default", "" for unknown

struct ForeignArg {
  std::string name;     // ours where we have the option: "tp"
  std::string written;  // "tp_size"
  std::string value;    // "8"
  ArgOrigin origin = ArgOrigin::unknown;
};

struct ForeignRank {
  std::string name = {};              // "TP0", "DP1 TP0"; empty where there is only one
  std::optional<Bytes> base = {};     // free before weights
  std::optional<Bytes> weights = {};  // taken by them
  std::optional<Bytes> draft = {};    // by a draft model's
  bool draft_began = false;           // to be loaded, after KV had been taken
  std::optional<Bytes> left = {};     // free after all weights
  std::optional<Bytes> kv = {};       // allocated, or what the sizing came to
  std::optional<Tokens> kv_tokens = {};
  std::optional<Bytes> state = {};       // of recurrent layers, out of KV's share
  std::optional<Bytes> reserved = {};    // for what is allocated later, out of KV's share
  std::optional<Bytes> after_pool = {};  // free after KV
  std::optional<Bytes> graphs = {};      // taken by captures
  std::optional<Bytes> spare = {};       // free after captures
};

enum class ForeignEnd {
  unknown,     // the log stops, or is only a part
  served,      // it became ready, and nothing is said against it
  no_weights,  // out of memory while weights were loaded
  no_profile,  // out of memory in the trial step that sizes KV
  no_pool,     // out of memory while KV itself was allocated
  no_kv,       // weights fit and left nothing for KV
  short_kv,    // KV is smaller than one request of the full context
  no_graphs,   // out of memory while capturing or warming up
  no_step,     // out of memory while serving
  neighbour,   // other processes hold the memory, or gave some back meanwhile
  unbalanced,  // one device has much less free than another
  other,       // an error that is not about memory
};
const char* foreign_end_name(ForeignEnd end);  // "no-kv": for programs
const char* foreign_end_text(ForeignEnd end);  // "no memory for KV": for people

struct ForeignLog {
  ForeignServer server = ForeignServer::sglang;
  std::string version;  // "0.8.5"; empty: not said
  // SGLang: of a version that chose its fraction by a table of ranks, up to 0.4.6.
  bool has_fraction_table = false;
  std::string model_type;  // "KimiK25ForConditionalGeneration"; empty: not said
  std::vector<ForeignArg> args;
  std::vector<ForeignRank> ranks;  // in order of appearance

  std::optional<double> fraction;     // mem-fraction-static, or gpu-memory-utilization
  bool is_fraction_inferred = false;  // from what it left for KV: nothing names it
  std::optional<Bytes> total;         // of the device
  std::optional<Bytes> free_at_start;
  // vLLM up to 0.6: what other processes hold is taken from its share, not from the rest.
  bool counts_others = false;
  std::optional<Bytes> budget;      // vLLM: total x utilization
  std::optional<Bytes> other_use;   // vLLM: outside PyTorch
  std::optional<Bytes> activation;  // vLLM: peak of the trial step
  std::optional<Bytes> graphs_estimate;
  std::optional<Bytes> kv_needed;  // by one request of the full context
  std::optional<Tokens> kv_tokens;
  std::optional<Tokens> context;
  std::optional<Tokens> context_max;  // that vLLM says would fit
  std::optional<std::int64_t> running_max;
  std::optional<double> concurrency;

  ForeignEnd end = ForeignEnd::unknown;
  bool became_ready = false;
  std::string end_line;              // the words of the log, at most kEndLineMax bytes
  std::int64_t end_line_number = 0;  // from 1
  std::int64_t end_ranks = 0;        // that said it
  std::string end_rank;              // that said it first; empty: unnamed
  std::optional<OomLine> oom;
  Bytes held_by_others = 0;        // of the device, when that allocation failed
  std::vector<std::string> notes;  // lines about all-reduce and captures worth seeing, at most 8

  std::int64_t launches = 0;  // in the file
  std::int64_t lines = 0;

  const ForeignArg* arg(std::string_view name) const;  // by our name; nullptr: not there
  // The rank with the least for KV; nullptr where no rank said anything.
  const ForeignRank* tightest() const;
  // KV bytes by the server's own rule, of the tightest rank; below zero where nothing is left.
  std::optional<Bytes> kv_rule() const;
  std::optional<double> kv_bytes_per_token() const;
  // What goes from KV's share before KV does, of the tightest rank: states, and what is reserved.
  Bytes beside_kv() const;
  bool has_kv_in_bytes() const;  // vLLM: given as such, beside any share of the device
};
inline constexpr std::size_t kEndLineMax = 400;
inline constexpr std::size_t kLogLineMax = 1 << 20;  // of a longer line the rest is not looked at

class ForeignLogReader {
 public:
  ForeignLogReader();
  ~ForeignLogReader();
  ForeignLogReader(const ForeignLogReader&) = delete;
  ForeignLogReader& operator=(const ForeignLogReader&) = delete;

  void line(std::string_view text);
  // Once, after the last line. Errors: Code::invalid where no launch of either server is in it,
  // naming what was looked for.
  Result<ForeignLog> finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The lines of a text.
Result<ForeignLog> parse_foreign_log(std::string_view text);

}  // namespace plimsoll
