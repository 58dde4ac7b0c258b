// KernelArguments: what each CUDA kernel is given; one struct a kernel, plain types, device
// pointers.
#pragma once

#include <cstdint>

namespace plimsoll::cuda {

constexpr int kGroupRows = 16;     // rows of a group of packed weights (weight_formats.cuh)
constexpr int kSubBlockCols = 32;  // columns that share one scale of activations
constexpr int kPageTokens = 32;    // tokens of a KV block
constexpr int kSplitPages = 8;     // KV blocks of one split of attention
constexpr int kTileRows = 8;       // rows (token and head) of a tile of attention

// Of 32 columns of one token: x = scale * q; minus the sums of q over columns 0-15 and 16-31.
struct ActivationScale {
  float scale;
  std::int16_t negative_sums[2];
};

enum class WeightFormat : std::int32_t {
  f32,
  f16,
  bf16,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q4_k,
  q5_k,
  q6_k,
};

struct EmbedArguments {
  const unsigned char* table;  // [rows, cols], packed
  WeightFormat format;
  std::int32_t cols;
  const std::int32_t* ids;  // [tokens]
  float scale;              // rows are multiplied by it
  float* out;               // [tokens, cols]
  std::int64_t out_stride;
};

struct CopyRowsArguments {
  const float* in;
  std::int64_t in_stride;
  const std::int32_t* rows;  // [out rows]
  std::int32_t cols;
  float* out;
  std::int64_t out_stride;
};

struct NormArguments {
  const float* in;  // [tokens, cols]
  std::int64_t in_stride;
  const float* weight;  // [cols]; nullptr: no norm
  float eps;
  std::int32_t cols;
  std::int8_t* quants;      // [tokens, cols]; nullptr: not wanted
  ActivationScale* scales;  // [tokens, cols / 32]
  float* values;            // [tokens, cols]; nullptr: not wanted
  // What x is added to, of `in`, which becomes 0; nullptr: nothing is added, `in` stays.
  float* added;
  std::int64_t added_stride;
  float* cleared;
};

enum class LinearEnd : std::int32_t {
  store,     // out = y
  add,       // out += y, rounded once
  partial,   // sums = y
  silu_mul,  // out = silu(y) * (up · x)
  gelu_mul,  // out = gelu(y) * (up · x)
};

struct LinearArguments {
  const std::int8_t* quants;      // [tokens, cols]
  const ActivationScale* scales;  // [tokens, cols / 32]
  const float* values;            // [tokens, cols], of kernels of float weights
  const unsigned char* weight;    // [rows, cols], packed
  const unsigned char* up;        // the same shape, where the end is gated
  std::int32_t tokens;
  std::int32_t cols;
  std::int32_t segment_cols;  // summed in f32; segments are added in f64
  std::int32_t row_begin, row_end;
  LinearEnd end;
  float* out;  // of row_begin and token 0
  double* sums;
  std::int64_t stride;  // of out or sums, from token to token
};

// A tile of attention: consecutive tokens of one sequence.
struct AttentionTile {
  std::int32_t row;       // of the first token in the batch
  std::int32_t tokens;    // at most kTileRows / heads of a KV head, at least 1
  std::int32_t position;  // of the first token
  std::int32_t table;     // where the sequence's block table begins
};

struct KvPages {
  unsigned char* data;
  std::int64_t block_bytes;
  std::int32_t layer;
  std::int32_t kv_heads;
  std::int32_t head_dim;
};

struct RopeArguments {
  float* qkv;  // [tokens, (heads + 2 kv_heads) * head_dim]; queries are written back, scaled
  std::int64_t qkv_stride;
  const float* bias;  // of a row; nullptr: none
  const float* q_norm;
  const float* k_norm;
  float q_eps, k_eps;
  const float* cos;  // [positions, half_dim]
  const float* sin;
  std::int32_t half_dim;
  std::int32_t interleaved;
  std::int32_t heads;
  float query_scale;                // scale · log2 e
  const std::int32_t* positions;    // [tokens]
  const std::int32_t* table_begin;  // [tokens]: of the token's sequence, in tables
  const std::int32_t* tables;
  KvPages pages;
};

struct AttentionArguments {
  const float* queries;  // [tokens, heads * head_dim] within qkv
  std::int64_t query_stride;
  std::int32_t heads;
  std::int32_t window;  // 0: none
  const AttentionTile* tiles;
  const std::int32_t* tables;
  KvPages pages;
  float* out;  // [tokens, heads * head_dim]
  std::int64_t out_stride;
  // [tokens, heads, splits]: the output of each split, not divided by its sum; then its maximum and
  // its sum. nullptr: a block goes through all splits itself.
  float* partial_out;  // [.., head_dim]
  float* partial_max;
  float* partial_sum;
  std::int32_t splits;  // of partials
};

struct MergeArguments {
  const float* partial_out;
  const float* partial_max;
  const float* partial_sum;
  const std::int32_t* positions;  // [tokens]
  std::int32_t splits;
  std::int32_t heads;
  std::int32_t head_dim;
  float* out;
  std::int64_t out_stride;
};

// What each rank of a group that adds up over its peers' memory is given (ipc_protocol.cuh).
constexpr int kIpcRanksMax = 8;
constexpr int kIpcBlocksMax = 16;

// A rank's own, in its device's memory; zeroed before the first call.
struct IpcState {
  std::uint64_t epoch;       // of the last call that ended
  std::uint32_t arrived;     // blocks that have ended this call
  std::uint32_t has_failed;  // for good: later calls do nothing
};

struct IpcGroup {
  std::int32_t rank;
  std::int32_t ranks;
  unsigned char* buffers[kIpcRanksMax];  // of each rank, as this rank's device sees them
  std::int64_t half_bytes;               // of each of a buffer's halves
  IpcState* state;
  const std::uint32_t* abort_word;  // of the host; not 0: leave
  std::uint64_t* fault;             // of the host: an IpcFault of a call that could not end, or 0
  std::uint64_t deadline_ns;        // for a peer to come
};

// accumulate += the sum over ranks of partial.
struct AllReduceArguments {
  IpcGroup group;
  const double* partial;
  float* accumulate;
  std::int64_t pairs;  // of elements
};

// The same, and then the norm of what `accumulate` has become: of `tokens` rows, norm.in.
struct AllReduceNormArguments {
  AllReduceArguments sum;
  std::int32_t tokens;
  NormArguments norm;
};

// accumulate += sums.
struct AddSumsArguments {
  const double* sums;
  float* accumulate;
  std::int64_t count;
};

// How a token is drawn from a row of logits.
struct RowSample {
  enum Kind : std::int32_t {
    greedy,  // the largest
    all,     // from all
    some,    // from what min_p, top_k and top_p leave
  };
  Kind kind;
  std::int32_t top_k;  // 0: all
  float scale;         // one over the temperature
  double min_p, top_p;
  double uniform;  // in [0, 1)
};

// In place of a token: the logits have a NaN, an infinity or nothing finite; or more of them may be
// drawn than a block sorts.
constexpr std::int32_t kUnsoundLogits = -1;
constexpr std::int32_t kSampleOnHost = -2;
constexpr int kSampleChunk = 512;  // columns whose weights are added up by themselves
constexpr int kSampleChunksMax = 1024;
constexpr int kSampleSorted = 1024;

struct SampleArguments {
  const float* logits;  // [rows, vocab]
  std::int64_t stride;
  std::int32_t vocab;  // at most kSampleChunk * kSampleChunksMax
  const RowSample* rows;
  std::int32_t* tokens;  // [rows]
};

}  // namespace plimsoll::cuda
