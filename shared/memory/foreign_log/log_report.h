// LogReport: what happened in a launch of SGLang or vLLM and what to change, on one screen.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shared/base/json.h"
#include "shared/memory/foreign_log/foreign_log.h"

namespace plimsoll {

// What the log does not say and somebody knows: of another log of the same model.
struct LogHints {
  std::optional<double> kv_bytes_per_token;
  std::optional<Tokens> context;
};

struct LogRow {
  std::string name;
  Bytes bytes = 0;
  std::string remark;  // the arithmetic
};

struct LogAdvice {
  std::string change;  // "raise --mem-fraction-static to 0.770 or more"
  std::string why;
};

// Of the fraction (SGLang) or the utilization (vLLM). Unset: it cannot be told.
struct FractionWindow {
  std::optional<double> any_kv;       // the smallest with any KV at all
  std::optional<double> one_request;  // the smallest that holds one request of the context
  std::optional<double> automatic;    // what the server's own rule would choose, about
  std::optional<double> most;         // beyond it captures, steps or neighbours find no memory
};

struct LogExplanation {
  std::string title;              // "x.log: SGLang, 8 ranks, KimiK25ForConditionalGeneration"
  std::string outcome;            // "failed: no memory for KV, said by 8 ranks"
  std::vector<LogRow> rows;       // the arithmetic, of the tightest rank
  std::vector<std::string> why;   // sentences
  std::vector<LogAdvice> advice;  // the likeliest to help first
  FractionWindow window;
};

LogExplanation explain_log(const ForeignLog& log, const std::string& label,
                           const LogHints& hints = {});

struct LogReportParts {
  bool arguments = true;
};
std::string log_report(const ForeignLog& log, const LogExplanation& explanation,
                       LogReportParts parts = {});
Json log_report_json(const ForeignLog& log, const LogExplanation& explanation);

}  // namespace plimsoll
