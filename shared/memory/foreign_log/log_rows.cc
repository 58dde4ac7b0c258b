#include "shared/memory/foreign_log/log_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "shared/memory/foreign_log/sglang_rules.h"
#include "shared/memory/memory_terms.h"

namespace plimsoll {
namespace {

constexpr Bytes kGapShown = 32 * kMiB;  // figures are of two digits

class Rows {
 public:
  Rows(const ForeignLog& log, const LogFigures& figures) : log_(log), figures_(figures) {}

  std::vector<LogRow> of_sglang() {
    const ForeignRank* rank = log_.tightest();
    if (rank == nullptr) return {};
    row("free before weights", figures_.base);
    minus("weights", rank->weights);
    const bool draft_is_first = !draft_came_after(*rank);
    if (draft_is_first) minus("draft weights", rank->draft);
    row("free after weights", figures_.left);
    if (figures_.base && figures_.left && log_.fraction) {
      const Bytes kept = *figures_.left - sglang_kv(*figures_.base, *figures_.left, *log_.fraction);
      row("kept back", -kept,
          fmt::format("{} x (1 - {}): what graphs and steps take", gib_text(*figures_.base),
                      fraction_text()));
    }
    kv_rows(*rank);
    if (!draft_is_first) minus("draft weights", rank->draft, "loaded after KV");
    row("graphs", figures_.graphs);
    row("free at the end", figures_.spare);
    return std::move(rows_);
  }

  std::vector<LogRow> of_vllm() {
    const ForeignRank* rank = log_.tightest();
    row("device", log_.total);
    row("free at the start", log_.free_at_start);
    const bool is_known = log_.total && log_.fraction;
    if (log_.budget || is_known) {
      const double exact = is_known ? static_cast<double>(*log_.total) * *log_.fraction : 0;
      row("budget", log_.budget.value_or(static_cast<Bytes>(std::llround(exact))),
          is_known ? fmt::format("{} x {}", gib_text(*log_.total), fraction_text()) : "");
    }
    if (rank != nullptr) minus("weights", rank->weights);
    if (rank != nullptr) minus("draft weights", rank->draft);
    minus("outside PyTorch", log_.other_use);
    minus("trial step", log_.activation);
    minus("graphs, estimated", log_.graphs_estimate);
    unlogged();
    row(log_.has_kv_in_bytes() ? "KV, as given" : "left for KV", figures_.kv,
        log_.kv_tokens && *log_.kv_tokens > 0 ? counted(*log_.kv_tokens, "token") : "");
    row("graphs", figures_.graphs);
    row("one request needs", log_.kv_needed, log_.context ? counted(*log_.context, "token") : "");
    return std::move(rows_);
  }

 private:
  void row(std::string name, std::optional<Bytes> bytes, std::string remark = "") {
    if (bytes) rows_.push_back({std::move(name), *bytes, std::move(remark)});
  }
  void minus(std::string name, std::optional<Bytes> bytes, std::string remark = "") {
    if (bytes) row(std::move(name), -*bytes, std::move(remark));
  }
  // The newer engine says what is left and not all that it took off.
  void unlogged() {
    if (log_.activation || !figures_.kv || log_.has_kv_in_bytes()) return;
    const auto budget = std::ranges::find(rows_, "budget", &LogRow::name);
    if (budget == rows_.end()) return;
    Bytes left = 0;
    for (auto it = budget; it != rows_.end(); ++it) left += it->bytes;
    const Bytes gap = left - *figures_.kv;
    if (gap > kGapShown) {
      row("not in the log", -gap, "trial step and what is outside PyTorch, by difference");
    }
  }
  std::string fraction_text() const {
    return log_.fraction ? fmt::format("{}", *log_.fraction) : "?";
  }

  // What is left is then that after the first model alone.
  bool draft_came_after(const ForeignRank& rank) const {
    if (!rank.draft || !rank.weights || !figures_.base || !figures_.left) return false;
    const Bytes unexplained = *figures_.base - *rank.weights - *figures_.left;
    return std::abs(unexplained) < std::abs(unexplained - *rank.draft);
  }

  void kv_rows(const ForeignRank& rank) {
    const auto tokens = rank.kv_tokens ? rank.kv_tokens : log_.kv_tokens;
    const bool is_held = tokens && *tokens > 0 && log_.end != ForeignEnd::no_kv;
    if (!figures_.kv || !rank.kv || *rank.kv <= 0 || log_.end == ForeignEnd::no_kv) {
      row("left for KV", figures_.kv,
          is_held ? counted(*tokens, "token")
                  : about_tokens(figures_.kv.value_or(0), figures_.kv_bytes_per_token));
      return;
    }
    row("left for KV", figures_.kv);
    minus("states", rank.state, "of recurrent layers");
    minus("reserved", rank.reserved, "for multimodal buffers");
    std::string remark = tokens ? counted(*tokens, "token") : "";
    if (tokens && figures_.kv_bytes_per_token) {
      remark +=
          fmt::format(", about {} B a token", grouped(std::llround(*figures_.kv_bytes_per_token)));
    }
    row("KV allocated", rank.kv, std::move(remark));
  }

  const ForeignLog& log_;
  const LogFigures& figures_;
  std::vector<LogRow> rows_;
};

}  // namespace

LogFigures figures_of(const ForeignLog& log, const LogHints& hints) {
  LogFigures figures;
  figures.kv_bytes_per_token = log.kv_bytes_per_token();
  if (!figures.kv_bytes_per_token) figures.kv_bytes_per_token = hints.kv_bytes_per_token;
  figures.context = log.context ? log.context : hints.context;
  const auto lessen = [](std::optional<Bytes>& least, const std::optional<Bytes>& value) {
    if (value && (!least || *value < *least)) least = value;
  };
  for (const ForeignRank& rank : log.ranks) {
    lessen(figures.base, rank.base);
    lessen(figures.left, rank.left);
  }
  figures.kv = log.kv_rule();
  for (const ForeignRank& rank : log.ranks) {
    if (rank.graphs) figures.graphs = std::max(figures.graphs.value_or(0), *rank.graphs);
    lessen(figures.spare, rank.spare);
  }
  if (const ForeignRank* rank = log.tightest()) {
    if (rank->graphs) figures.graphs = rank->graphs;
    if (rank->spare) figures.spare = rank->spare;
  }
  return figures;
}

std::vector<LogRow> rows_of(const ForeignLog& log, const LogFigures& figures) {
  Rows rows(log, figures);
  return log.server == ForeignServer::sglang ? rows.of_sglang() : rows.of_vllm();
}

std::string gib_text(Bytes bytes) {
  return fmt::format("{:.2f}", static_cast<double>(bytes) / static_cast<double>(kGiB));
}

std::string about_tokens(Bytes kv, std::optional<double> bytes_per_token) {
  if (!bytes_per_token || kv <= 0) return "";
  const double tokens = static_cast<double>(kv) / *bytes_per_token;
  return fmt::format(", about {} tokens", grouped(static_cast<std::int64_t>(tokens)));
}

}  // namespace plimsoll
