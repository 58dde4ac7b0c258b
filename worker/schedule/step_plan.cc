#include "worker/schedule/step_plan.h"

#include <array>
#include <cstring>
#include <type_traits>

#include <fmt/format.h>

#include "kernels/backend.h"
#include "shared/memory/step_message.h"

namespace plimsoll {
namespace {

constexpr std::size_t kHeaderWords = kStepHeaderWords;
static_assert(sizeof(StepSequence) == kStepSequenceWords * kStepWordBytes);

template <typename T>
void append(std::vector<std::byte>& bytes, std::span<const T> values) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto source = std::as_bytes(values);
  bytes.insert(bytes.end(), source.begin(), source.end());
}

template <typename T>
void take(std::span<const std::byte>& bytes, std::size_t count, std::vector<T>& values) {
  values.resize(count);
  if (count == 0) return;
  std::memcpy(values.data(), bytes.data(), count * sizeof(T));
  bytes = bytes.subspan(count * sizeof(T));
}

Error broken(std::string_view what) {
  return internal_error(fmt::format("a step from rank 0 is damaged: {}", what));
}

Status check_sequence(const StepPlan& plan, const StepLimits& limits, std::size_t index,
                      std::int32_t row) {
  const StepSequence& sequence = plan.sequences[index];
  if (sequence.row != row || sequence.tokens < 1 || sequence.position < 0 ||
      sequence.row + static_cast<Tokens>(sequence.tokens) > plan.rows()) {
    return broken(fmt::format("sequence {} has rows {} + {} of {}", index, sequence.row,
                              sequence.tokens, plan.rows()));
  }
  const Tokens end = static_cast<Tokens>(sequence.position) + sequence.tokens;
  const auto blocks_end = static_cast<std::int64_t>(sequence.blocks_begin) + sequence.blocks_count;
  if (sequence.blocks_begin < 0 || sequence.blocks_count < 0 ||
      blocks_end > std::ssize(plan.blocks) || sequence.blocks_count * kKvBlockTokens < end) {
    return broken(
        fmt::format("sequence {} has {} blocks for {} tokens", index, sequence.blocks_count, end));
  }
  for (std::int64_t i = sequence.blocks_begin; i < blocks_end; ++i) {
    const std::int32_t block = plan.blocks[static_cast<std::size_t>(i)];
    if (block < 0 || block >= limits.kv_blocks) {
      return broken(fmt::format("block {} of {}", block, limits.kv_blocks));
    }
  }
  return {};
}

}  // namespace

void StepPlan::clear() {
  ids.clear();
  sequences.clear();
  blocks.clear();
  logit_rows.clear();
}

StepPlan make_step_plan(const StepLimits& limits) {
  StepPlan plan;
  plan.ids.reserve(static_cast<std::size_t>(limits.rows_max));
  plan.sequences.reserve(static_cast<std::size_t>(limits.sequences_max));
  plan.blocks.reserve(static_cast<std::size_t>(limits.table_blocks_max));
  plan.logit_rows.reserve(static_cast<std::size_t>(limits.logit_rows_max));
  return plan;
}

Bytes step_bytes_max(const StepLimits& limits) {
  return step_message_bytes(limits.rows_max, limits.sequences_max, limits.table_blocks_max,
                            limits.logit_rows_max);
}

void encode_step(StepKind kind, const StepPlan& plan, std::vector<std::byte>& bytes) {
  bytes.clear();
  const std::array<std::uint32_t, kHeaderWords> header = {
      static_cast<std::uint32_t>(kind), static_cast<std::uint32_t>(plan.ids.size()),
      static_cast<std::uint32_t>(plan.sequences.size()),
      static_cast<std::uint32_t>(plan.blocks.size()),
      static_cast<std::uint32_t>(plan.logit_rows.size())};
  append<std::uint32_t>(bytes, header);
  append<std::int32_t>(bytes, plan.ids);
  append<StepSequence>(bytes, plan.sequences);
  append<std::int32_t>(bytes, plan.blocks);
  append<std::int32_t>(bytes, plan.logit_rows);
}

Result<StepKind> decode_step(std::span<const std::byte> bytes, const StepLimits& limits,
                             StepPlan& plan) {
  std::array<std::uint32_t, kHeaderWords> header;
  if (bytes.size() < sizeof(header)) return broken(fmt::format("{} bytes", bytes.size()));
  std::memcpy(header.data(), bytes.data(), sizeof(header));
  bytes = bytes.subspan(sizeof(header));
  const auto [kind, ids, sequences, blocks, logit_rows] = header;
  if (kind != static_cast<std::uint32_t>(StepKind::run) &&
      kind != static_cast<std::uint32_t>(StepKind::stop)) {
    return broken(fmt::format("kind {}", kind));
  }
  const std::uint64_t expected = sizeof(std::int32_t) * (std::uint64_t{ids} + blocks + logit_rows) +
                                 sizeof(StepSequence) * std::uint64_t{sequences};
  if (bytes.size() != expected) {
    return broken(fmt::format("{} bytes where its counts say {}", bytes.size(), expected));
  }
  take(bytes, ids, plan.ids);
  take(bytes, sequences, plan.sequences);
  take(bytes, blocks, plan.blocks);
  take(bytes, logit_rows, plan.logit_rows);
  TRY(check_step(plan, limits));
  return static_cast<StepKind>(kind);
}

Status check_step(const StepPlan& plan, const StepLimits& limits) {
  if (plan.rows() > limits.rows_max || std::ssize(plan.sequences) > limits.sequences_max ||
      std::ssize(plan.blocks) > limits.table_blocks_max ||
      std::ssize(plan.logit_rows) > limits.logit_rows_max) {
    return broken(fmt::format(
        "{} rows of {}, {} sequences of {}, {} blocks of {}, {} logit rows of {}", plan.rows(),
        limits.rows_max, plan.sequences.size(), limits.sequences_max, plan.blocks.size(),
        limits.table_blocks_max, plan.logit_rows.size(), limits.logit_rows_max));
  }
  std::int32_t row = 0;
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    TRY(check_sequence(plan, limits, i, row));
    row += plan.sequences[i].tokens;
  }
  if (row != plan.rows())
    return broken(fmt::format("{} rows without a sequence", plan.rows() - row));
  std::int32_t last = -1;
  for (const std::int32_t logit_row : plan.logit_rows) {
    if (logit_row <= last || logit_row >= plan.rows()) {
      return broken(fmt::format("logits of row {} after {}", logit_row, last));
    }
    last = logit_row;
  }
  return {};
}

}  // namespace plimsoll
