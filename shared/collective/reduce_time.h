// ReduceTime: how long an all-reduce of so many bytes takes by each algorithm: formulas of
// α-β models, with their numbers in words. Pure.
//
// n ranks, each with `bytes` of the same message. Results are µs.
#pragma once

#include <cstdint>
#include <string>

#include "shared/base/units.h"
#include "shared/collective/link_cost.h"

namespace plimsoll {

struct ReduceTime {
  double us = 0;
  std::string algorithm = {};  // "one-shot", "ring, low latency"
  std::string formula = {};    // "3.5 + 7 x 14,336 B / 55.0 GB/s"
};

// Each writes all of its message to each other: α + (n - 1) S / β. β is that of one link up to
// 32 KiB, and what each has when all talk beyond.
ReduceTime one_shot(const LinkCost& link, std::int64_t ranks, Bytes bytes);
// Each sums one n-th and hands it back: 2 α + 2 (n - 1) / n S / β.
ReduceTime two_shot(const LinkCost& link, std::int64_t ranks, Bytes bytes);
// The faster of the two.
ReduceTime best_shot(const LinkCost& link, std::int64_t ranks, Bytes bytes);
ReduceTime ring(const RingCost& cost, std::int64_t ranks, Bytes bytes);
// Message size from which two-shot wins at one rate β = `link.busy`: α β / ((n - 1) (1 - 2 / n)).
// 0: never (two ranks).
Bytes shot_crossover(const LinkCost& link, std::int64_t ranks);

// What other servers' custom all-reduce does on PCIe beyond two cards: every rank reads from all at
// once, from many blocks, through the host bridge, between two barriers.
ReduceTime many_block_pull(const LinkCost& link, std::int64_t ranks, Bytes bytes);
// NCCL's kernels on symmetric windows, by compute capability: its own model of bases.
ReduceTime symmetric(const LinkCost& link, std::int64_t ranks, Bytes bytes, int compute_major);
// One-shot that also adds the residual and normalises, one launch less; long messages in two shots.
ReduceTime fused_shot(const LinkCost& link, std::int64_t ranks, Bytes bytes);

}  // namespace plimsoll
