#include "worker/simulated_rank.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "kernels/simulated/fixed_tokens.h"
#include "shared/base/check.h"
#include "shared/memory/memory_terms.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kLoadPieces = 64;
constexpr std::int32_t kNothingSaid = -1;

// Rows that come from an arena, which cannot give more than the plan; others just take more.
bool is_in_arena(Term term) { return std::ranges::find(kArenaTerms, term) != kArenaTerms.end(); }

}  // namespace

SimulatedRank::SimulatedRank(Setup setup, Collective& collective)
    : StepRunner({.rows_max = setup.rows_max,
                  .logit_rows_max = setup.logit_rows_max,
                  .context_length = setup.context_length}),
      setup_(std::move(setup)),
      costs_(setup_.simulation.costs_of(setup_.plan.rank)),
      collective_(collective),
      device_(setup_.memory),
      arena_(Arena::without_memory(setup_.plan)) {
  if (setup_.kv_blocks > 0) kv_block_ = ceil_div(setup_.plan.bytes(Term::kv), setup_.kv_blocks);
}

Result<std::unique_ptr<SimulatedRank>> SimulatedRank::load(
    Setup setup, Collective& collective, const std::function<void(const LoadProgress&)>& progress) {
  std::unique_ptr<SimulatedRank> rank(new SimulatedRank(std::move(setup), collective));
  TRY(rank->take_phase(SimulatedPhase::start));
  TRY(rank->load_weights(progress));
  TRY(rank->take_rest());
  TRY(rank->take_phase(SimulatedPhase::loaded));
  return rank;
}

const SimulatedCost* SimulatedRank::cost_of(const std::string& term) const {
  const auto found = std::ranges::find(costs_, term, &SimulatedCost::term);
  return found == costs_.end() ? nullptr : &*found;
}

Bytes SimulatedRank::real_bytes(Term term) const {
  const SimulatedCost* cost = cost_of(term_name(term));
  return cost != nullptr ? cost->bytes : setup_.plan.bytes(term);
}

Status SimulatedRank::take(const std::string& term, Bytes bytes) {
  for (const PlanRow& row : setup_.plan.rows) {
    if (term == term_name(row.term) && is_in_arena(row.term)) {
      TRY(arena_.account(row.term, bytes, fmt::format("the simulated {}", term)));
      break;
    }
  }
  return device_.take(term, bytes);
}

Status SimulatedRank::load_weights(const std::function<void(const LoadProgress&)>& progress) {
  const Bytes total = real_bytes(Term::weights);
  const Bytes piece_bytes = total / kLoadPieces / kBufferAlignment * kBufferAlignment;
  Bytes done = 0;
  for (std::int64_t piece = 1; piece <= kLoadPieces; ++piece) {
    const Bytes until = piece == kLoadPieces ? total : piece_bytes * piece;
    TRY(take(term_name(Term::weights), until - done));
    done = until;
    if (piece == kLoadPieces / 2) TRY(take_phase(SimulatedPhase::loading));
    progress({.done = done, .total = total});
    if (setup_.simulation.load_time.count() > 0) {
      setup_.pause(Duration(setup_.simulation.load_time) / kLoadPieces);
    }
  }
  return {};
}

Status SimulatedRank::take_phase(SimulatedPhase phase) {
  for (const SimulatedCost& cost : costs_) {
    if (cost.phase != phase || cost.term == term_name(Term::weights)) continue;
    if (cost.term == kNeighbourTerm) {
      device_.take_by_neighbour(cost.bytes);
    } else {
      TRY(take(cost.term, cost.bytes));
    }
  }
  return {};
}

// Rows of the plan of which nothing else is known take what was planned. A margin is nobody's, and
// the process is what was once measured and had no row: here it is a cost by its own name.
Status SimulatedRank::take_rest() {
  for (const PlanRow& row : setup_.plan.rows) {
    const bool is_taken = row.term == Term::weights || row.term == Term::kv ||
                          row.term == Term::process || row.trust == Trust::margin ||
                          cost_of(term_name(row.term)) != nullptr;
    if (!is_taken) TRY(take(term_name(row.term), row.bytes));
  }
  return {};
}

Status SimulatedRank::take_kv(const KvRequest& request) {
  TRY(device_.take(term_name(Term::kv), request.blocks * kv_block_));
  if (collective_.rank() != 0) return {};
  const std::int64_t rows = setup_.logit_rows_max;
  logits_memory_ =
      TRY(MappedMemory::create({.bytes = rows * setup_.vocab * static_cast<Bytes>(sizeof(float)),
                                .huge_pages = false,
                                .purpose = "the simulated logits"}));
  logits_ = f32_view(reinterpret_cast<float*>(logits_memory_.bytes().data()), rows, setup_.vocab);
  said_.assign(static_cast<std::size_t>(rows), kNothingSaid);
  return {};
}

Result<TensorView> SimulatedRank::compute(const StepPlan& plan) {
  if (!std::exchange(has_stepped_, true)) TRY(take_phase(SimulatedPhase::first_step));
  if (collective_.rank() == 0 && setup_.simulation.step_time.count() > 0) {
    setup_.pause(setup_.simulation.step_time);
  }
  TRY(collective_.barrier());
  if (collective_.rank() != 0 || plan.logit_rows.empty()) return TensorView{};
  std::size_t sequence = 0;
  const auto rows = static_cast<std::int64_t>(plan.logit_rows.size());
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int32_t row = plan.logit_rows[static_cast<std::size_t>(i)];
    while (row >= plan.sequences[sequence].row + plan.sequences[sequence].tokens) ++sequence;
    const StepSequence& own = plan.sequences[sequence];
    std::int32_t& said = said_[static_cast<std::size_t>(i)];
    if (said != kNothingSaid) unsay_token(logits_, i, said);
    said = fixed_token(plan.ids[static_cast<std::size_t>(row)], own.position + row - own.row,
                       setup_.vocab);
    say_token(logits_, i, said);
  }
  return logits_.slice_rows(0, rows);
}

std::string SimulatedRank::description() const {
  return fmt::format("simulated, {}", format_bytes(device_.memory()));
}

Measured SimulatedRank::measure() const {
  Measured measured;
  measured.terms = device_.terms();
  measured.terms.erase(term_name(Term::kv));
  measured.source = "simulated device";
  measured.resident = device_.taken();
  measured.kv_committed = step_limits().kv_blocks * kv_block_;
  measured.kv_touched = kv_blocks_touched() * kv_block_;
  measured.free = device_.free();
  measured.neighbours = device_.neighbour();
  return measured;
}

Opened open_simulated(Bytes memory, const Simulation& simulation, const RankPlan& plan) {
  Opened opened{.context = plan.bytes(Term::context), .free = memory};
  for (const SimulatedCost& cost : simulation.costs_of(plan.rank)) {
    if (cost.term == term_name(Term::context)) {
      opened.context = cost.bytes;
    } else if (cost.phase == SimulatedPhase::start && cost.term == kNeighbourTerm) {
      opened.free = std::max<Bytes>(0, opened.free - cost.bytes);
    }
  }
  opened.free = std::max<Bytes>(0, opened.free - opened.context);
  return opened;
}

}  // namespace plimsoll
