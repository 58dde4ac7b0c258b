#include "shared/memory/memory_terms.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "shared/base/replica_segment.h"
#include "shared/memory/collective_bytes.h"
#include "shared/model/head_limits.h"

namespace plimsoll {
namespace {

constexpr Bytes kFloat = 4;
// Of a process, as measured at tp 1 to 3 (2.9 to 4.4 MiB in all): heap, stacks and queues; of
// program and libraries the part that it alone has, and the part that all ranks share.
constexpr Bytes kHeapBytes = kMiB;
constexpr Bytes kOwnProgramBytes = kMiB / 2;
constexpr Bytes kSharedProgramBytes = 5 * kMiB / 2;

// Constants of kernels/cpu, restated since `shared` cannot include it: bytes of a block of 32
// quantised activations; keys of a split, lanes of running sums.
constexpr Bytes kInt8Block = 2 * 44 + 8;  // with what the first rounding left, and flags
constexpr std::int64_t kInt8BlockColumns = 32;
constexpr std::int64_t kTileRows = kHeadsPerKvHeadMax;
constexpr std::int64_t kSplitTokens = 256;
constexpr std::int64_t kSumLanes = 16;
constexpr Bytes kThreadBoundBytes = 64;    // of one thread's share of an attention call, at most
constexpr std::int64_t kOwnPanelRows = 2;  // that a thread quantises for itself

// Constants of kernels/cuda, restated likewise.
constexpr Bytes kCudaAlignment = 256;
constexpr Bytes kCudaScaleBytes = 8;
constexpr Bytes kCudaTokenBytes = 8 + 24;  // ids and rows; position, table and tile
constexpr std::int64_t kCudaTableEntriesMax = 1 << 20;
constexpr std::int64_t kCudaPartials = 1024;
constexpr std::int64_t kCudaPieces = 10;      // that are aligned each
constexpr Bytes kCudaUploadBytes = 8 * kMiB;  // two pieces of weights on their way
constexpr Bytes kHostGranule = 64 * kKiB;     // in which the host executor maps KV

// Of the sampler's arrays, per token of the vocabulary: adjusted logits, weights, candidates and
// counts.
constexpr Bytes kSamplerBytes = 4 + 4 + 8 + 4;

Bytes aligned(Bytes bytes) { return round_up(bytes, kBufferAlignment); }
Bytes floats(std::int64_t rows, std::int64_t cols) { return aligned(rows * cols * kFloat); }

std::int64_t qkv_width(const TermInputs& in) {
  return (in.rank.shard.heads.size() + 2 * in.rank.shard.kv_heads.size()) * in.model.head_dim;
}
std::int64_t attention_width(const TermInputs& in) {
  return in.rank.shard.heads.size() * in.model.head_dim;
}
std::int64_t widest_input(const TermInputs& in) {
  return std::max({in.model.hidden, attention_width(in), in.rank.shard.ffn.size()});
}
// The residual stream, with several ranks the partial sums in f64 that they reduce, and what is
// normed before it is added.
std::int64_t residual_copies(const TermInputs& in) {
  return (in.tp == 1 ? 1 : 3) + (in.model.has_post_norms ? 1 : 0);
}
// cos and sin; layers with a window may have a base of their own.
std::int64_t rope_tables(const TermInputs& in) { return in.model.window_rope_base > 0 ? 4 : 2; }
std::int64_t blocks_of_request(const TermInputs& in) {
  return ceil_div(in.step.context_length, kKvBlockTokens);
}

Bytes linear_scratch(const TermInputs& in) {
  const std::int64_t cols = widest_input(in);
  const std::int64_t rows = std::max(in.step.step_tokens_max, in.rank.threads * kOwnPanelRows);
  return rows * (ceil_div(cols, kInt8BlockColumns) * kInt8Block + cols * kFloat);
}

Bytes attention_scratch(const TermInputs& in) {
  const std::int64_t tile = kTileRows * (in.model.head_dim + kKvBlockTokens + 1 + kSumLanes);
  const std::int64_t partial = kTileRows * (in.model.head_dim + 2);
  const std::int64_t partials = 2 + ceil_div(in.step.context_length, kSplitTokens);
  return in.rank.threads * aligned((tile + partials * partial) * kFloat) +
         (in.rank.threads + 1) * kThreadBoundBytes;
}

// The CUDA backend's: int8 and f32 inputs, tables of a step, partial results of attention.
std::int64_t cuda_table_entries(const TermInputs& in) {
  return std::min(in.step.step_tokens_max * blocks_of_request(in), kCudaTableEntriesMax);
}
Bytes cuda_scratch(const TermInputs& in) {
  const std::int64_t rows = in.step.step_tokens_max;
  const std::int64_t cols = widest_input(in);
  const std::int64_t entries = cuda_table_entries(in);
  return rows * (cols * (1 + kFloat) + ceil_div(cols, kInt8BlockColumns) * kCudaScaleBytes +
                 kCudaTokenBytes) +
         entries * 4 +
         kCudaPartials * in.rank.shard.heads.size() * (in.model.head_dim + 2) * kFloat +
         kCudaPieces * kCudaAlignment;
}

std::string weights_formula(const TermInputs& in) {
  const std::string whole = "every matrix of this rank as packed, norms as f32";
  const std::int64_t sharers = in.rank.weight_sharers;
  if (sharers == 1) return whole;
  return fmt::format("{}: {}, shared by {} replicas", whole, format_bytes(in.rank.shared_weights),
                     sharers);
}

std::string tables_formula(const TermInputs& in) {
  return fmt::format("{} positions x {} x 4 B (rope) + {} requests x {} blocks x 4 B",
                     grouped(in.step.context_length), in.model.rope_dim * rope_tables(in) / 2,
                     in.step.max_running_requests, grouped(blocks_of_request(in)));
}

std::string activations_formula(const TermInputs& in) {
  return fmt::format("{} tokens x ({}{} + {} qkv + {} attention + {} ffn) x 4 B",
                     grouped(in.step.step_tokens_max), grouped(in.model.hidden),
                     residual_copies(in) == 1 ? "" : fmt::format(" x {}", residual_copies(in)),
                     qkv_width(in), attention_width(in), grouped(in.rank.shard.ffn.size()));
}

std::string workspace_formula(const TermInputs& in) {
  if (in.rank.on_cuda) {
    return fmt::format("{} tokens x {} columns x 5.25 B + {} partials x {} heads (attention)",
                       grouped(in.step.step_tokens_max), grouped(widest_input(in)), kCudaPartials,
                       in.rank.shard.heads.size());
  }
  if (linear_scratch(in) >= attention_scratch(in)) {
    return fmt::format("{} tokens x {} columns x 7 B (quantised and f32 inputs)",
                       grouped(in.step.step_tokens_max), grouped(widest_input(in)));
  }
  return fmt::format("{} threads x {} splits of {} keys (attention)", in.rank.threads,
                     grouped(ceil_div(in.step.context_length, kSplitTokens)), kSplitTokens);
}

std::string logits_formula(const TermInputs& in) {
  const std::int64_t rows = in.step.logit_rows_max;
  const std::int64_t own = in.rank.shard.vocab.size();
  if (in.tp == 1 || !in.rank.leader || in.rank.on_cuda) {
    return fmt::format("{} rows x ({} inputs + {}) x 4 B", rows, grouped(in.model.hidden),
                       grouped(own));
  }
  return fmt::format("{} rows x ({} inputs + {} own + {} gathered) x 4 B", rows,
                     grouped(in.model.hidden), grouped(own), grouped(in.model.vocab));
}

std::string collective_formula(const TermInputs& in) {
  if (in.tp == 1) return "one rank: nothing to exchange";
  const std::string buffer =
      in.rank.on_cuda ? fmt::format(" + {} for the peers' sums", format_bytes(kHostIpcBytes)) : "";
  return fmt::format("({} ranks x 2 slots x {} + {} ring and its lines) / {} ranks{}", in.tp,
                     format_bytes(kSlotFloatsDefault * kFloat), format_bytes(kStepRingBytesDefault),
                     in.tp, buffer);
}

Bytes bare_process_bytes(const TermInputs& in) {
  const std::int64_t processes = in.tp * in.rank.weight_sharers;
  return aligned(kHeapBytes + kOwnProgramBytes + kSharedProgramBytes / processes);
}

// Of this process's memory that goes to and from a device: weights, tables of a step, its logits.
Bytes cuda_host_bytes(const TermInputs& in) {
  return kCudaUploadBytes +
         aligned(in.step.step_tokens_max * kCudaTokenBytes + cuda_table_entries(in) * 4) +
         (in.rank.leader ? floats(in.step.logit_rows_max, in.model.vocab) : 0) +
         (in.tp > 1 ? floats(in.step.logit_rows_max, in.rank.shard.vocab.size()) : 0);
}

std::string process_formula(const TermInputs& in) {
  std::string base = fmt::format("{} assumed", format_bytes(bare_process_bytes(in)));
  if (in.rank.on_cuda) {
    base += fmt::format(" + {} to and from the device", format_bytes(cuda_host_bytes(in)));
  }
  if (!in.rank.leader) {
    return fmt::format("{} + {} copy of the step ring", base, format_bytes(kStepRingBytesDefault));
  }
  return fmt::format("{} + {} tokens x {} B (sampler)", base, grouped(in.model.vocab),
                     kSamplerBytes);
}

}  // namespace

Bytes tables_bytes(const TermInputs& in) {
  return rope_tables(in) * floats(in.step.context_length, ceil_div(in.model.rope_dim, 2)) +
         aligned(in.step.max_running_requests * blocks_of_request(in) * 4);
}

Bytes activations_bytes(const TermInputs& in) {
  const Tokens rows = in.step.step_tokens_max;
  return floats(rows, in.model.hidden) + floats(rows, (residual_copies(in) - 1) * in.model.hidden) +
         floats(rows, qkv_width(in)) + floats(rows, attention_width(in)) +
         floats(rows, in.rank.shard.ffn.size());
}

// Operations follow each other, so one scratch serves them all.
Bytes workspace_bytes(const TermInputs& in) {
  if (in.rank.on_cuda) return aligned(cuda_scratch(in));
  return aligned(std::max(linear_scratch(in), attention_scratch(in)));
}

Bytes logits_bytes(const TermInputs& in) {
  const std::int64_t rows = in.step.logit_rows_max;
  const Bytes own = floats(rows, in.model.hidden) + floats(rows, in.rank.shard.vocab.size());
  const bool has_copy = in.rank.leader && in.tp > 1 && !in.rank.on_cuda;
  return has_copy ? own + floats(rows, in.model.vocab) : own;
}

Bytes collective_bytes(const TermInputs& in) {
  if (in.tp == 1) return 0;
  const ReplicaSegmentShape shape{.ranks = static_cast<int>(in.tp)};
  return aligned(ceil_div(replica_segment_bytes(shape), in.tp)) +
         (in.rank.on_cuda ? kHostIpcBytes : 0);
}

Bytes process_bytes(const TermInputs& in) {
  return bare_process_bytes(in) + (in.rank.on_cuda ? cuda_host_bytes(in) : 0) +
         (in.rank.leader ? aligned(in.model.vocab * kSamplerBytes) : kStepRingBytesDefault);
}

TermBytes cpu_term_bytes(const TermInputs& in) {
  TermBytes bytes;
  bytes[Term::weights] = in.rank.weights;
  bytes[Term::tables] = tables_bytes(in);
  bytes[Term::activations] = activations_bytes(in);
  bytes[Term::workspace] = workspace_bytes(in);
  bytes[Term::logits] = logits_bytes(in);
  bytes[Term::collective] = collective_bytes(in);
  bytes[Term::process] = process_bytes(in);
  if (in.rank.on_cuda) bytes[Term::graphs] = null_block_bytes(in, kHostGranule);
  return bytes;
}

std::string cpu_term_formula(const TermInputs& in, Term term) {
  switch (term) {
    case Term::weights:
      return weights_formula(in);
    case Term::tables:
      return tables_formula(in);
    case Term::activations:
      return activations_formula(in);
    case Term::workspace:
      return workspace_formula(in);
    case Term::logits:
      return logits_formula(in);
    case Term::collective:
      return collective_formula(in);
    case Term::process:
      return process_formula(in);
    case Term::graphs:
      return "a KV block that batches are filled up with";
    default:
      return {};
  }
}

Bytes null_block_bytes(const TermInputs& in, Bytes granule) {
  const Bytes block = kKvBlockTokens * in.rank.kv_token_bytes;
  return round_up(block, granule) + granule;
}

Bytes kv_block_bytes(const ModelSpec& model, const RankShard& shard) {
  return kKvBlockTokens * model.kv_bytes_per_token(shard.kv_heads.size());
}

std::string grouped(std::int64_t value) {
  const std::string digits = std::to_string(value);
  const std::size_t first = value < 0 ? 1 : 0;
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > first && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string counted(std::int64_t value, std::string_view noun) {
  return fmt::format("{} {}{}", grouped(value), noun, value == 1 ? "" : "s");
}

}  // namespace plimsoll
