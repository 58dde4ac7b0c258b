// LogLine: one line of another server's log: which rank says it, and figures within it.
//
// What SGLang calls GB and torch GiB are both 2^30 bytes. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "shared/base/units.h"

namespace plimsoll {

struct LogLine {
  std::string rank;       // "TP0", "DP1 TP3", "PP0 TP1 EP2"; empty where none is named
  std::string_view text;  // the whole line without colours
};

// "[2026-02-26 09:12:30 TP0] ...", "[gpu_id=1] ...", "[gpu=1]", "(Worker_TP0 pid=79) ...",
// "(VllmWorker rank=2 pid=249)", which is TP2; "(VllmWorkerProcess pid=5)" names none. DP and PP
// ranks are part of the name; a process id is not.
std::string rank_of_line(std::string_view line);

// Colour codes and a carriage return at the end, taken out; `storage` holds the text if any were.
std::string_view without_colours(std::string_view line, std::string& storage);

// The quantity behind `key`, and what follows it in the text: "avail mem=" finds 94.00 GB.
// A missing unit means `unit`; GB, GiB and G are 2^30, MB 2^20, KB 2^10, bytes 1.
std::optional<Bytes> bytes_behind(std::string_view text, std::string_view key, Bytes unit = kGiB);
// "#tokens: 159,215" and "max_total_num_tokens=159215".
std::optional<std::int64_t> count_behind(std::string_view text, std::string_view key);
std::optional<double> number_behind(std::string_view text, std::string_view key);

// The quantity right before `key`: "60.2 GiB for weight". A unit must be there.
std::optional<Bytes> bytes_before(std::string_view text, std::string_view key);
// "(EngineCore_DP0 pid=276) ...", within the head of a line.
std::optional<std::int64_t> pid_of_line(std::string_view line);

bool has(std::string_view text, std::string_view part);
// Not where the text quotes it: a traceback shows the source that says it. JSON quotes all.
bool says(std::string_view text, std::string_view part);

}  // namespace plimsoll
