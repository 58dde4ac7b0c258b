// AttentionKernel: the inner loops of attention for one instruction set; raw pointers alone.
//
// Units compiled for one instruction set include this, so it has no functions. In every one of
// these loops a row's arithmetic is the same whatever other rows are in the call.
#pragma once

#include <cstdint>

#include "kernels/backend.h"

namespace plimsoll {

constexpr std::int64_t kSumLanes = 16;  // lanes of the widest path's running sums

// Rows (query token, head of the group) of one tile within one split. Scores are in base 2.
struct AttentionTile {
  std::int64_t head_dim = 0;
  float* query = nullptr;   // [rows, head_dim], already times scale · log2(e)
  float* scores = nullptr;  // [rows, kKvBlockTokens]: scores, then weights, of the current block
  float* decay = nullptr;   // [rows]: factor of what earlier blocks gave
  float* max = nullptr;     // [rows]: largest score so far
  float* lanes = nullptr;   // [rows, kSumLanes]: sum of weights so far, spread over lanes
  float* out = nullptr;     // [rows, head_dim]: weighted sum of values so far
};

// Result of one or more splits: softmax(…) · V = out / sum, relative to 2^max.
struct AttentionPartial {
  float* max = nullptr;  // [rows]
  float* sum = nullptr;  // [rows]
  float* out = nullptr;  // [rows, head_dim]
};

// Consecutive rows of a tile.
struct RowRange {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

// One KV head's keys [head_dim, kKvBlockTokens] and values [kKvBlockTokens, head_dim] of a block.
// Of f16: 16-bit floats. Of int8: numbers times the scale of their token.
struct KvPage {
  const void* keys = nullptr;
  const void* values = nullptr;
  const float* key_scales = nullptr;  // [kKvBlockTokens]; of int8 alone
  const float* value_scales = nullptr;
};

// Tokens [begin, end) of a block, at least one.
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = kKvBlockTokens;
};

// The inner loops of one instruction set.
struct AttentionKernel {
  // Rotates one head in place by one position's cos and sin, each [half_dim].
  void (*rotate)(float* head, const float* cos, const float* sin, std::int64_t half_dim,
                 bool interleaved);
  // Rounds one head's key to f16 into its column of a transposed page: column[d * kKvBlockTokens].
  void (*store_key)(const float* key, std::uint16_t* column, std::int64_t head_dim);
  void (*store_value)(const float* value, std::uint16_t* row, std::int64_t head_dim);
  void (*scale)(const float* in, float factor, float* out, std::int64_t count);
  // Takes the keys of one block that these rows see into their running softmax.
  void (*attend_f16)(const AttentionTile& tile, RowRange rows, const KvPage& page, KeyRange keys);
  void (*attend_int8)(const AttentionTile& tile, RowRange rows, const KvPage& page, KeyRange keys);
  // sum[r] = the row's lanes together.
  void (*sum_lanes)(const AttentionTile& tile, RowRange rows, float* sum);
  // into = into ⊕ from, of later keys.
  void (*fold)(const AttentionPartial& into, const AttentionPartial& from, RowRange rows,
               std::int64_t head_dim);
};

extern const AttentionKernel kAttentionScalar;
extern const AttentionKernel kAttentionAvx2;
extern const AttentionKernel kAttentionAvx512;

}  // namespace plimsoll
