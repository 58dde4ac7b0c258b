// LaunchState: the launch that is being read, shared by the readers of both servers' lines.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "shared/memory/foreign_log/foreign_log.h"
#include "shared/memory/foreign_log/log_line.h"

namespace plimsoll {

// Where a rank is in its start.
enum class RankPhase { starting, loading, loaded, sized, capturing, captured };

class LaunchState {
 public:
  explicit LaunchState(ForeignServer server) { log_.server = server; }

  // Arguments are printed once a launch: what was read so far is of an earlier one.
  void begin_launch();
  void count_line() { ++log_.lines; }

  ForeignLog& log() { return log_; }
  const ForeignLog& log() const { return log_; }
  ForeignRank& rank(std::string_view name);
  RankPhase& phase(std::string_view rank_name);
  RankPhase furthest() const;
  // What one says of all.
  void reach(RankPhase phase);
  void set_arg(std::string_view written, std::string value, ArgOrigin origin);
  // Said before the arguments of the launch that it belongs to.
  void set_version(std::string version);
  void note(std::string_view text);
  // A flag of a command line, which stands before the launch that it starts or behind its
  // arguments.
  void give(std::string_view flag);
  void become_ready();
  // Flags of a command line count as given, all other arguments as not; without one nothing
  // changes.
  void apply_given();

  // The first cause counts; the same cause of another rank is counted. A failure that is not about
  // memory gives way to one that is.
  void fail(ForeignEnd end, const LogLine& line);
  // An allocation that failed: by what the rank was doing, and by who holds the memory.
  void fail_of_oom(const OomLine& oom, const LogLine& line);
  // vLLM's engine cores and its front end speak for workers that name themselves: they are no
  // ranks of their own.
  void fold_speakers();

  std::int64_t recognised = 0;  // lines of this server
  std::set<std::string, std::less<>> engines =
      {};  // of this launch, that have said their configuration

 private:
  OomProcess process_of(const LogLine& line) const;

  ForeignLog log_;
  std::string version_next_;
  std::map<std::string, RankPhase, std::less<>> phases_;
  std::set<std::string, std::less<>> failed_ranks_;
  std::set<std::string, std::less<>> given_;       // of this launch
  std::set<std::string, std::less<>> given_next_;  // of the one whose arguments come next
};

// One line; true where it is this server's.
bool read_sglang_line(LaunchState& state, const LogLine& line);
bool read_vllm_line(LaunchState& state, const LogLine& line);
}  // namespace plimsoll
