#include "kernels/cpu/linear.h"

#include <algorithm>

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/packed_layout.h"
#include "shared/base/check.h"

namespace plimsoll {
namespace {

// Up to so many tokens, each thread quantises for itself: it takes less time than a barrier.
constexpr std::int64_t kOwnPanelsTokens = 2;
// From so many tokens a thread on, threads share the tokens and not the rows: each works on panels
// that no other has, which saves a barrier and the traffic between caches, and reads all weights.
// So many that one panel more or less than others have is little.
constexpr std::int64_t kOwnTokens = 48;
// Bytes of panels that one pass over the weights works on: a share of the second-level cache.
constexpr Bytes kChunkBytes = 256 * kKiB;
// Tiles of segments that are kept before they are added up: with the sums in a register then.
constexpr int kTilesAtOnce = 8;

enum class PanelType { int8, bf16, f32 };
constexpr PanelType kPanelTypes[] = {PanelType::int8, PanelType::bf16, PanelType::f32};
constexpr std::size_t index_of(PanelType type) { return static_cast<std::size_t>(type); }

// Of one token in a panel.
constexpr Bytes bytes_of(PanelType type, std::int64_t cols) {
  if (type == PanelType::int8) return ceil_div(cols, kSubBlock) * kInt8BlockBytes;
  if (type == PanelType::bf16) return ceil_div(cols, 2) * kBf16PairBytes;
  return cols * 4;
}
// Flags of a panel; the first of its tokens has the room.
constexpr Bytes more_bytes(std::int64_t cols) {
  return ceil_div(cols, kSubBlock) * static_cast<Bytes>(sizeof(std::uint64_t));
}
// Of a call, which has panels of at most two types: bf16 panels are the smallest.
constexpr Bytes panel_bytes(std::int64_t cols) {
  return 2 * bytes_of(PanelType::int8, cols) + more_bytes(cols) + bytes_of(PanelType::f32, cols);
}

// The panels of one call: those of token t's panel start at t (a multiple of panel_tokens) times
// the bytes of a token.
struct Panels {
  std::uint64_t* more = nullptr;
  std::byte* of[std::size(kPanelTypes)] = {};
  Bytes second = 0;  // from an int8 panel to its second one
};

struct PartRange {
  const PackedPart* part = nullptr;
  PanelType type = PanelType::f32;
  Bytes group_bytes = 0;
  Bytes segment_bytes = 0;                      // of a group
  TileFunction full = nullptr;                  // of panels of panel_tokens
  TileFunction tail = nullptr;                  // of the last panel, where it is narrower
  std::int64_t row_begin = 0, row_end = 0;      // of the part
  std::int64_t group_begin = 0, group_end = 0;  // that hold them
  std::int64_t out_col = 0;                     // of row_begin
};

// One call with what is the same for all threads worked out.
class Linear {
 public:
  Linear(const LinearCall& call, const LinearKernel& kernel, Activations activations,
         std::span<std::byte> scratch)
      : call_(call),
        kernel_(kernel),
        activations_(activations),
        tokens_(call.in.rows),
        cols_(call.weight->cols),
        segment_cols_(call.weight->segment_cols == 0 ? cols_ : call.weight->segment_cols) {
    for (const PackedPart& part : call.weight->parts) needs_[index_of(type_for(part.dtype))] = true;
    // There is no room for all three: BF16 takes what F16 or F32 have in this matrix.
    if (needs(PanelType::int8) && needs(PanelType::f32)) needs_[index_of(PanelType::bf16)] = false;
    std::int64_t out_col = 0;
    for (const PackedPart& part : call.weight->parts) {
      PartRange& range = ranges_[parts_++];
      const bool all = call.row_end == 0;
      range.part = &part;
      range.type = type_for(part.dtype);
      if (!needs(range.type)) range.type = PanelType::f32;
      range.group_bytes = packed_bytes(part.dtype, kPackedRows, cols_);
      range.segment_bytes = packed_bytes(part.dtype, kPackedRows, segment_cols_);
      range.full = tile_for(range, kernel.panel_tokens);
      range.tail = tile_for(range, static_cast<int>(tokens_ % kernel.panel_tokens));
      range.row_begin = all ? 0 : call.row_begin;
      range.row_end = all ? part.rows : call.row_end;
      range.group_begin = range.row_begin / kPackedRows;
      range.group_end = ceil_div(range.row_end, kPackedRows);
      range.out_col = out_col;
      out_col += range.row_end - range.row_begin;
    }
    scratch_ = scratch.data();
  }

  void run(ThreadTeam& team) {
    const int threads = team.size();
    if (threads > 1 && tokens_ >= kOwnTokens * threads) return run_by_tokens(team);
    const bool own = tokens_ <= kOwnPanelsTokens;
    team.run([&](int index) {
      const Panels panels = panels_of(own ? index * kOwnPanelsTokens : 0);
      if (own) {
        fill(panels, 0, tokens_);
      } else {
        fill(panels, tokens_ * index / threads, tokens_ * (index + 1) / threads);
        team.barrier();
      }
      multiply(panels, 0, tokens_, {.index = index, .threads = threads});
    });
  }

 private:
  bool needs(PanelType type) const { return needs_[index_of(type)]; }

  PanelType type_for(DType dtype) const {
    if (activations_ == Activations::f32) return PanelType::f32;
    if (is_quantised(dtype)) return PanelType::int8;
    const bool is_rounded = dtype == DType::bf16 && kernel_.round != nullptr;
    return is_rounded ? PanelType::bf16 : PanelType::f32;
  }

  TileFunction tile_for(const PartRange& range, int tokens) const {
    if (range.type == PanelType::bf16) return kernel_.bf16_tile(tokens);
    return kernel_.tile(range.part->dtype,
                        range.type == PanelType::int8 ? Activations::int8 : Activations::f32,
                        tokens);
  }

  void run_by_tokens(ThreadTeam& team) {
    const std::int64_t width = kernel_.panel_tokens;
    const std::int64_t count = ceil_div(tokens_, width);
    team.run([&](int index) {
      const Panels panels = panels_of(0);
      const std::int64_t begin = count * index / team.size() * width;
      const std::int64_t end = std::min(count * (index + 1) / team.size() * width, tokens_);
      fill(panels, begin, end);
      multiply(panels, begin, end, {.index = 0, .threads = 1});
    });
  }

  Panels panels_of(std::int64_t first_token) const {
    std::byte* base = scratch_ + first_token * panel_bytes(cols_);
    const std::int64_t tokens = std::max(tokens_, std::int64_t{1});
    Panels panels{.more = reinterpret_cast<std::uint64_t*>(base),
                  .second = tokens * bytes_of(PanelType::int8, cols_)};
    base += tokens * more_bytes(cols_);
    for (const PanelType type : kPanelTypes) {
      if (!needs(type)) continue;
      panels.of[index_of(type)] = base;
      base += (type == PanelType::int8 ? 2 : 1) * tokens * bytes_of(type, cols_);
    }
    return panels;
  }

  std::uint64_t* more_of(const Panels& panels, std::int64_t first) const {
    return panels.more + first * ceil_div(cols_, kSubBlock);
  }

  int panel_width(std::int64_t first_token) const {
    return static_cast<int>(std::min<std::int64_t>(kernel_.panel_tokens, tokens_ - first_token));
  }

  void fill(const Panels& panels, std::int64_t begin, std::int64_t end) const {
    for (std::int64_t t = begin; t < end; ++t) {
      NormedRow row{.row = call_.in.row(t), .cols = cols_, .weight = call_.norm.weight};
      if (row.weight != nullptr) row.rms = kernel_.rms_of(row.row, cols_, call_.norm.eps);
      const std::int64_t first = t - t % kernel_.panel_tokens;
      const int token = static_cast<int>(t - first), width = panel_width(first);
      const auto panel_of_type = [&](PanelType type) {
        return panels.of[index_of(type)] + first * bytes_of(type, cols_);
      };
      if (needs(PanelType::int8)) {
        std::byte* panel = panel_of_type(PanelType::int8);
        kernel_.quantise(row, token, width,
                         {.first = panel,
                          .second = panel + panels.second,
                          .is_shared = adds_up(),
                          .more = reinterpret_cast<std::uint8_t*>(more_of(panels, first))});
      }
      if (needs(PanelType::bf16)) {
        kernel_.round(row, token, width, panel_of_type(PanelType::bf16));
      }
      if (needs(PanelType::f32)) {
        kernel_.spread(row, token, width, panel_of_type(PanelType::f32));
      }
    }
  }

  // Which of the groups.
  struct Share {
    int index = 0;
    int threads = 1;
    std::int64_t begin(std::int64_t groups) const { return groups * index / threads; }
    std::int64_t end(std::int64_t groups) const { return groups * (index + 1) / threads; }
  };

  // Token chunks whose panels stay in cache, each over all of this thread's groups.
  void multiply(const Panels& panels, std::int64_t begin, std::int64_t end,
                const Share& share) const {
    Bytes token_bytes = 0;
    for (const PanelType type : kPanelTypes) {
      if (needs(type)) token_bytes = std::max(token_bytes, bytes_of(type, cols_));
    }
    const std::int64_t chunk =
        std::max<std::int64_t>(1, kChunkBytes / token_bytes / kernel_.panel_tokens) *
        kernel_.panel_tokens;
    for (std::int64_t t = begin; t < end; t += chunk) {
      multiply_chunk(panels, t, std::min(t + chunk, end), share);
    }
  }

  void multiply_chunk(const Panels& panels, std::int64_t begin, std::int64_t end,
                      const Share& share) const {
    if (is_gated(call_.epilogue)) {
      const std::int64_t groups = ranges_[0].group_end;
      for (std::int64_t g = share.begin(groups); g < share.end(groups); ++g) {
        group_times_tokens(ranges_[0], &ranges_[1], g, panels, begin, end);
      }
      return;
    }
    std::int64_t groups = 0;
    for (int p = 0; p < parts_; ++p) groups += ranges_[p].group_end - ranges_[p].group_begin;
    const std::int64_t mine_begin = share.begin(groups);
    const std::int64_t mine_end = share.end(groups);
    std::int64_t before = 0;
    for (int p = 0; p < parts_; ++p) {
      const PartRange& range = ranges_[p];
      const std::int64_t shift = range.group_begin - before;
      const std::int64_t first = std::max(mine_begin + shift, range.group_begin);
      const std::int64_t last = std::min(mine_end + shift, range.group_end);
      for (std::int64_t g = first; g < last; ++g) {
        group_times_tokens(range, nullptr, g, panels, begin, end);
      }
      before += range.group_end - range.group_begin;
    }
  }

  // One group (of gate and, where given, of up) times the panels of tokens [begin, end).
  void group_times_tokens(const PartRange& range, const PartRange* up, std::int64_t group,
                          const Panels& panels, std::int64_t begin, std::int64_t end) const {
    alignas(64) float tile[kPanelTokensMax * kTileRows];
    alignas(64) float up_tile[kPanelTokensMax * kTileRows];
    const std::int64_t row = group * kPackedRows;
    TileTarget target{
        .first = static_cast<int>(std::max(range.row_begin - row, std::int64_t{0})),
        .last = static_cast<int>(std::min(range.row_end - row, kPackedRows)),
    };
    const std::int64_t col = range.out_col + row + target.first - range.row_begin;
    for (std::int64_t t = begin; t < end; t += target.tokens) {
      target.tokens = panel_width(t);
      if (call_.epilogue == Epilogue::partial) {
        target.sums = call_.sums.row(t) + col;
        target.stride = call_.sums.stride;
      } else {
        target.out = call_.out.row(t) + col;
        target.stride = call_.out.stride;
      }
      if (adds_up()) {
        alignas(64) double sums[kPanelTokensMax * kTileRows] = {};
        compute_sums(range, group, panels, t, target.tokens, sums);
        kernel_.finish_sums(call_.epilogue, sums, target);
        continue;
      }
      compute(range, group, panels, t, target.tokens, tile);
      if (up != nullptr) compute(*up, group, panels, t, target.tokens, up_tile);
      kernel_.finish(call_.epilogue, tile, up_tile, target);
    }
  }

  bool adds_up() const {
    return call_.epilogue == Epilogue::add || call_.epilogue == Epilogue::partial;
  }

  const std::byte* panel_of(const PartRange& range, const Panels& panels,
                            std::int64_t first) const {
    return panels.of[index_of(range.type)] + first * bytes_of(range.type, cols_);
  }

  void compute(const PartRange& range, std::int64_t group, const Panels& panels, std::int64_t first,
               int tokens, float* tile) const {
    const TileFunction function = tokens == kernel_.panel_tokens ? range.full : range.tail;
    function(
        range.part->data + group * range.group_bytes, panel_of(range, panels, first),
        {.all = cols_, .segment = cols_, .second = panels.second, .more = more_of(panels, first)},
        tile);
  }

  // As compute, segment by segment, some of them at once.
  void compute_sums(const PartRange& range, std::int64_t group, const Panels& panels,
                    std::int64_t first, int tokens, double* sums) const {
    alignas(64) float tiles[kTilesAtOnce * kPanelTokensMax * kTileRows];
    const TileFunction function = tokens == kernel_.panel_tokens ? range.full : range.tail;
    const Bytes segment_bytes = tokens * bytes_of(range.type, segment_cols_);
    const std::byte* weights = range.part->data + group * range.group_bytes;
    const std::byte* panel = panel_of(range, panels, first);
    for (std::int64_t c = 0; c < cols_; c += kTilesAtOnce * segment_cols_) {
      const std::int64_t cols = std::min(kTilesAtOnce * segment_cols_, cols_ - c);
      function(weights, panel,
               {.all = cols,
                .segment = segment_cols_,
                .second = panels.second,
                .more = more_of(panels, first) + c / kSubBlock},
               tiles);
      kernel_.add_tiles(tiles, static_cast<int>(ceil_div(cols, segment_cols_)), tokens, sums);
      weights += kTilesAtOnce * range.segment_bytes;
      panel += kTilesAtOnce * segment_bytes;
    }
  }

  const LinearCall& call_;
  const LinearKernel& kernel_;
  Activations activations_;
  std::int64_t tokens_;
  std::int64_t cols_;
  std::int64_t segment_cols_;
  std::byte* scratch_ = nullptr;
  PartRange ranges_[3];
  int parts_ = 0;
  bool needs_[std::size(kPanelTypes)] = {};
};

}  // namespace

const LinearKernel& linear_kernel(CpuPath path) {
  switch (path) {
    case CpuPath::avx512:
      return detect_cpu_features().avx512bf16 ? avx512bf16_linear_kernel() : avx512_linear_kernel();
    case CpuPath::avx2:
      return avx2_linear_kernel();
    case CpuPath::scalar:
      break;
  }
  return scalar_linear_kernel();
}

Bytes linear_scratch_bytes(const BackendLimits& limits, int threads) {
  const std::int64_t tokens = std::max(limits.tokens_max, threads * kOwnPanelsTokens);
  return round_up(tokens * panel_bytes(limits.cols_max), 64);
}

void run_linear(const LinearCall& call, const LinearKernel& kernel, Activations activations,
                ThreadTeam& team, std::span<std::byte> scratch) {
  if (call.in.rows == 0) return;
  Linear(call, kernel, activations, scratch).run(team);
}

void run_embed(const PackedMatrix& table, std::span<const std::int32_t> ids, float scale,
               const TensorView& out) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::int64_t index = ids[i];
    const PackedPart* part = table.parts.data();
    for (; index >= part->rows; ++part) index -= part->rows;
    const std::byte* group =
        part->data + index / kPackedRows * packed_bytes(part->dtype, kPackedRows, part->cols);
    const int lane = static_cast<int>(index % kPackedRows);
    float* to = out.row(static_cast<std::int64_t>(i));
    if (!is_quantised(part->dtype)) {
      for (std::int64_t c = 0; c < part->cols; ++c) {
        to[c] = scale * unpack_float(part->dtype, group, part->cols, c, lane);
      }
      continue;
    }
    for (std::int64_t c = 0; c < part->cols; c += kSubBlock) {
      UnpackedRow row;
      unpack_row(part->dtype, group, c / kSubBlock, lane, row);
      for (int k = 0; k < kSubBlock; ++k) {
        to[c + k] = scale * (row.scale[k / 16] * static_cast<float>(row.quants[k]) + row.min);
      }
    }
  }
}

void run_add_normed(const TensorView& in, const Norm& norm, const TensorView& out,
                    const LinearKernel& kernel, ThreadTeam& team) {
  const auto add_rows = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      float* from = in.row(t);
      float* to = out.row(t);
      const float rms = kernel.rms_of(from, in.cols, norm.eps);
      for (std::int64_t c = 0; c < in.cols; ++c) to[c] += from[c] * rms * norm.weight[c];
      std::fill_n(from, in.cols, 0.0F);
    }
  };
  if (in.rows <= kOwnPanelsTokens) return add_rows(0, in.rows);
  team.run([&](int index) {
    add_rows(in.rows * index / team.size(), in.rows * (index + 1) / team.size());
  });
}

}  // namespace plimsoll
