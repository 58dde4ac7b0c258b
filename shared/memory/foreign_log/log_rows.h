// LogRows: the arithmetic of a log, of its tightest rank.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shared/memory/foreign_log/foreign_log.h"
#include "shared/memory/foreign_log/log_report.h"

namespace plimsoll {

// What everything else follows from; the least of all ranks, as SGLang takes it.
struct LogFigures {
  std::optional<double> kv_bytes_per_token;
  std::optional<Tokens> context;
  std::optional<Bytes> base;  // free before weights
  std::optional<Bytes> left;  // free after them
  std::optional<Bytes> kv;    // by the server's rule
  // Of the tightest rank; where it does not say it, the most, and the least, that others say.
  std::optional<Bytes> graphs;
  std::optional<Bytes> spare;
};

LogFigures figures_of(const ForeignLog& log, const LogHints& hints);
std::vector<LogRow> rows_of(const ForeignLog& log, const LogFigures& figures);

std::string gib_text(Bytes bytes);  // "10.43"
// ", about 1,375 tokens"; empty where it cannot be told.
std::string about_tokens(Bytes kv, std::optional<double> bytes_per_token);

}  // namespace plimsoll
