#include "shared/memory/device_terms.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "shared/memory/collective_bytes.h"
#include "shared/memory/graph_sizes.h"

namespace plimsoll {
namespace {

constexpr Bytes kBf16 = 2;
constexpr Bytes kDeviceGranule = 2 * kMiB;  // in which drivers give memory
constexpr Bytes kFloat = 4;

constexpr int kUnknownMultiprocessors = 132;
constexpr Bytes kContextBytesPerMultiprocessor = 32 * kMiB / 10;

// One direction in, one out: 10 MiB are received into, 2 MiB sent from.
constexpr Bytes kConnectionBytes = 12 * kMiB;
constexpr Bytes kConnectionReceiveBytes = 10 * kMiB;
constexpr std::int64_t kPcieChannels = 8;
constexpr std::int64_t kNvlinkChannels = 24;
constexpr std::int64_t kNvlsChannels = 16;
constexpr Bytes kNvlsBytes = 2 * kMiB;  // of each head and channel
constexpr std::int64_t kAllToAllChannels = 32;
constexpr Bytes kAllReduceBytes = 24 * kMiB;

constexpr std::int64_t kStreams = 2;
constexpr Bytes kSemaphoreBytes = 8 * kMiB;
constexpr std::int64_t kDecodeTileRows = 16;
// Keys and values of a latent prefix are expanded for at most so many tokens at a time.
constexpr Tokens kExpandedPrefix = 16'384;

// Of one captured batch: the nodes of a layer, and the pool's share of a request.
constexpr Bytes kGraphBytesPerLayer = 448 * kKiB;
constexpr Bytes kGraphBytesPerRequest = 2 * kMiB;
// Each captured all-reduce, two a layer, tells its peers where its buffer is: eight pointers.
constexpr Bytes kRegistrationBytes = 64;

struct Ladder {
  Bytes below;
  Tokens step_tokens;
  std::int64_t graph_batch;        // tp < 4
  std::int64_t graph_batch_large;  // tp >= 4
};
constexpr std::array<Ladder, 6> kLadder = {{{20 * kGiB, 2048, 8, 8},
                                            {35 * kGiB, 4096, 48, 160},
                                            {60 * kGiB, 4096, 32, 160},
                                            {90 * kGiB, 8192, 256, 512},
                                            {160 * kGiB, 8192, 256, 512},
                                            {1024 * 1024 * kGiB, 16'384, 512, 512}}};

const Ladder& ladder_of(Bytes device_total) {
  return *std::find_if(kLadder.begin(), kLadder.end() - 1,
                       [&](const Ladder& step) { return device_total < step.below; });
}

int multiprocessors(const Device& device) {
  return device.multiprocessors > 0 ? device.multiprocessors : kUnknownMultiprocessors;
}

bool has_switch(const Device& device, const DeviceSetting& setting) {
  return setting.link == DeviceLink::nvlink && device.compute_major >= 9 && setting.tp > 2;
}
std::int64_t channels(const DeviceSetting& setting) {
  return setting.link == DeviceLink::nvlink ? kNvlinkChannels : kPcieChannels;
}
// Of a ring and of a chain with a neighbour on each side.
std::int64_t connections(const DeviceSetting& setting) {
  return 1 + std::min<std::int64_t>(2, setting.tp - 1);
}
Bytes all_to_all_bytes(const DeviceSetting& setting) {
  if (setting.ep <= 1) return 0;
  // A quarter more than its buffers: measured 3,280 MiB where these are 2,688.
  return kConnectionBytes * (setting.ep - 1) * kAllToAllChannels * 5 / 4;
}

// --- attention -------------------------------------------------------------------------------

std::int64_t key_width(const ModelSpec& model) {
  return model.latent ? model.latent->nope_dim + model.latent->rope_dim : model.head_dim;
}
std::int64_t value_width(const ModelSpec& model) {
  return model.latent ? model.latent->value_dim : model.head_dim;
}
// Of the output of a decode step: a latent one is expanded afterwards.
std::int64_t partial_width(const ModelSpec& model) {
  return model.latent ? model.latent->kv_rank : model.head_dim;
}

// Elements of one token: queries, keys and values, and the output.
std::int64_t attention_width(const DeviceTermInputs& in) {
  const ModelSpec& model = in.model;
  const std::int64_t heads = in.rank.shard.heads.size();
  std::int64_t width = heads * (key_width(model) + value_width(model));
  if (model.latent) {
    width += model.latent->q_rank + model.latent->kv_rank + model.latent->rope_dim +
             heads * (key_width(model) + value_width(model));  // expanded keys and values
  } else {
    width += 2 * in.rank.shard.kv_heads.size() * model.head_dim;
  }
  return width;
}

// Gate and up together, their product; of experts for each that a token uses, and their outputs.
std::int64_t feed_forward_width(const DeviceTermInputs& in) {
  const std::int64_t dense = 3 * in.rank.shard.ffn.size();
  const ExpertShape& experts = in.model.experts;
  if (experts.layers == 0) return dense;
  // Where ranks divide them whole, each has its part of what a token uses, on average.
  const std::int64_t columns =
      ceil_div(in.rank.shard.expert_ffn.size() * in.rank.shard.experts, experts.count);
  const std::int64_t routed = experts.used * (3 * columns + in.model.hidden);
  return std::max(dense, routed + 3 * in.rank.shard.shared_ffn.size());
}

// Residual stream, its normed copy, and the partial sum that ranks reduce.
std::int64_t stream_width(const DeviceTermInputs& in) {
  return (in.setting.tp > 1 ? 3 : 2) * in.model.hidden;
}

// Of the longest prefix that a chunk of so many tokens may follow.
Bytes expanded_prefix_bytes(const DeviceTermInputs& in, Tokens chunk) {
  if (!in.model.latent) return 0;
  const Tokens prefix =
      std::min(kExpandedPrefix, std::max<Tokens>(0, in.step.context_length - chunk));
  return prefix * in.rank.shard.heads.size() * (key_width(in.model) + value_width(in.model)) *
         kBf16;
}

std::int64_t token_width(const DeviceTermInputs& in) {
  return stream_width(in) + std::max(attention_width(in), feed_forward_width(in));
}
Bytes chunk_bytes(const DeviceTermInputs& in, Tokens chunk) {
  return chunk * token_width(in) * kBf16 + expanded_prefix_bytes(in, chunk);
}

// Every chunk up to the step's length is reached (a prompt's last one is any length), and a shorter
// one may follow a longer prefix. The sum is linear in the chunk up to where the prefix is cut, so
// its peak is there or at the longest.
Tokens peak_chunk(const DeviceTermInputs& in) {
  const Tokens longest = in.step.step_tokens_max;
  const Tokens cut =
      std::clamp<Tokens>(in.step.context_length - kExpandedPrefix, 1, std::max<Tokens>(1, longest));
  return chunk_bytes(in, cut) > chunk_bytes(in, longest) ? cut : longest;
}
Bytes activation_bytes(const DeviceTermInputs& in) { return chunk_bytes(in, peak_chunk(in)); }

Bytes gemm_workspace(const Device& device) {
  if (device.compute_major >= 9) return kStreams * 64 * kMiB;
  return kStreams * (8'519'680 + 4 * kMiB);
}

std::int64_t padded_batch(const DeviceTermInputs& in) {
  const std::int64_t kv_heads = std::max<std::int64_t>(1, in.rank.shard.kv_heads.size());
  return std::max(2 * multiprocessors(*in.rank.device) / kv_heads, in.step.max_running_requests);
}
// Partial outputs of split keys, a tile for each query head, and their sums.
Bytes attention_workspace(const DeviceTermInputs& in) {
  return in.rank.shard.heads.size() * padded_batch(in) * kDecodeTileRows *
         (partial_width(in.model) + 1) * kFloat;
}

std::int64_t blocks_of_request(const DeviceTermInputs& in) {
  return ceil_div(in.step.context_length, kKvBlockTokens);
}
Bytes tables_bytes(const DeviceTermInputs& in) {
  return in.step.max_running_requests * blocks_of_request(in) * 4 +
         in.step.context_length * std::max<std::int64_t>(in.model.rope_dim, 0) * kFloat;
}

std::string collective_formula(const DeviceTermInputs& in) {
  const DeviceSetting& setting = in.setting;
  if (setting.tp == 1 && setting.ep == 1) return "one rank: nothing to exchange";
  if (in.rank.on_cuda && setting.by_nccl) {
    return fmt::format("NCCL: {} channels x {} connections x 12 MiB", kNcclChannels,
                       connections(setting));
  }
  if (in.rank.on_cuda) {
    return fmt::format("{} for the peers' sums + {} for its state", format_bytes(kIpcBytes),
                       format_bytes(kDeviceGranule));
  }
  std::string text =
      fmt::format("NCCL over {}: {} channels x {} connections x 12 MiB",
                  device_link_name(setting.link), channels(setting), connections(setting));
  if (has_switch(*in.rank.device, setting)) {
    text += fmt::format(" + {} x {} NVLS buffers of 2 MiB", setting.tp, kNvlsChannels);
  }
  if (setting.ep > 1) {
    text += fmt::format(" + all-to-all {} peers x {} channels x 12 MiB + 25 %", setting.ep - 1,
                        kAllToAllChannels);
  }
  if (custom_all_reduce_bytes(setting.tp) > 0) text += " + 24 MiB custom all-reduce";
  return text;
}

std::string weights_formula(const DeviceTermInputs& in) {
  const bool by_config = in.model.weight_source == WeightSource::config && !in.model.groups.empty();
  const char* source = by_config ? ", of the shapes and types that config.json says" : "";
  if (in.setting.tp == 1) return fmt::format("all weights{}", by_config ? source : " as stored");
  return fmt::format("{} divided over {} ranks + {} that every rank holds{}",
                     format_bytes(in.rank.weights - in.rank.replicated), in.setting.tp,
                     format_bytes(in.rank.replicated), source);
}

Bytes part_bytes(const ModelSpec& model, WeightPart part) {
  Bytes sum = 0;
  for (const WeightGroup& group : model.groups) {
    if (group.part == part) sum += group.bytes_of_all();
  }
  return sum;
}

std::string vision_formula(const DeviceTermInputs& in) {
  return fmt::format("vision tower {} + projector {}, whole on every rank",
                     format_bytes(part_bytes(in.model, WeightPart::vision)),
                     format_bytes(part_bytes(in.model, WeightPart::projector)));
}

std::string draft_formula(const DeviceTermInputs& in) {
  if (in.rank.draft_ranks == 0) return "no draft model";
  return fmt::format("this rank's part of the draft model's {} over {}",
                     format_bytes(in.rank.draft_of_all), counted(in.rank.draft_ranks, "rank"));
}

std::string activations_formula(const DeviceTermInputs& in) {
  const bool by_attention = attention_width(in) > feed_forward_width(in);
  const Tokens chunk = peak_chunk(in);
  std::string text = fmt::format(
      "{} tokens x ({} stream + {} {}) x 2 B", grouped(chunk), grouped(stream_width(in)),
      grouped(by_attention ? attention_width(in) : feed_forward_width(in)),
      by_attention                   ? "attention"
      : in.model.experts.layers == 0 ? "feed-forward"
                                     : "experts");
  if (expanded_prefix_bytes(in, chunk) > 0) {
    text +=
        fmt::format(" + {} of an expanded prefix", format_bytes(expanded_prefix_bytes(in, chunk)));
  }
  return text;
}

std::string graphs_formula(const DeviceTermInputs& in) {
  const std::int64_t largest = in.step.cuda_graph_max_bs;
  if (largest == 0) return "no graphs are captured";
  std::string text = fmt::format("{} batches up to {} x {} layers x 448 KiB + {} requests x 2 MiB",
                                 graph_size_count(largest), largest, in.model.layers, largest);
  const std::int64_t addresses = registered_addresses(in.model.layers, largest, in.setting.tp);
  if (addresses > 0) text += fmt::format(" + {} registered buffers x 64 B", grouped(addresses));
  return text;
}

std::string context_formula(const Device& device) {
  if (device.context) return "measured on such a device";
  return fmt::format("{} multiprocessors{} x 3.2 MiB", multiprocessors(device),
                     device.multiprocessors > 0 ? "" : " (assumed)");
}

// Rows that our own kernels' buffers decide are theirs, whatever device runs them.
bool is_of_kernels(const DeviceTermInputs& in, Term term) {
  return in.rank.on_cuda && (term == Term::tables || term == Term::activations ||
                             term == Term::workspace || term == Term::logits);
}
Bytes own_collective_bytes(const DeviceSetting& setting) {
  if (setting.tp == 1) return 0;
  return setting.by_nccl ? kNcclChannels * connections(setting) * kConnectionBytes
                         : kIpcBytes + kDeviceGranule;
}
TermInputs kernel_inputs(const DeviceTermInputs& in) {
  return {.model = in.model, .rank = in.rank, .step = in.step, .tp = in.setting.tp};
}

}  // namespace

Bytes context_bytes(const Device& device) {
  if (device.context) return *device.context;
  return multiprocessors(device) * kContextBytesPerMultiprocessor;
}

Bytes nccl_bytes(const Device& device, const DeviceSetting& setting) {
  if (setting.tp == 1) return all_to_all_bytes(setting);
  Bytes bytes = channels(setting) * connections(setting) * kConnectionBytes;
  if (has_switch(device, setting)) bytes += setting.tp * kNvlsChannels * kNvlsBytes;
  return bytes + all_to_all_bytes(setting);
}

Bytes custom_all_reduce_bytes(std::int64_t tp) {
  const bool runs = tp == 2 || tp == 4 || tp == 6 || tp == 8;
  return runs ? kAllReduceBytes : 0;
}

Bytes peer_mapped_bytes(const Device& device, const DeviceSetting& setting) {
  if (setting.tp == 1) return 0;
  (void)device;  // NVLS and experts' buffers are mapped over NVLink, not through BAR1
  return custom_all_reduce_bytes(setting.tp) +
         channels(setting) * connections(setting) * kConnectionReceiveBytes;
}

Bytes ep_buffer_bytes(std::int64_t experts, std::int64_t hidden, Tokens dispatch_tokens) {
  constexpr std::int64_t kAlignment = 128;
  return 4 * experts * dispatch_tokens * (2 * hidden + hidden / 32) +
         2 * round_up(4 * experts, kAlignment) + kAlignment;
}

Bytes logit_row_bytes(std::int64_t vocab) { return vocab * (kBf16 + 2 * kFloat); }

Bytes graph_bytes(std::int64_t layers, std::int64_t largest_batch, std::int64_t tp) {
  return graph_size_count(largest_batch) * layers * kGraphBytesPerLayer +
         largest_batch * kGraphBytesPerRequest +
         registered_addresses(layers, largest_batch, tp) * kRegistrationBytes;
}

std::int64_t registered_addresses(std::int64_t layers, std::int64_t largest_batch,
                                  std::int64_t tp) {
  return custom_all_reduce_bytes(tp) > 0 ? graph_size_count(largest_batch) * layers * 2 : 0;
}

Bytes device_margin(Bytes device_total) { return std::max(256 * kMiB, device_total / 200); }

Tokens default_step_tokens(Bytes device_total) { return ladder_of(device_total).step_tokens; }

std::int64_t default_graph_batch(Bytes device_total, std::int64_t tp) {
  const Ladder& step = ladder_of(device_total);
  return tp < 4 ? step.graph_batch : step.graph_batch_large;
}

std::optional<Bytes> next_smaller_defaults(Bytes device_total) {
  const Ladder* const own = &ladder_of(device_total);
  if (own == kLadder.begin()) return std::nullopt;
  return (own - 1)->below - 1;
}

TermBytes device_term_bytes(const DeviceTermInputs& in) {
  const Device& device = *in.rank.device;
  TermBytes bytes;
  bytes[Term::context] = context_bytes(device);
  bytes[Term::collective] = nccl_bytes(device, in.setting) + custom_all_reduce_bytes(in.setting.tp);
  bytes[Term::weights] = in.rank.weights;
  bytes[Term::absorbed] = in.rank.absorbed;
  bytes[Term::vision] = in.rank.vision;
  bytes[Term::draft] = in.rank.draft;
  bytes[Term::tables] = tables_bytes(in);
  bytes[Term::activations] = activation_bytes(in);
  bytes[Term::workspace] = gemm_workspace(device) + attention_workspace(in) + kSemaphoreBytes;
  bytes[Term::logits] = in.step.logit_rows_max * logit_row_bytes(in.model.vocab);
  if (in.setting.ep > 1 && in.model.experts.count > 0) {
    bytes[Term::ep_buffer] =
        ep_buffer_bytes(in.model.experts.count, in.model.hidden, in.setting.ep_dispatch_tokens);
  }
  bytes[Term::graphs] = graph_bytes(in.model.layers, in.step.cuda_graph_max_bs, in.setting.tp);
  bytes[Term::margin] = device_margin(device.memory_total);
  if (in.rank.on_cuda) {
    const TermBytes own = cpu_term_bytes(kernel_inputs(in));
    for (std::size_t i = 0; i < kTermCount; ++i) {
      const auto term = static_cast<Term>(i);
      if (is_of_kernels(in, term)) bytes[term] = round_up(own[term], kDeviceGranule);
    }
    bytes[Term::weights] = round_up(in.rank.weights, kDeviceGranule);
    bytes[Term::collective] = own_collective_bytes(in.setting);
    bytes[Term::graphs] += null_block_bytes(kernel_inputs(in), kDeviceGranule);
  }
  return bytes;
}

std::string device_term_formula(const DeviceTermInputs& in, Term term) {
  const Device& device = *in.rank.device;
  if (is_of_kernels(in, term)) return cpu_term_formula(kernel_inputs(in), term);
  switch (term) {
    case Term::context:
      return context_formula(device);
    case Term::collective:
      return collective_formula(in);
    case Term::weights:
      return weights_formula(in);
    case Term::absorbed:
      return fmt::format("{} layers x {} heads x ({} + {}) x {} x 2 B", in.model.layers,
                         in.rank.shard.heads.size(), in.model.latent->nope_dim,
                         in.model.latent->value_dim, in.model.latent->kv_rank);
    case Term::vision:
      return vision_formula(in);
    case Term::draft:
      return draft_formula(in);
    case Term::tables:
      return fmt::format("{} requests x {} blocks x 4 B + {} positions x {} x 4 B (rope)",
                         in.step.max_running_requests, grouped(blocks_of_request(in)),
                         grouped(in.step.context_length), in.model.rope_dim);
    case Term::activations:
      return activations_formula(in);
    case Term::workspace:
      return fmt::format(
          "GEMM {} streams x {} + attention {} heads x {} x {} x ({} + 1) x 4 B + 8 MiB", kStreams,
          format_bytes(gemm_workspace(device) / kStreams), in.rank.shard.heads.size(),
          grouped(padded_batch(in)), kDecodeTileRows, partial_width(in.model));
    case Term::logits:
      return fmt::format("{} rows x {} tokens x (2 + 4 + 4) B", in.step.logit_rows_max,
                         grouped(in.model.vocab));
    case Term::ep_buffer:
      return fmt::format("4 x {} experts x {} tokens x (2 x {} + {}) + 2 x {} + 128",
                         in.model.experts.count, grouped(in.setting.ep_dispatch_tokens),
                         grouped(in.model.hidden), in.model.hidden / 32,
                         round_up(4 * in.model.experts.count, 128));
    case Term::graphs:
      return graphs_formula(in);
    case Term::margin:
      return "the larger of 256 MiB and 0.5 % of the device: what a plan may be off by";
    default:
      return {};
  }
}

Trust device_term_trust(const DeviceTermInputs& in, Term term) {
  switch (term) {
    case Term::context:
      return in.rank.device->context ? Trust::measured : Trust::assumed;
    case Term::graphs:
      return in.step.cuda_graph_max_bs == 0 ? Trust::computed : Trust::assumed;
    case Term::weights:  // of types that the configuration does not say
    case Term::absorbed:
    case Term::vision:
      return in.model.assumptions.empty() ? Trust::computed : Trust::assumed;
    case Term::margin:
      return Trust::margin;
    default:
      return Trust::computed;
  }
}

}  // namespace plimsoll
