// LinearKernel: what one instruction set contributes to `linear`: plain functions on raw pointers.
//
// Activations are laid out in panels of T tokens, T at most panel_tokens:
//   int8 panel, per 32 columns: int8 q[T][32], f32 d[T], f32 s[T], int16 n[T][2]; x = d * q,
//        s = d * sum(q), n = minus the sums of q over columns 0-15 and 16-31. 44 bytes a token.
//        In place of s and n AVX-512 has int32 -8 * sum(q) and -32 * sum(q over columns 0-15):
//        sums of products of weights with an offset begin there, without a multiplication.
//   f32 panel: f32 x[cols][T].
//   bf16 panel, per two columns: bf16 x[T][2]; a last column without a pair has 0 beside it.
//
// One value that is far larger than the others of its block takes their precision (outlier
// channels: Dettmers et al. 2022, LLM.int8()). Blocks with such a value are rounded twice: what the
// first rounding left is a block of a second panel. Where one token of a panel needs it all are
// multiplied; of the others it has d = s = 0, and adds exactly nothing.
//
// A tile is the product of one group of 16 packed rows with one panel: f32 [T][16].
//
// Batch invariance: in every function the f32 operations of one (row, token) are the same, in the
// same order, for every T. Integer sums are exact, so their order is free.
//
// With the epilogues `add` and `partial`, a tile is the product over one segment of the columns,
// and tiles are added up in f64 (backend.h, split invariance).
//
// Declarations only: the units of wider instruction sets include this (see linear_tile.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "shared/model/dtype.h"

namespace plimsoll {

constexpr int kTileRows = 16;
static_assert(kTileRows == kPackedRows);
constexpr int kPanelTokensMax = 8;
static_assert(kPanelTokensMax == sizeof(std::uint64_t));  // flags of a block
constexpr std::int64_t kInt8BlockBytes = 44;              // of one token and 32 columns
constexpr std::int64_t kBf16PairBytes = 4;                // of one token and two columns
// Its square is over so many times the mean square of its row; or of its block, most of whose 32
// it then is, where ranks share the row and none knows all of it.
constexpr float kOutlierOfRow = 64;
constexpr float kOutlierOfBlock = 28;

// gelu(z) = z * sigmoid(kGeluTwice * (z + kGeluCubic * z^3)): the form with tanh, rewritten.
constexpr float kGeluTwice = 1.5957691216F;  // 2 sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715F;

// One row of activations and how it is normed: x[c] = row[c] * rms * weight[c]; weight nullptr: x =
// row.
struct NormedRow {
  const float* row = nullptr;
  std::int64_t cols = 0;
  const float* weight = nullptr;
  float rms = 0;  // 1 / sqrt(mean(row²) + eps)
};

// An int8 panel, for those who write it.
struct Int8Panel {
  std::byte* first = nullptr;
  std::byte* second = nullptr;   // what the first rounding left
  bool is_shared = false;        // of a row whose columns ranks may share
  std::uint8_t* more = nullptr;  // [blocks][kPanelTokensMax]: whether a token's block has a second
};

// Where finished rows go: tile rows [first, last) to out[token * stride + 0, last - first).
struct TileTarget {
  int tokens = 0;
  int first = 0, last = kTileRows;
  float* out = nullptr;    // of all but partial
  double* sums = nullptr;  // of partial
  std::int64_t stride = 0;
};

// The columns of a call of a tile function: one tile for each segment of `segment` of them. Of int8
// panels: bytes from the first to the second panel, and for each block whether it has a second;
// nullptr: none has.
struct TileColumns {
  std::int64_t all = 0;
  std::int64_t segment = 0;
  std::int64_t second = 0;
  const std::uint64_t* more = nullptr;
};

// tiles = group · panelᵀ, segment by segment.
using TileFunction = void (*)(const std::byte* group, const std::byte* panel,
                              const TileColumns& cols, float* tiles);

struct LinearKernel {
  int panel_tokens = 1;

  // 1 / sqrt(mean(row²) + eps), all in f32.
  float (*rms_of)(const float* row, std::int64_t cols, float eps);
  // Writes the row as token `token` of a panel of `width` tokens.
  void (*quantise)(const NormedRow& row, int token, int width, const Int8Panel& panel);
  void (*spread)(const NormedRow& row, int token, int width, std::byte* panel);

  // The function for a weight type and panels of `tokens` tokens; `activations` says which panel.
  TileFunction (*tile)(DType dtype, Activations activations, int tokens);

  // Where the CPU multiplies BF16 (else nullptr): writes the row, rounded, as token `token` of a
  // bf16 panel; and the function for BF16 weights and such panels of `tokens` tokens.
  void (*round)(const NormedRow& row, int token, int width, std::byte* panel) = nullptr;
  TileFunction (*bf16_tile)(int tokens) = nullptr;

  // sums[tokens][16] += each of `count` tiles of `tokens` tokens, in order.
  void (*add_tiles)(const float* tiles, int count, int tokens, double* sums);

  // Tile rows of sums to where they go: `partial` as they are, `add` added to what is there and
  // rounded once.
  void (*finish_sums)(Epilogue epilogue, const double* sums, const TileTarget& target);

  // The epilogue store and the gated ones; `up` is read by the latter alone.
  void (*finish)(Epilogue epilogue, const float* tile, const float* up, const TileTarget& target);
};

const LinearKernel& linear_kernel(CpuPath path);
const LinearKernel& scalar_linear_kernel();
const LinearKernel& avx2_linear_kernel();
const LinearKernel& avx512_linear_kernel();
const LinearKernel& avx512bf16_linear_kernel();  // the same with BF16 products

}  // namespace plimsoll
