#include "kernels/op_checks.h"

#include <algorithm>
#include <string>

#include "shared/model/head_limits.h"

namespace plimsoll {
namespace {

std::string number(std::int64_t value) { return std::to_string(value); }

std::string shape(std::int64_t rows, std::int64_t cols) {
  return "[" + number(rows) + ", " + number(cols) + "]";
}

Error fault(const std::string& what) { return internal_error(what); }

Status check_view(const char* name, const TensorView& view, std::int64_t rows, std::int64_t cols) {
  if (view.dtype != DType::f32) return fault(std::string(name) + " is not f32");
  if (view.rows != rows || view.cols != cols || view.stride < cols) {
    return fault(std::string(name) + " is " + shape(view.rows, view.cols) + " with stride " +
                 number(view.stride) + ", expected " + shape(rows, cols));
  }
  if (view.data == nullptr && rows != 0) return fault(std::string(name) + " has no memory");
  return {};
}

Status check_sums(const SumsView& sums, std::int64_t rows, std::int64_t cols) {
  if (sums.rows != rows || sums.cols != cols || sums.stride < cols) {
    return fault("sums are " + shape(sums.rows, sums.cols) + " with stride " + number(sums.stride) +
                 ", expected " + shape(rows, cols));
  }
  if (sums.data == nullptr && rows != 0) return fault("sums have no memory");
  return {};
}

Status check_matrix(const PackedMatrix& matrix) {
  std::int64_t rows = 0;
  for (const PackedPart& part : matrix.parts) {
    if (part.data == nullptr || part.rows <= 0) return fault("weight part is empty");
    if (part.cols != matrix.cols) return fault("weight parts differ in columns");
    rows += part.rows;
  }
  if (matrix.parts.empty() || matrix.parts.size() > 3) return fault("weight has not 1 to 3 parts");
  if (rows != matrix.rows) return fault("weight's rows are not the sum of its parts' rows");
  return {};
}

Status check_sequence(const SequenceRows& sequence, const KvCache& cache, std::int64_t context) {
  const std::int64_t end = sequence.position + sequence.tokens;
  if (sequence.tokens <= 0 || sequence.position < 0) return fault("sequence without tokens");
  if (end > context) {
    return fault("sequence of " + number(end) + " positions exceeds the context of " +
                 number(context));
  }
  const std::int64_t needed = ceil_div(end, kKvBlockTokens);
  if (std::ssize(sequence.blocks) < needed) {
    return fault("block table of " + number(std::ssize(sequence.blocks)) + " blocks for " +
                 number(end) + " positions, " + number(needed) + " needed");
  }
  for (std::int64_t i = 0; i < needed; ++i) {
    const std::int32_t block = sequence.blocks[static_cast<std::size_t>(i)];
    const bool is_there =
        (block >= 0 && block < cache.blocks) || (cache.has_null_block && block == kNullBlock);
    if (!is_there) {
      return fault("KV block " + number(block) + " of a cache of " + number(cache.blocks));
    }
  }
  return {};
}

Status check_segments(const LinearCall& call) {
  const std::int64_t segment = call.weight->segment_cols;
  if (segment == 0) return {};
  if (call.epilogue != Epilogue::add && call.epilogue != Epilogue::partial) {
    return fault("a weight with segments is only added up: add or partial");
  }
  for (const PackedPart& part : call.weight->parts) {
    // The CPU packs BF16 two columns at a time.
    const std::int64_t block =
        part.dtype == DType::bf16 ? 2 : std::int64_t{dtype_info(part.dtype).block_length};
    if (segment < 0 || segment % block != 0) {
      return fault("segments of " + number(segment) + " columns are not whole blocks of " +
                   number(block));
    }
  }
  return {};
}

}  // namespace

Status check_pack(const StoredSlice& slice, std::span<const std::byte> destination) {
  const DTypeInfo& info = dtype_info(slice.dtype);
  const std::string what = "pack a " + std::string(info.name) + " weight: ";
  const std::int64_t block = info.block_length;
  if (slice.cols_total <= 0 || slice.cols_total % block != 0) {
    return invalid(what + number(slice.cols_total) + " columns are not whole blocks of " +
                   number(block));
  }
  const std::int64_t row_bytes = stored_bytes(slice.dtype, slice.cols_total);
  const std::int64_t rows_total = std::ssize(slice.bytes) / row_bytes;
  if (std::ssize(slice.bytes) % row_bytes != 0) {
    return invalid(what + number(std::ssize(slice.bytes)) + " bytes are not whole rows of " +
                   number(row_bytes) + " bytes");
  }
  if (slice.row_begin < 0 || slice.row_begin >= slice.row_end || slice.row_end > rows_total) {
    return invalid(what + "rows [" + number(slice.row_begin) + ", " + number(slice.row_end) +
                   ") of a matrix of " + number(rows_total) + " rows");
  }
  if (slice.col_begin < 0 || slice.col_begin >= slice.col_end || slice.col_end > slice.cols_total) {
    return invalid(what + "columns [" + number(slice.col_begin) + ", " + number(slice.col_end) +
                   ") of a matrix of " + number(slice.cols_total) + " columns");
  }
  if (slice.col_begin % block != 0 || slice.col_end % block != 0) {
    return invalid(what + "columns [" + number(slice.col_begin) + ", " + number(slice.col_end) +
                   ") are not cut at its blocks of " + number(block) +
                   "; choose a split whose columns are multiples of it");
  }
  const Bytes needed =
      packed_bytes(slice.dtype, slice.row_end - slice.row_begin, slice.col_end - slice.col_begin);
  if (std::ssize(destination) != needed) {
    return fault(what + number(std::ssize(destination)) + " bytes given, it takes exactly " +
                 number(needed));
  }
  if (reinterpret_cast<std::uintptr_t>(destination.data()) % 64 != 0) {
    return fault(what + "the destination is not aligned to 64 bytes");
  }
  return {};
}

Status check_embed(const PackedMatrix& table, std::span<const std::int32_t> ids,
                   const TensorView& out) {
  TRY_CONTEXT("embed: ", check_matrix(table));
  TRY_CONTEXT("embed: ", check_view("out", out, std::ssize(ids), table.cols));
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= table.rows) {
      return fault("embed: id " + number(id) + " of a table of " + number(table.rows) + " rows");
    }
  }
  return {};
}

Status check_add_normed(const TensorView& in, const Norm& norm, const TensorView& out) {
  if (norm.weight == nullptr) return fault("add_normed: no norm");
  TRY_CONTEXT("add_normed: ", check_view("in", in, out.rows, out.cols));
  return check_view("add_normed: out", out, out.rows, out.cols);
}

Status check_linear(const LinearCall& call, const BackendLimits& limits) {
  if (call.weight == nullptr) return fault("linear: no weight");
  const PackedMatrix& weight = *call.weight;
  TRY_CONTEXT("linear: ", check_matrix(weight));
  std::int64_t rows = weight.rows;
  if (call.row_begin != 0 || call.row_end != 0) {
    if (weight.parts.size() != 1 || call.row_begin < 0 || call.row_begin >= call.row_end ||
        call.row_end > weight.rows) {
      return fault("linear: rows [" + number(call.row_begin) + ", " + number(call.row_end) +
                   ") of a weight of " + number(weight.rows) + " rows");
    }
    rows = call.row_end - call.row_begin;
  }
  if (is_gated(call.epilogue)) {
    if (weight.parts.size() != 2 || weight.parts[0].rows != weight.parts[1].rows ||
        rows != weight.rows) {
      return fault("linear: a gated epilogue needs two whole parts of equal rows");
    }
    rows /= 2;
  }
  const std::int64_t tokens = call.in.rows;
  TRY_CONTEXT("linear: ", check_view("in", call.in, tokens, weight.cols));
  if (call.epilogue == Epilogue::partial) {
    TRY_CONTEXT("linear: ", check_sums(call.sums, tokens, rows));
  } else {
    TRY_CONTEXT("linear: ", check_view("out", call.out, tokens, rows));
  }
  TRY_CONTEXT("linear: ", check_segments(call));
  if (tokens > limits.tokens_max || weight.cols > limits.cols_max) {
    return fault("linear: in " + shape(tokens, weight.cols) + " exceeds the workspace of " +
                 shape(limits.tokens_max, limits.cols_max));
  }
  return {};
}

Status check_attention(const AttentionCall& call, const BackendLimits& limits) {
  if (call.cache == nullptr || call.cache->data == nullptr) return fault("attention: no KV cache");
  const KvCache& cache = *call.cache;
  if (cache.type != KvType::f16 && cache.type != KvType::int8) {
    return fault("attention: a KV cache of " + std::string(kv_type_name(cache.type)) +
                 "; there are f16 and int8");
  }
  if (call.layer < 0 || call.layer >= cache.layers) {
    return fault("attention: layer " + number(call.layer) + " of " + number(cache.layers));
  }
  if (cache.kv_heads <= 0 || call.heads <= 0 || call.heads % cache.kv_heads != 0) {
    return fault("attention: " + number(call.heads) + " heads are not a multiple of " +
                 number(cache.kv_heads) + " KV heads");
  }
  if (call.heads > limits.heads_max || cache.head_dim != limits.head_dim) {
    return fault("attention: heads " + shape(call.heads, cache.head_dim) +
                 " exceed the workspace of " + shape(limits.heads_max, limits.head_dim));
  }
  if (cache.head_dim % kHeadDimMultiple != 0 || cache.head_dim > kHeadDimMax) {
    return fault("attention: heads of " + number(cache.head_dim) + " are not multiples of " +
                 number(kHeadDimMultiple) + " up to " + number(kHeadDimMax));
  }
  if (call.heads / cache.kv_heads > kHeadsPerKvHeadMax) {
    return fault("attention: " + number(call.heads) + " heads on " + number(cache.kv_heads) +
                 " KV heads are more than " + number(kHeadsPerKvHeadMax) + " to one");
  }
  if (call.window < 0) return fault("attention: a window of " + number(call.window) + " tokens");
  const std::int64_t tokens = call.qkv.rows;
  if (tokens > limits.tokens_max) {
    return fault("attention: " + number(tokens) + " tokens exceed the workspace of " +
                 number(limits.tokens_max));
  }
  TRY_CONTEXT("attention: ", check_view("qkv", call.qkv, tokens,
                                        (call.heads + 2 * cache.kv_heads) * cache.head_dim));
  TRY_CONTEXT("attention: ", check_view("out", call.out, tokens, call.heads * cache.head_dim));
  const std::int64_t context = std::min(limits.context_max, call.rope.positions);
  std::int64_t row = 0;
  for (const SequenceRows& sequence : call.sequences) {
    if (sequence.row != row) return fault("attention: sequences do not follow each other");
    row += sequence.tokens;
    TRY_CONTEXT("attention: ", check_sequence(sequence, cache, context));
  }
  if (row != tokens) return fault("attention: sequences do not cover the rows");
  if (call.rope.half_dim * 2 > cache.head_dim || call.rope.cos == nullptr ||
      call.rope.sin == nullptr) {
    return fault("attention: rotary table does not fit heads of " + number(cache.head_dim));
  }
  return {};
}

}  // namespace plimsoll
