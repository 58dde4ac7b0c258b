// Backend: every operation that a model graph may ask for. Model code is written once against it.
//
// One thread calls (the step loop); a backend may use more inside. Calls complete in order; on the
// CPU they have completed when they return, on a GPU when `read` does. Shapes are checked once, in
// op_checks.cc, so kernels assume valid input. A backend allocates at construction and in `pack`,
// never in a step.
//
// Batch invariance (CPU, always): a row's result depends on that row and the weights alone, never
// on how many other rows the call has, on the number of threads, or on how a prompt was cut into
// chunks. So: K is summed block by block in one fixed order, attention walks KV blocks from the
// sequence's start in fixed-length splits merged in order, and K and V are read as stored (f16 or
// int8), also for tokens of the same step.
//
// Split invariance (CPU): a matrix whose columns are cut over ranks is summed in f32 within
// segments that no cut divides, and the segments' sums are added in f64, over segments and ranks,
// and rounded once. Sums of f32 values of near size are exact in f64, so the result does not depend
// on how many ranks share the columns (but for values of 2^-29 of the largest and less).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/tensor.h"
#include "shared/base/result.h"
#include "shared/base/units.h"
#include "shared/model/dtype.h"
#include "shared/model/kv_type.h"

namespace plimsoll {

// Rows [row_begin, row_end) and columns [col_begin, col_end) of a stored matrix, to be packed.
// Columns are cut on block boundaries of the type.
struct StoredSlice {
  DType dtype = DType::f32;
  std::span<const std::byte> bytes;  // of the whole stored matrix
  std::int64_t cols_total = 0;       // of the whole stored matrix
  std::int64_t row_begin = 0, row_end = 0;
  std::int64_t col_begin = 0, col_end = 0;
};

// One packed matrix [rows, cols] in the backend's own layout; `data` points into an arena.
struct PackedPart {
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const std::byte* data = nullptr;
};

// Up to three parts with the same columns, stacked: their rows follow each other in the output.
// (Parts may differ in type: a Q4_K_M file has attn_v in another type than attn_q.)
struct PackedMatrix {
  std::vector<PackedPart> parts;
  std::int64_t rows = 0;  // of all parts
  std::int64_t cols = 0;
  // Columns of a segment where the matrix is one of several ranks' (the last may be shorter): whole
  // blocks of the type. 0: all columns are one segment.
  std::int64_t segment_cols = 0;
};

struct Norm {
  const float* weight = nullptr;  // [cols] f32; nullptr: no norm
  float eps = 0;
};

enum class Epilogue {
  store,     // out[t, n]  = y[t, n]; of weights without segments
  add,       // out[t, n] += y[t, n], rounded once from f64
  partial,   // sums[t, n] = y[t, n] in f64
  silu_mul,  // two parts of N rows each (gate, up): out[t, n] = silu(gate[t, n]) * up[t, n]
  gelu_mul,  // the same with gelu(z) = z / 2 * (1 + tanh(sqrt(2 / pi) * (z + 0.044715 z^3)))
};

// Whether the weight's two parts are a gate and what it is multiplied with.
constexpr bool is_gated(Epilogue epilogue) {
  return epilogue == Epilogue::silu_mul || epilogue == Epilogue::gelu_mul;
}

// out = epilogue(rms_norm(in) · Wᵀ). On the CPU `in` is quantised to int8 per 32 columns after the
// norm, unless the backend was made with f32 activations or the part is F32 or F16; for a BF16 part
// it is rounded to bf16 where the CPU multiplies that.
struct LinearCall {
  TensorView in;  // [tokens, cols] f32
  Norm norm;
  const PackedMatrix* weight = nullptr;
  // Only these rows of the (single-part) weight; {0, 0} means all. For a tied head's vocab range.
  std::int64_t row_begin = 0, row_end = 0;
  Epilogue epilogue = Epilogue::store;
  TensorView out;      // [tokens, rows] f32 (gated: [tokens, rows / 2]; partial: nothing)
  SumsView sums = {};  // partial: [tokens, rows]
};

constexpr std::int32_t kNullBlock = -1;

// KV cache of one rank: blocks of kKvBlockTokens tokens; a block holds, for each layer and each KV
// head of the rank, K transposed [head_dim][kKvBlockTokens] and then V [kKvBlockTokens][head_dim].
// As int8, f32 scales [kKvBlockTokens] of the tokens' keys and then of their values follow: a key
// is its 8-bit numbers times its token's scale. Element (layer, head) of block b lies at data + b *
// block_bytes() + (layer * kv_heads + head) * head_bytes().
struct KvCache {
  std::byte* data = nullptr;  // 64-byte aligned
  std::int64_t blocks = 0;
  std::int64_t layers = 0;
  std::int64_t kv_heads = 0;  // of this rank
  std::int64_t head_dim = 0;
  KvType type = KvType::f16;  // or int8
  // Whether there is a block before `data`, kNullBlock, that nobody reads: rows that only fill up a
  // batch are written there.
  bool has_null_block = false;
  Bytes head_bytes() const { return 2 * kKvBlockTokens * kv_row_bytes(type, head_dim); }
  Bytes block_bytes() const { return layers * kv_heads * head_bytes(); }
};

// The tokens of one sequence in a step: rows [row, row + tokens) of the batch, at positions
// [position, position + tokens). All earlier positions are in the cache already.
struct SequenceRows {
  std::int64_t row = 0;
  std::int64_t tokens = 0;
  std::int64_t position = 0;
  std::span<const std::int32_t> blocks;  // block table; covers position + tokens tokens
};

// Rotary embedding: cos and sin of angle(position, j), j < rope_dim / 2, f32, [positions, dim / 2].
struct RopeTable {
  const float* cos = nullptr;
  const float* sin = nullptr;
  std::int64_t positions = 0;
  std::int64_t half_dim = 0;  // rope_dim / 2; dimensions at and above rope_dim stay as they are
  bool interleaved = false;   // pairs (2j, 2j+1), else (j, j + half_dim)
};

// Adds the bias, norms each head of Q and K, rotates them, stores K and V of the new tokens as the
// cache's type, then causal attention per query head h over KV head h / (heads / kv_heads); softmax
// and sums in f32. A query at position p sees the keys of positions (p - window, p].
struct AttentionCall {
  TensorView qkv;  // [tokens, (heads + 2 * kv_heads) * head_dim] f32: Q heads, K heads, V heads
  const float* bias = nullptr;  // of a row of qkv; nullptr: none
  Norm q_norm = {};             // weight [head_dim], the same for all heads
  Norm k_norm = {};
  std::span<const SequenceRows> sequences;
  const KvCache* cache = nullptr;
  std::int64_t layer = 0;
  std::int64_t heads = 0;   // of this rank; a multiple of cache->kv_heads
  float scale = 0;          // 1 / sqrt(head_dim) for Llama
  std::int64_t window = 0;  // 0: all positions before it
  RopeTable rope;
  TensorView out;  // [tokens, heads * head_dim] f32
};

struct BackendLimits {
  std::int64_t tokens_max = 0;   // rows of one step
  std::int64_t cols_max = 0;     // widest `in` of any linear
  std::int64_t rows_max = 0;     // tallest weight whose linear is gated
  std::int64_t context_max = 0;  // positions of one sequence
  std::int64_t heads_max = 0;
  std::int64_t head_dim = 0;
};

// Memory of a device that is not this process's own: tensors, weights and KV of its backend lie
// there, and only the backend's calls and `write` touch it. All of it lives as long as the backend.
class DeviceMemory {
 public:
  struct State {
    Bytes free = 0;
    Bytes total = 0;
  };
  virtual ~DeviceMemory() = default;
  virtual Result<State> state() = 0;
  // Zeroed, aligned to 256 bytes.
  virtual Result<std::span<std::byte>> allocate(Bytes bytes, const std::string& purpose) = 0;
  // This process's memory, that copies go to and from without waiting.
  virtual Result<std::span<std::byte>> allocate_host(Bytes bytes, const std::string& purpose) = 0;
  // Addresses alone; map() puts zeroed memory behind whole granules of them.
  virtual Bytes granule() const = 0;
  virtual Result<std::span<std::byte>> reserve(Bytes bytes, const std::string& purpose) = 0;
  virtual Status map(std::span<std::byte> part, const std::string& purpose) = 0;
  // Complete when it returns.
  virtual Status write(std::span<const std::byte> from, std::byte* to) = 0;
  // Where it is memory of this process all the same (the host executor): its maps.
  virtual std::vector<std::span<const std::byte>> host_maps() const { return {}; }
};

// Inputs of a step of one row a sequence, each with logits.
struct DecodeInputs {
  std::span<const std::int32_t> ids;         // [rows]
  std::span<const SequenceRows> sequences;   // of one token each
  std::span<const std::int32_t> logit_rows;  // 0, 1, 2 ... rows - 1
};

class Backend {
 public:
  virtual ~Backend() = default;

  // The path in use: "cpu avx512-vnni, 2 threads, int8 activations".
  virtual std::string description() const = 0;
  // nullptr: tensors lie in this process's memory.
  virtual DeviceMemory* device_memory() { return nullptr; }
  // Bytes of scratch memory that the limits need; made of one allocation, given by `workspace`.
  virtual Bytes workspace_bytes(const BackendLimits& limits) const = 0;
  // Called once before the first step; `memory` is 64-byte aligned and outlives the backend.
  virtual Status set_workspace(const BackendLimits& limits, std::span<std::byte> memory) = 0;

  // Packs a slice into `destination` (exactly packed_bytes() long, 64-byte aligned, zeroed).
  virtual Result<PackedPart> pack(const StoredSlice& slice, std::span<std::byte> destination) = 0;

  // out[i] = scale * row ids[i] of the table. REQUIRES: ids inside the table.
  virtual void embed(const PackedMatrix& table, std::span<const std::int32_t> ids, float scale,
                     TensorView out) = 0;
  virtual void linear(const LinearCall& call) = 0;
  // out += rms_norm(in), row by row, then in = 0, for the next sums; both [tokens, cols] f32.
  virtual void add_normed(TensorView in, Norm norm, TensorView out) = 0;
  virtual void attention(const AttentionCall& call) = 0;
  // out[i] = row rows[i] of in. REQUIRES: rows inside `in`.
  virtual void copy_rows(TensorView in, std::span<const std::int32_t> rows, TensorView out) = 0;

  // `from`, whose rows follow each other, as this process can read it: itself on the CPU, else a
  // copy in `to`, which is as long. Waits. Errors: what any call before failed by.
  virtual Result<TensorView> read(TensorView from, std::span<float> to) = 0;

  // The calls that `step` makes for a decode step of `rows` rows, `read` last, are kept and not
  // run: replay() runs them all at once, on other inputs, with the bits that they would have given,
  // and returns what `read` would. Before serving, like everything that allocates. REQUIRES:
  // can_record(); the same tensors, weights and cache each time.
  virtual bool can_record() const { return false; }
  virtual Status record(std::int64_t rows, const std::function<Status()>& step) {
    (void)rows, (void)step;
    return internal_error("this backend records no steps");
  }
  // REQUIRES: steps of inputs.ids.size() rows were recorded.
  virtual Result<TensorView> replay(const DecodeInputs& inputs) {
    (void)inputs;
    return internal_error("this backend records no steps");
  }
};

}  // namespace plimsoll
