// LogCase: a log together with what follows from it, for its rows, its window and its advice.
#pragma once

#include <optional>
#include <string>

#include "shared/memory/foreign_log/foreign_log.h"
#include "shared/memory/foreign_log/log_report.h"
#include "shared/memory/foreign_log/log_rows.h"

namespace plimsoll {

struct LogCase : LogFigures {
  LogCase(const ForeignLog& of_log, const LogHints& hints);

  const ForeignLog& log;
  std::string flag;  // "--mem-fraction-static"

  bool is_sglang() const { return log.server == ForeignServer::sglang; }
  std::string tokens_text(Bytes of_kv) const;  // ", about 1,375 tokens"
  std::string fraction_text() const;           // "0.88"
  std::string value_with_origin() const;       // "0.88 (auto)"; "(default)" where nothing says it
  // KV of the full context.
  std::optional<Bytes> one_request() const;
};

// Of three digits.
double floor3(double value);
double ceil3(double value);
double ratio(Bytes part, Bytes whole);

}  // namespace plimsoll
