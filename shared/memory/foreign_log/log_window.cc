#include "shared/memory/foreign_log/log_window.h"

#include <algorithm>

#include "shared/memory/foreign_log/sglang_rules.h"

namespace plimsoll {
namespace {

FractionWindow sglang_window(const LogCase& c) {
  FractionWindow window;
  if (!c.base || !c.left) return window;
  const Bytes beside = c.log.beside_kv();
  window.any_kv = sglang_fraction_for(*c.base, *c.left, beside + 1);
  if (const auto needed = c.one_request()) {
    window.one_request = sglang_fraction_for(*c.base, *c.left, beside + *needed);
  }
  if (const auto choice = sglang_choice(c.log)) window.automatic = choice->fraction;
  if (c.log.fraction && c.spare && c.log.became_ready) {
    window.most = floor3(std::min(1.0, *c.log.fraction + ratio(*c.spare, *c.base)));
  }
  return window;
}

FractionWindow vllm_window(const LogCase& c) {
  FractionWindow window;
  const std::optional<Bytes> total = c.log.total;
  if (total && c.log.free_at_start && *total > 0 && !c.log.counts_others) {
    window.most = floor3(ratio(*c.log.free_at_start, *total));
  }
  if (c.log.has_kv_in_bytes()) return window;  // KV is not of the share
  if (!total || !c.log.fraction || !c.kv || *total <= 0) return window;
  window.any_kv = ceil3(*c.log.fraction - ratio(*c.kv - 1, *total));
  if (const auto needed = c.one_request()) {
    window.one_request = ceil3(*c.log.fraction + ratio(*needed - *c.kv, *total));
  }
  return window;
}

}  // namespace

FractionWindow log_window(const LogCase& c) {
  return c.is_sglang() ? sglang_window(c) : vllm_window(c);
}

}  // namespace plimsoll
