#include "tools/cli/render.h"

#include <algorithm>
#include <ostream>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "shared/base/units.h"
#include "tools/cli/json_view.h"

namespace plimsoll {
namespace {

constexpr int kBarCells = 24;

struct Share {
  Bytes done = 0;
  Bytes total = 0;
  double value() const {
    return total > 0 ? std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0)
                     : 0.0;
  }
};

Share share_of(const Json& json) {
  return {int_at(json, {"progress", "done"}), int_at(json, {"progress", "total"})};
}

std::string percent(const Share& share) { return fmt::format("{:.0f} %", 100 * share.value()); }

std::string span_text(double total_seconds) {
  const auto all = static_cast<std::int64_t>(total_seconds);
  if (all < 60) return fmt::format("{} s", all);
  if (all < 3600) return fmt::format("{} min {} s", all / 60, all % 60);
  return fmt::format("{} h {} min", all / 3600, all / 60 % 60);
}

std::string time_text(std::int64_t unix_time) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(static_cast<std::time_t>(unix_time)));
}

std::string restart_text(std::int64_t restarts) {
  if (restarts <= 0) return "";
  return restarts == 1 ? "  (restarted once)" : fmt::format("  (restarted {} times)", restarts);
}

std::string rank_line(const Json& rank) {
  std::string state = text_at(rank, {"state"}, "?");
  if (state == "loading") state += " " + percent(share_of(rank));
  const std::int64_t pid = int_at(rank, {"pid"});
  const std::int64_t restarts = int_at(rank, {"restarts"});
  const std::string device = text_at(rank, {"device"});
  return fmt::format("  {:<5} {:<8} {:<14} {:>11}  {}{}\n", int_at(rank, {"rank"}),
                     pid > 0 ? std::to_string(pid) : "-", state,
                     format_bytes(int_at(rank, {"memory_bytes"})), device.empty() ? "-" : device,
                     restart_text(restarts));
}

// Of each rank: everything but KV as planned and measured, then KV as planned, committed and
// touched.
std::string memory_text(const Json& replica) {
  std::string text;
  for (const Json& rank : items_at(replica, {"ranks"})) {
    const Json* measured = json_at(rank, {"memory", "measured"});
    if (measured == nullptr || !measured->is_integer()) continue;
    const auto bytes = [&](std::initializer_list<std::string_view> path) {
      return format_bytes(int_at(rank, path));
    };
    text += fmt::format("  {:<5} {:>11} {:>11} {:>13} {:>11} {:>11}  {}\n", int_at(rank, {"rank"}),
                        bytes({"memory", "planned"}), format_bytes(measured->as_int()),
                        bytes({"memory", "kv", "planned"}), bytes({"memory", "kv", "committed"}),
                        bytes({"memory", "kv", "touched"}), text_at(rank, {"memory", "source"}));
  }
  if (text.empty()) return text;
  return fmt::format("  {:<5} {:>11} {:>11} {:>13} {:>11} {:>11}  {}\n", "rank", "planned",
                     "measured", "KV: planned", "committed", "touched", "measured by") +
         text;
}

std::string drift_text(const Json& status) {
  std::string text;
  for (const Json& drift : items_at(status, {"drift"})) {
    text +=
        fmt::format("drift: {}: planned {}, measured {} on {} ranks\n", text_at(drift, {"term"}),
                    format_bytes(int_at(drift, {"planned"})),
                    format_bytes(int_at(drift, {"measured"})), items_at(drift, {"ranks"}).size());
  }
  return text;
}

std::string replica_text(const Json& replica) {
  std::string text = fmt::format(
      "replica {}: {}, {} running, {} waiting, {:.1f} tokens/s, KV {} of {} blocks",
      int_at(replica, {"replica"}), text_at(replica, {"state"}, "?"), int_at(replica, {"running"}),
      int_at(replica, {"waiting"}), number_at(replica, {"tokens_per_second"}),
      int_at(replica, {"kv", "used"}), int_at(replica, {"kv", "blocks"}));
  if (json_at(replica, {"retry_in_s"}) != nullptr) {
    text += fmt::format(", next try in {:.1f} s", number_at(replica, {"retry_in_s"}));
  }
  text += fmt::format("\n  {:<5} {:<8} {:<14} {:>11}  {}\n", "rank", "pid", "state", "memory",
                      "device");
  for (const Json& rank : items_at(replica, {"ranks"})) text += rank_line(rank);
  return text + memory_text(replica);
}

std::string router_text(const Json& status) {
  const Json* router = status.find("router");
  if (router == nullptr || !router->is_object()) return "";
  return fmt::format("router: pid {}, {}; {} open, {} queued, {} answered, {} failed\n",
                     int_at(*router, {"pid"}), text_at(*router, {"state"}, "?"),
                     int_at(*router, {"open_requests"}), int_at(*router, {"queued_requests"}),
                     int_at(*router, {"requests_total"}), int_at(*router, {"failed_total"}));
}

std::string fault_text(const Json& status) {
  const Json* fault = status.find("last_fault");
  if (fault == nullptr || !fault->is_object()) return "last fault: none\n";
  const bool has_replica =
      json_at(*fault, {"replica"}) != nullptr && !fault->find("replica")->is_null();
  const bool has_rank = json_at(*fault, {"rank"}) != nullptr && !fault->find("rank")->is_null();
  std::string where;
  if (has_replica) where += fmt::format(", replica {}", int_at(*fault, {"replica"}));
  if (has_rank) where += fmt::format(", rank {}", int_at(*fault, {"rank"}));
  return fmt::format("last fault: {}{}: {}\n", time_text(int_at(*fault, {"time"})), where,
                     text_at(*fault, {"message"}));
}

std::string quarantine_text(const Json& status) {
  std::string text;
  for (const Json& device : items_at(status, {"quarantine"})) {
    const std::string name = text_at(device, {"name"});
    text += fmt::format("quarantine: {}{}: {}, since {}\n", text_at(device, {"device"}, "?"),
                        name.empty() ? "" : fmt::format(" ({})", name), text_at(device, {"reason"}),
                        time_text(int_at(device, {"since"})));
  }
  return text;
}

std::string head_text(const Json& status) {
  const std::string url = text_at(status, {"url"});
  const std::string reason = text_at(status, {"reason"});
  const std::string operation = text_at(status, {"operation"});
  const double serving = number_at(status, {"serving_s"});
  std::string text = fmt::format("plimsoll {}: {}", text_at(status, {"version"}, "?"),
                                 text_at(status, {"state"}, "?"));
  if (!url.empty()) text += fmt::format(" at {}", url);
  if (serving > 0) text += fmt::format(" for {}", span_text(serving));
  if (!operation.empty()) text += fmt::format(" ({} under way)", operation);
  text += "\n";
  if (!reason.empty()) text += fmt::format("reason: {}\n", reason);
  if (json_at(status, {"model"}) != nullptr) {
    text += fmt::format("model: {}, context {} tokens, generation {}\n", text_at(status, {"model"}),
                        int_at(status, {"context_length"}), int_at(status, {"generation"}));
  }
  return text;
}

}  // namespace

std::string render_status(const Json& status) {
  std::string text = head_text(status);
  const Share loaded = share_of(status);
  if (text_at(status, {"state"}) == "loading" && loaded.total > 0) {
    text += render_progress(status) + "\n";
  }
  for (const Json& replica : items_at(status, {"replicas"})) text += "\n" + replica_text(replica);
  if (!items_at(status, {"replicas"}).empty()) text += "\n";
  text += router_text(status);
  if (json_at(status, {"queue"}) != nullptr) {
    text +=
        fmt::format("queue: {} waiting, {} running, {:.1f} tokens/s\n", int_at(status, {"queue"}),
                    int_at(status, {"running"}), number_at(status, {"tokens_per_second"}));
  }
  text += drift_text(status);
  text += quarantine_text(status);
  text += fault_text(status);
  return text;
}

std::string render_last_known(const Json& status) {
  std::string text = fmt::format("last known, at {}:\n", time_text(int_at(status, {"time"})));
  return text + render_status(status);
}

std::string render_changes(const Json& reply_result) {
  std::string text;
  for (const Json& change : items_at(reply_result, {"changes"})) {
    text +=
        fmt::format("  {}: {} -> {} ({})\n", text_at(change, {"name"}), text_at(change, {"before"}),
                    text_at(change, {"after"}), text_at(change, {"effect"}));
  }
  return text;
}

std::string render_progress(const Json& status) {
  std::string state = text_at(status, {"state"}, "?");
  const Share share = share_of(status);
  if (state != "loading" || share.total <= 0) return state;
  return fmt::format("{} {}, {} of {}", state, percent(share), format_bytes(share.done),
                     format_bytes(share.total));
}

std::string render_curl(const std::string& url) {
  return fmt::format(
      "curl {}/v1/chat/completions -H 'Content-Type: application/json' \\\n"
      "  -d '{{\"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}], \"max_tokens\": "
      "64}}'",
      url);
}

ProgressView::~ProgressView() { clear(); }

void ProgressView::clear() {
  if (is_drawn_) console_.err << "\r\033[K" << std::flush;
  is_drawn_ = false;
}

void ProgressView::show(const Json& status) {
  const Share share = share_of(status);
  const std::string text = render_progress(status);
  if (!console_.is_terminal) {
    const std::string step =
        fmt::format("{} {}", text_at(status, {"state"}), static_cast<int>(share.value() * 4));
    if (step != last_) console_.err << text << std::endl;
    last_ = step;
    return;
  }
  const int filled = static_cast<int>(share.value() * kBarCells);
  console_.err << "\r\033[K[" << std::string(static_cast<std::size_t>(filled), '#')
               << std::string(static_cast<std::size_t>(kBarCells - filled), '.') << "] " << text
               << std::flush;
  is_drawn_ = true;
}

}  // namespace plimsoll
