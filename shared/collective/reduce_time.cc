#include "shared/collective/reduce_time.h"

#include <algorithm>

#include <fmt/format.h>

#include "shared/memory/memory_terms.h"

namespace plimsoll {
namespace {

constexpr double kBytesPerUs = 1000;  // of a GB/s
constexpr Bytes kSingleMax = 32 * kKiB;

// The story that this product is for: Kimi-K2.5 INT4 on 8 cards over PCIe at 38 tok/s with such a
// kernel. 26.3 ms a token less 5.5 ms of reading weights and launches, over 122 calls: 171 µs for
// 7 x 14,336 B and two barriers.
constexpr double kPullRate = 0.6 * kBytesPerUs;

// NCCL 2.28.9: base of a symmetric kernel, and what low latency packets take on the wire.
constexpr double kSymmetricLow = 4.5;
constexpr double kSymmetricOther = 7.8;
constexpr double kSymmetricLowNew = 8.5;  // from compute capability 10.0
constexpr double kSymmetricOtherNew = 19.5;
constexpr double kPacketCopies = 2;

// A kernel in a graph, the low end of 1 to 3 µs.
constexpr double kLaunchSaved = 1.0;

double share(std::int64_t ranks) {  // 2 (n - 1) / n
  return 2.0 * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
}

std::string rate_text(double bytes_per_us) {
  return fmt::format("{:.4g} GB/s", bytes_per_us / kBytesPerUs);
}

}  // namespace

ReduceTime one_shot(const LinkCost& link, std::int64_t ranks, Bytes bytes) {
  const double rate = bytes <= kSingleMax ? link.single : link.busy;
  const auto sent = static_cast<double>((ranks - 1) * bytes);
  return {.us = link.alpha + sent / rate,
          .algorithm = "one-shot",
          .formula = fmt::format("{:.4g} + {} x {} B / {}", link.alpha, ranks - 1, grouped(bytes),
                                 rate_text(rate))};
}

ReduceTime two_shot(const LinkCost& link, std::int64_t ranks, Bytes bytes) {
  return {.us = 2 * link.alpha + share(ranks) * static_cast<double>(bytes) / link.busy,
          .algorithm = "two-shot",
          .formula = fmt::format("2 x {:.4g} + 2 x {} / {} x {} B / {}", link.alpha, ranks - 1,
                                 ranks, grouped(bytes), rate_text(link.busy))};
}

ReduceTime best_shot(const LinkCost& link, std::int64_t ranks, Bytes bytes) {
  ReduceTime one = one_shot(link, ranks, bytes);
  ReduceTime two = two_shot(link, ranks, bytes);
  return two.us < one.us ? two : one;
}

ReduceTime ring(const RingCost& cost, std::int64_t ranks, Bytes bytes) {
  const auto size = static_cast<double>(bytes);
  if (cost.by_host) {
    return {.us = cost.staged_base + size / cost.staged_rate,
            .algorithm = "host memory",
            .formula = fmt::format("{:.4g} + {} B / {}", cost.staged_base, grouped(bytes),
                                   rate_text(cost.staged_rate))};
  }
  const auto time = [&](const RingProtocol& protocol) {
    return protocol.base + 2 * static_cast<double>(ranks - 1) * protocol.hop +
           protocol.copies * share(ranks) * size / cost.rate;
  };
  const bool is_low = time(cost.low_latency) <= time(cost.simple);
  const RingProtocol& protocol = is_low ? cost.low_latency : cost.simple;
  return {.us = time(protocol),
          .algorithm = is_low ? "ring, low latency" : "ring, simple",
          .formula = fmt::format("{:.4g} + {} x {:.4g} + {} x 2 x {} / {} x {} B / {}",
                                 protocol.base, 2 * (ranks - 1), protocol.hop, protocol.copies,
                                 ranks - 1, ranks, grouped(bytes), rate_text(cost.rate))};
}

Bytes shot_crossover(const LinkCost& link, std::int64_t ranks) {
  if (ranks <= 2) return 0;
  const auto n = static_cast<double>(ranks);
  return static_cast<Bytes>(link.alpha * link.busy / ((n - 1) * (1 - 2 / n)));
}

ReduceTime many_block_pull(const LinkCost& link, std::int64_t ranks, Bytes bytes) {
  const auto read = static_cast<double>((ranks - 1) * bytes);
  return {.us = 2 * link.alpha + read / kPullRate,
          .algorithm = "pull from all at once",
          .formula = fmt::format("2 x {:.4g} + {} x {} B / {}", link.alpha, ranks - 1,
                                 grouped(bytes), rate_text(kPullRate))};
}

ReduceTime symmetric(const LinkCost& link, std::int64_t ranks, Bytes bytes, int compute_major) {
  const bool is_new = compute_major >= 10;
  const double low = is_new ? kSymmetricLowNew : kSymmetricLow;
  const double other = is_new ? kSymmetricOtherNew : kSymmetricOther;
  const double rate = bytes <= kSingleMax ? link.single : link.busy;
  const auto size = static_cast<double>(bytes);
  const double packets = low + kPacketCopies * static_cast<double>(ranks - 1) * size / rate;
  const double halves = other + share(ranks) * size / link.busy;
  if (packets <= halves) {
    return {.us = packets,
            .algorithm = "one-shot, low latency",
            .formula = fmt::format("{:.4g} + {} x {} x {} B / {}", low, kPacketCopies, ranks - 1,
                                   grouped(bytes), rate_text(rate))};
  }
  return {.us = halves,
          .algorithm = "two-shot",
          .formula = fmt::format("{:.4g} + 2 x {} / {} x {} B / {}", other, ranks - 1, ranks,
                                 grouped(bytes), rate_text(link.busy))};
}

ReduceTime fused_shot(const LinkCost& link, std::int64_t ranks, Bytes bytes) {
  ReduceTime time = one_shot(link, ranks, bytes);
  time.us -= kLaunchSaved;
  if (ReduceTime two = two_shot(link, ranks, bytes); two.us < time.us) return two;
  time.algorithm = "one-shot with the norm";
  time.formula += fmt::format(" - {:.4g} (the norm's launch)", kLaunchSaved);
  return time;
}

}  // namespace plimsoll
