// explain_log(): what one log comes to.
#include <fmt/format.h>

#include "shared/memory/foreign_log/log_advice.h"
#include "shared/memory/foreign_log/log_case.h"
#include "shared/memory/foreign_log/log_report.h"
#include "shared/memory/foreign_log/log_rows.h"
#include "shared/memory/foreign_log/log_window.h"

namespace plimsoll {

LogExplanation explain_log(const ForeignLog& log, const std::string& label, const LogHints& hints) {
  LogExplanation out;
  out.title = fmt::format("{}: {}{}", label, foreign_server_name(log.server),
                          log.version.empty() ? "" : " " + log.version);
  if (log.ranks.size() > 1) out.title += fmt::format(", {} ranks", log.ranks.size());
  if (!log.model_type.empty()) out.title += ", " + log.model_type;
  const bool failed = log.end != ForeignEnd::served && log.end != ForeignEnd::unknown;
  out.outcome = fmt::format("{}{}", failed && log.end != ForeignEnd::other ? "failed: " : "",
                            foreign_end_text(log.end));
  if (failed && log.end_ranks > 1) {
    out.outcome += fmt::format(", said by {} ranks", log.end_ranks);
  } else if (log.oom && log.ranks.size() > 1 && !log.end_rank.empty()) {
    out.outcome += fmt::format(", on {}", log.end_rank);
  }
  if (log.launches > 1) {
    out.outcome += fmt::format(" (the last of {} launches in this file)", log.launches);
  }
  const LogCase c(log, hints);
  out.rows = rows_of(log, c);
  out.window = log_window(c);
  add_log_advice(c, out);
  return out;
}

}  // namespace plimsoll
