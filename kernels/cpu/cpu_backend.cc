#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/thread_team.h"
#include "kernels/op_checks.h"
#include "shared/base/check.h"

namespace plimsoll {
namespace {

// A call in a step that breaks its rules is a fault of ours: nothing sensible can follow.
void require(const Status& status) {
  if (status) return;
  std::fprintf(stderr, "CHECK failed: %s\n", status.error().message.c_str());
  std::abort();
}

class CpuBackend : public Backend {
 public:
  CpuBackend(const CpuBackendOptions& options, CpuPath path)
      : options_(options),
        path_(path),
        linear_kernel_(linear_kernel(path)),
        attention_kernel_(attention_kernel(path)),
        team_({.threads = options.threads, .cpus = options.cpus, .spin = options.spin}) {}

  const Status& team_status() const { return team_.status(); }

  std::string description() const override {
    return std::string("cpu ") + cpu_path_name(path_) + ", " + std::to_string(options_.threads) +
           (options_.threads == 1 ? " thread, " : " threads, ") +
           (options_.activations == Activations::int8 ? "int8" : "f32") + " activations";
  }

  // The operations follow each other, so one scratch serves them all.
  Bytes workspace_bytes(const BackendLimits& limits) const override {
    const Bytes bytes = std::max(linear_scratch_bytes(limits, options_.threads),
                                 attention_scratch_bytes(limits, options_.threads));
    return round_up(bytes, 64);
  }

  Status set_workspace(const BackendLimits& limits, std::span<std::byte> memory) override {
    const Bytes needed = workspace_bytes(limits);
    if (std::ssize(memory) < needed) {
      return internal_error("set the CPU workspace: " + std::to_string(memory.size()) +
                            " bytes given, " + std::to_string(needed) + " needed");
    }
    if (reinterpret_cast<std::uintptr_t>(memory.data()) % 64 != 0) {
      return internal_error("set the CPU workspace: the memory is not aligned to 64 bytes");
    }
    limits_ = limits;
    workspace_ = memory;
    return {};
  }

  Result<PackedPart> pack(const StoredSlice& slice, std::span<std::byte> destination) override {
    TRY(check_pack(slice, destination));
    const std::int64_t rows = slice.row_end - slice.row_begin;
    const std::int64_t groups = ceil_div(rows, kPackedRows);
    team_.run([&](int index) {
      pack_groups(slice, groups * index / team_.size(), groups * (index + 1) / team_.size(),
                  destination.data());
    });
    return PackedPart{.dtype = slice.dtype,
                      .rows = rows,
                      .cols = slice.col_end - slice.col_begin,
                      .data = destination.data()};
  }

  void embed(const PackedMatrix& table, std::span<const std::int32_t> ids, float scale,
             TensorView out) override {
    require(check_embed(table, ids, out));
    run_embed(table, ids, scale, out);
  }

  void linear(const LinearCall& call) override {
    require(check_linear(call, limits_));
    run_linear(call, linear_kernel_, options_.activations, team_, workspace_);
  }

  void add_normed(TensorView in, Norm norm, TensorView out) override {
    require(check_add_normed(in, norm, out));
    run_add_normed(in, norm, out, linear_kernel_, team_);
  }

  void attention(const AttentionCall& call) override {
    require(check_attention(call, limits_));
    run_attention(call, attention_kernel_, team_, workspace_);
  }

  void copy_rows(TensorView in, std::span<const std::int32_t> rows, TensorView out) override {
    CHECK(std::ssize(rows) == out.rows && in.cols == out.cols);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::memcpy(out.row(static_cast<std::int64_t>(i)), in.row(rows[i]),
                  static_cast<std::size_t>(in.cols) * sizeof(float));
    }
  }

  Result<TensorView> read(TensorView from, std::span<float>) override { return from; }

 private:
  CpuBackendOptions options_;
  CpuPath path_;
  const LinearKernel& linear_kernel_;
  const AttentionKernel& attention_kernel_;
  ThreadTeam team_;
  BackendLimits limits_;
  std::span<std::byte> workspace_;
};

}  // namespace

const char* cpu_path_name(CpuPath path) {
  switch (path) {
    case CpuPath::scalar:
      return "scalar";
    case CpuPath::avx2:
      return "avx2";
    case CpuPath::avx512:
      return "avx512-vnni";
  }
  return "unknown";
}

std::optional<CpuPath> parse_cpu_path(std::string_view name) {
  for (const CpuPath path : {CpuPath::scalar, CpuPath::avx2, CpuPath::avx512}) {
    if (name == cpu_path_name(path)) return path;
  }
  return std::nullopt;
}

CpuPath best_cpu_path() { return best_path(detect_cpu_features()); }

bool cpu_path_runs_here(CpuPath path) { return supports(detect_cpu_features(), path); }

Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuBackendOptions& options) {
  const CpuFeatures features = detect_cpu_features();
  const CpuPath path = options.path.value_or(best_path(features));
  if (!supports(features, path)) return path_refusal(features, path);
  auto backend = std::make_unique<CpuBackend>(options, path);
  TRY_CONTEXT("make the CPU backend: ", backend->team_status());
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace plimsoll
