#include "worker/schedule/scheduler.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "kernels/backend.h"
#include "shared/base/check.h"
#include "worker/schedule/step_budget.h"

namespace plimsoll {
namespace {

// Blocks that stay free when a sequence is admitted beside others: one for each that runs, so that
// the newcomer is not preempted within the next kKvBlockTokens steps, and a hundredth of all.
Blocks watermark(Blocks total, std::int64_t running) {
  return std::max<Blocks>(running, ceil_div(total, 100));
}

// Rows of prompts with which a step is about as efficient as with more, on CPUs; and the part of a
// budget that is, where a device takes more at a time.
constexpr Tokens kRowsEnough = 128;
constexpr Tokens kBudgetShare = 4;
// A budget aims below the longest step by about as much.
constexpr Tokens kIntervalShare = 4;

Tokens kv_tokens_most(Tokens tokens_max, bool samples) {
  // The last token is never fed back.
  return samples ? tokens_max - 1 : tokens_max;
}

}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits)
    : limits_(limits),
      cache_({.blocks = limits.step.kv_blocks,
              .table_blocks_max = limits.step.table_blocks_max,
              .keep = limits.prefix_cache}),
      plan_(make_step_plan(limits.step)) {
  // So that each running sequence can have a row in every step: nobody starves.
  CHECK(limits.step.sequences_max > 0);
  CHECK(limits.step.rows_max >= limits.step.sequences_max);
  CHECK(limits.step.logit_rows_max >= limits.step.sequences_max);
  running_.reserve(static_cast<std::size_t>(limits.step.sequences_max));
  entries_.reserve(static_cast<std::size_t>(limits.step.sequences_max));
}

Status Scheduler::check_ids(std::span<const std::int64_t> ids, const char* where) const {
  for (const std::int64_t token : ids) {
    if (token >= 0 && token < limits_.vocab) continue;
    return invalid(fmt::format("the {} has token {}; this model's are 0 to {}", where, token,
                               limits_.vocab - 1));
  }
  return {};
}

Status Scheduler::check(std::span<const std::int64_t> prompt, const Sampling& sampling) const {
  const auto length = static_cast<Tokens>(prompt.size());
  if (prompt.empty()) return invalid("the prompt has no tokens; it needs at least one");
  TRY(check_ids(prompt, "prompt"));
  if (sampling.max_tokens < 0) {
    return invalid(fmt::format("max_tokens is {}; expected 0 or more", sampling.max_tokens));
  }
  const Tokens room = sampling.max_tokens > 0 ? 1 : 0;
  if (length + room > limits_.context_length) {
    return invalid(fmt::format(
        "the prompt has {} tokens and the context length is {}; shorten the prompt to {} or start "
        "with a longer --context-length",
        length, limits_.context_length, limits_.context_length - room));
  }
  const Tokens most = std::min(length + sampling.max_tokens, limits_.context_length);
  const Blocks needed = BlockTable::blocks_for(kv_tokens_most(most, room > 0));
  if (needed > cache_.total()) {
    const Tokens fits = cache_.total() * kKvBlockTokens + room - length;
    return invalid(fmt::format(
        "{} prompt tokens and up to {} new ones need {} KV blocks of {} tokens, and there are {}; "
        "{}",
        length, most - length, needed, kKvBlockTokens, cache_.total(),
        fits >= room ? fmt::format("max_tokens of at most {} fits", fits)
                     : "the prompt alone is too long"));
  }
  return {};
}

Result<Scheduler::Added> Scheduler::add(std::span<const std::int64_t> prompt,
                                        const Sampling& sampling,
                                        const Continuation& continuation) {
  CHECK(!step_under_way_);
  TRY(check(prompt, sampling));
  TRY(check_ids(continuation.emitted, "answer so far"));
  auto sequence = std::make_unique<Sequence>();
  sequence->sampling = sampling;
  sequence->prompt_tokens = static_cast<Tokens>(prompt.size());
  sequence->tokens_max =
      std::min(sequence->prompt_tokens + sampling.max_tokens, limits_.context_length);
  for (const auto ids : {prompt, continuation.emitted}) {
    for (const std::int64_t id : ids) sequence->tokens.push_back(static_cast<std::int32_t>(id));
  }
  sequence->rows_reported =
      std::clamp<Tokens>(continuation.prompt_reported, 0, sequence->prompt_tokens - 1);
  const bool nothing_asked = !sequence->samples() && !sampling.prompt_logprobs;
  const bool all_emitted = sequence->samples() && sequence->size() >= sequence->tokens_max;
  if (nothing_asked || all_emitted || sequence->target() == 0) return Added{.id = 0, .done = true};
  if (waiting() >= limits_.waiting_max) {
    return unavailable(
        fmt::format("{} requests wait for this replica already; try again later", waiting()));
  }
  sequence->id = next_id_++;
  waiting_.push_back(std::move(sequence));
  return Added{.id = waiting_.back()->id, .done = false};
}

bool Scheduler::cancel(std::uint64_t id) {
  CHECK(!step_under_way_);
  const auto matches = [id](const Owned& sequence) { return sequence->id == id; };
  if (const auto found = std::ranges::find_if(running_, matches); found != running_.end()) {
    cache_.release((*found)->blocks);
    running_.erase(found);
    return true;
  }
  const auto found = std::ranges::find_if(waiting_, matches);
  if (found == waiting_.end()) return false;
  waiting_.erase(found);
  return true;
}

void Scheduler::begin_step() {
  CHECK(!step_under_way_);
  plan_.clear();
  entries_.clear();
  preempted_in_step_ = false;
  prompt_rows_ = 0;
}

const StepPlan& Scheduler::plan_step(Tokens budget) {
  begin_step();
  plan_decodes();
  const Tokens decoding = plan_.rows();
  const Tokens interval = budget + budget / kIntervalShare;
  const Tokens due = std::min(budget, interval - rows_since_decode_);
  const Tokens enough = std::max(kRowsEnough, budget / kBudgetShare);
  Room room{
      .left = std::min(std::max(due - decoding, kStepRowsMin), limits_.step.rows_max - decoding),
      .enough = enough};
  plan_prefills(room);
  admit(room);
  prompt_rows_ = plan_.rows() - decoding;
  if (can_hold(static_cast<std::size_t>(decoding), interval, enough)) {
    drop_decodes(static_cast<std::size_t>(decoding));
    rows_since_decode_ += std::max(prompt_rows_, enough);  // fewer rows take about as long
  } else {
    rows_since_decode_ = 0;
  }
  step_under_way_ = !plan_.empty();
  may_decode_on_ = is_decode_of_all();
  return plan_;
}

// A first token is no part of it: whoever asked for it is waiting.
bool Scheduler::is_decode_of_all() const {
  return entries_.size() == running_.size() &&
         std::ranges::all_of(entries_, [](const StepEntry& entry) {
           return entry.rows == 1 && entry.samples && entry.sequence->generated() > 0;
         });
}

const StepPlan* Scheduler::plan_next_decode() {
  begin_step();
  if (!may_decode_on_) return nullptr;
  for (const Owned& sequence : running_) {
    if (!cache_.grow(sequence->blocks, sequence->target())) return nullptr;
  }
  for (const Owned& sequence : running_) add_entry(*sequence, 1);
  step_under_way_ = true;
  return &plan_;
}

void Scheduler::plan_decodes() {
  for (std::size_t i = 0; i < running_.size(); ++i) {
    const Sequence& sequence = *running_[i];
    if (sequence.remaining() != 1 || plan_.rows() == limits_.step.rows_max) continue;
    if (take_blocks_for_next_token(i)) add_entry(sequence, 1);
  }
}

// False where the sequence itself was preempted.
bool Scheduler::take_blocks_for_next_token(std::size_t index) {
  Sequence& sequence = *running_[index];
  while (!cache_.grow(sequence.blocks, sequence.target())) {
    // Alone it has room for all of its tokens: add() saw to that.
    CHECK(running_.size() > 1);
    preempt_youngest();
    if (index == running_.size()) return false;
  }
  return true;
}

void Scheduler::preempt_youngest() {
  Owned sequence = std::move(running_.back());
  running_.pop_back();
  cache_.release(sequence->blocks);
  sequence->computed = 0;
  waiting_.push_front(std::move(sequence));
  preempted_in_step_ = true;
  ++preemptions_;
}

void Scheduler::plan_prefills(Room& room) {
  for (const Owned& sequence : running_) {
    if (room.left == 0) return;
    if (sequence->remaining() > 1) add_prompt_rows(*sequence, sequence->remaining(), room);
  }
}

void Scheduler::add_prompt_rows(const Sequence& sequence, Tokens rows, Room& room) {
  const Tokens added = add_entry(sequence, std::min(rows, room.left));
  room.left -= added;
  room.enough -= std::min(added, room.enough);
  if (added == sequence.remaining() && room.enough == 0) room.left = 0;
}

// Whether another prompt like these fits before answers have to go on. A prompt's last row is none.
bool Scheduler::can_hold(std::size_t decodes, Tokens interval, Tokens enough) const {
  const Tokens next = std::max(prompt_rows_, enough);
  return decodes > 0 && prompt_rows_ > 0 && rows_since_decode_ + plan_.rows() + next <= interval &&
         std::ranges::all_of(std::span(entries_).first(decodes), [](const StepEntry& entry) {
           return entry.sequence->generated() > 0;
         });
}

// They are the step's first rows; their blocks are theirs.
void Scheduler::drop_decodes(std::size_t decodes) {
  const auto rows = static_cast<std::int32_t>(decodes);
  const std::int64_t logits = entries_[decodes].logits_begin;
  const std::int32_t blocks = plan_.sequences[decodes].blocks_begin;
  plan_.ids.erase(plan_.ids.begin(), plan_.ids.begin() + rows);
  plan_.sequences.erase(plan_.sequences.begin(), plan_.sequences.begin() + rows);
  plan_.blocks.erase(plan_.blocks.begin(), plan_.blocks.begin() + blocks);
  plan_.logit_rows.erase(plan_.logit_rows.begin(), plan_.logit_rows.begin() + logits);
  entries_.erase(entries_.begin(), entries_.begin() + rows);
  for (StepSequence& sequence : plan_.sequences) {
    sequence.row -= rows;
    sequence.blocks_begin -= blocks;
  }
  for (std::int32_t& row : plan_.logit_rows) row -= rows;
  for (StepEntry& entry : entries_) entry.logits_begin -= logits;
}

void Scheduler::admit(Room& room) {
  if (preempted_in_step_) return;
  while (room.left > 0 && !waiting_.empty() && running() < limits_.step.sequences_max) {
    Sequence& sequence = *waiting_.front();
    const Blocks needed = BlockTable::blocks_for(sequence.target());
    const Blocks reserve = running_.empty() ? 0 : watermark(cache_.total(), running());
    const PrefixCache::Match kept = cache_.match(sequence.reusable());
    if (!cache_.fits(kept, needed, reserve)) return;
    sequence.computed = kept.blocks * kKvBlockTokens;
    const Tokens rows = rows_within_logits(sequence, std::min(sequence.remaining(), room.left));
    if (rows == 0) {
      sequence.computed = 0;
      return;
    }
    if (sequence.generated() == 0) sequence.cached = sequence.computed;
    cache_.attach(sequence.reusable(), kept.blocks, sequence.blocks);
    CHECK(cache_.grow(sequence.blocks, sequence.target()));
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    add_prompt_rows(sequence, rows, room);
  }
}

Tokens Scheduler::rows_within_logits(const Sequence& sequence, Tokens rows) const {
  std::int64_t left = limits_.step.logit_rows_max - std::ssize(plan_.logit_rows);
  for (Tokens i = 0; i < rows; ++i) {
    if (sequence.needs_logits(sequence.computed + i) && left-- == 0) return i;
  }
  return rows;
}

Tokens Scheduler::add_entry(const Sequence& sequence, Tokens rows) {
  rows = rows_within_logits(sequence, rows);
  if (rows == 0) return 0;
  StepEntry entry{.sequence = &sequence,
                  .position = sequence.computed,
                  .rows = rows,
                  .logits_begin = std::ssize(plan_.logit_rows),
                  .samples = sequence.samples() && rows == sequence.remaining()};
  StepSequence planned{.row = static_cast<std::int32_t>(plan_.rows()),
                       .tokens = static_cast<std::int32_t>(rows),
                       .position = static_cast<std::int32_t>(sequence.computed),
                       .blocks_begin = static_cast<std::int32_t>(plan_.blocks.size())};
  const auto table =
      std::span(sequence.blocks.blocks)
          .first(static_cast<std::size_t>(BlockTable::blocks_for(sequence.computed + rows)));
  plan_.blocks.insert(plan_.blocks.end(), table.begin(), table.end());
  planned.blocks_count = static_cast<std::int32_t>(table.size());
  for (Tokens i = 0; i < rows; ++i) {
    const Tokens position = sequence.computed + i;
    if (sequence.needs_logits(position)) {
      plan_.logit_rows.push_back(static_cast<std::int32_t>(plan_.rows()));
    }
    plan_.ids.push_back(sequence.tokens[static_cast<std::size_t>(position)]);
  }
  entry.logits_count = std::ssize(plan_.logit_rows) - entry.logits_begin;
  plan_.sequences.push_back(planned);
  entries_.push_back(entry);
  return rows;
}

void Scheduler::finish_step(std::span<const StepOutcome> outcomes, std::vector<Ended>& ended) {
  CHECK(step_under_way_ && outcomes.size() == entries_.size());
  step_under_way_ = false;
  const std::size_t ended_before = ended.size();
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const auto found = std::ranges::find_if(
        running_, [&](const Owned& sequence) { return sequence.get() == entries_[i].sequence; });
    CHECK(found != running_.end());
    const Finish finish = finish_entry(entries_[i], outcomes[i], **found);
    if (finish == Finish::none) continue;
    ended.push_back({(*found)->id, finish});
    cache_.release((*found)->blocks);
    running_.erase(found);
  }
  if (ended.size() > ended_before) may_decode_on_ = false;
  entries_.clear();
}

Finish Scheduler::finish_entry(const StepEntry& entry, const StepOutcome& outcome,
                               Sequence& sequence) {
  sequence.computed += entry.rows;
  sequence.rows_reported =
      std::max(sequence.rows_reported, std::min(sequence.computed, sequence.prompt_tokens - 1));
  if (outcome.failed) return Finish::error;
  cache_.publish(std::span(sequence.tokens).first(static_cast<std::size_t>(sequence.computed)),
                 sequence.blocks);
  if (!entry.samples) return sequence.remaining() == 0 ? Finish::length : Finish::none;
  sequence.tokens.push_back(outcome.token);
  const auto& stops = sequence.sampling.stop_ids;
  if (std::ranges::find(stops, outcome.token) != stops.end()) return Finish::stop;
  return sequence.size() == sequence.tokens_max ? Finish::length : Finish::none;
}

}  // namespace plimsoll
