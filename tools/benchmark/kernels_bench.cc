// kernels_bench: the CPU backend's linear algebra, by weight type, instruction set and shape.
//
//   read                      GB/s of plain reading, one thread
//   gemv/PATH/TYPE/COLSxROWS  one token; weights come from memory. `of_read` is its GB/s divided by
//                             that of reading the same bytes, measured just before
//   gemm/PATH/TYPE/COLSxROWS  128 tokens
//   step/PATH/TOKENS          all linear algebra of one step of SmolLM2-135M as its Q4_1 file has
//   it pack/TYPE, embed/TYPE     load-time packing, GB/s of stored bytes; reading 128 rows of a
//   table
//
// One thread unless PLIMSOLL_BENCH_THREADS says more. Rates are of CPU time at one thread, so that
// other load on the machine disturbs them less; of wall time at more.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <emmintrin.h>

#include "kernels/cpu/cpu_backend.h"
#include "shared/base/check.h"

namespace plimsoll {
namespace {

constexpr Bytes kArenaBytes = 128 * kMiB;  // four times the largest third-level cache in view
constexpr std::int64_t kPrefillTokens = 128;
constexpr std::int64_t kHidden = 576, kHeads = 9, kKvHeads = 3, kHeadDim = 64;
constexpr std::int64_t kFeedForward = 1536, kVocabulary = 49152, kLayers = 30;
constexpr BackendLimits kLimits{.tokens_max = kPrefillTokens,
                                .cols_max = kFeedForward,
                                .rows_max = 2 * kFeedForward,
                                .context_max = 256,
                                .heads_max = kHeads,
                                .head_dim = kHeadDim};

struct Shape {
  std::int64_t cols = 0, rows = 0;
  Epilogue epilogue = Epilogue::store;
};
constexpr Shape kShapes[] = {{kHidden, (kHeads + 2 * kKvHeads) * kHeadDim},
                             {kHidden, 2 * kFeedForward},
                             {kFeedForward, kHidden},
                             {kHidden, kVocabulary}};

int thread_count() {
  const char* text = std::getenv("PLIMSOLL_BENCH_THREADS");
  return text == nullptr ? 1 : std::max(1, std::atoi(text));
}

// 64-byte aligned bytes that are finite values of every type: no exponent has all bits set.
class Memory {
 public:
  explicit Memory(Bytes bytes) : lines_(static_cast<std::size_t>(ceil_div(bytes, 64))) {
    std::mt19937 random(1);
    for (Line& line : lines_) {
      for (std::uint32_t& word : line.words) {
        word = static_cast<std::uint32_t>(random()) & 0x3b3b3b3bU;
      }
    }
    bytes_ = bytes;
  }
  std::byte* data() { return reinterpret_cast<std::byte*>(lines_.data()); }
  std::span<std::byte> span() { return {data(), static_cast<std::size_t>(bytes_)}; }

 private:
  struct alignas(64) Line {
    std::uint32_t words[16];
  };
  std::vector<Line> lines_;
  Bytes bytes_ = 0;
};

Memory& arena() {
  static Memory memory(kArenaBytes);
  return memory;
}

std::vector<float> activations(std::int64_t count) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

[[gnu::noinline]] void read_all(std::span<const std::byte> bytes) {
  __m128i sums[8] = {};
  const auto* p = reinterpret_cast<const __m128i*>(bytes.data());
  for (std::size_t i = 0; i + 8 <= bytes.size() / 16; i += 8) {
    for (std::size_t j = 0; j < 8; ++j) {
      sums[j] = _mm_xor_si128(sums[j], _mm_load_si128(p + i + j));
    }
  }
  benchmark::DoNotOptimize(sums);
}

// Bytes per second of CPU time of reading the arena; the better of two passes.
double read_rate() {
  double best = 0;
  for (int pass = 0; pass < 2; ++pass) {
    const double start = cpu_seconds();
    read_all(arena().span());
    best = std::max(best, static_cast<double>(kArenaBytes) / (cpu_seconds() - start));
  }
  return best;
}

struct BenchBackend {
  explicit BenchBackend(CpuPath path) {
    CpuBackendOptions options;
    options.threads = thread_count();
    options.path = path;
    auto made = make_cpu_backend(options);
    CHECK(made.has_value());
    backend = std::move(*made);
    workspace = std::make_unique<Memory>(backend->workspace_bytes(kLimits));
    CHECK(backend->set_workspace(kLimits, workspace->span()).has_value());
  }
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Memory> workspace;
};

// As many copies of a matrix as the arena holds, so that each call reads another from memory.
std::vector<PackedMatrix> copies_of(DType dtype, const Shape& shape) {
  const Bytes bytes = packed_bytes(dtype, shape.rows, shape.cols);
  std::vector<PackedMatrix> copies;
  for (Bytes at = 0; at + bytes <= kArenaBytes; at += round_up(bytes, 64)) {
    const PackedPart part{
        .dtype = dtype, .rows = shape.rows, .cols = shape.cols, .data = arena().data() + at};
    copies.push_back({.parts = {part}, .rows = shape.rows, .cols = shape.cols});
  }
  return copies;
}

void set_rates(benchmark::State& state, double macs, double bytes, double read) {
  const auto rounds = static_cast<double>(state.iterations());
  using Counter = benchmark::Counter;
  if (macs > 0) state.counters["GMAC/s"] = Counter(macs * rounds / 1e9, Counter::kIsRate);
  state.counters["GB/s"] = Counter(bytes * rounds / 1e9, Counter::kIsRate);
  if (read > 0) state.counters["of_read"] = Counter(bytes * rounds / read, Counter::kIsRate);
}

void multiply(benchmark::State& state, CpuPath path, DType dtype, const Shape& shape,
              std::int64_t tokens) {
  BenchBackend bench(path);
  const std::vector<PackedMatrix> weights = copies_of(dtype, shape);
  std::vector<float> in = activations(tokens * shape.cols);
  std::vector<float> out(static_cast<std::size_t>(tokens * shape.rows));
  const double read = tokens == 1 ? read_rate() : 0;
  std::size_t next = 0;
  for (auto _ : state) {
    bench.backend->linear({.in = f32_view(in.data(), tokens, shape.cols),
                           .norm = {},
                           .weight = &weights[next],
                           .out = f32_view(out.data(), tokens, shape.rows)});
    next = (next + 1) % weights.size();
  }
  set_rates(state, static_cast<double>(tokens * shape.cols * shape.rows),
            static_cast<double>(packed_bytes(dtype, shape.rows, shape.cols)), read);
}

// The matrices of SmolLM2-135M one after another in the arena, as a loaded shard has them.
class Model {
 public:
  Model() {
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      for (const Shape& shape : {kShapes[0], Shape{kHidden, kHidden, Epilogue::add}}) {
        add(DType::q4_1, {shape});
      }
      const Shape half{kHidden, kFeedForward, Epilogue::silu_mul};
      add(DType::q4_1, {half, half});
      add(DType::q4_1, {Shape{kFeedForward, kHidden, Epilogue::add}});
    }
    add(DType::q8_0, {kShapes[3]});
  }

  // Every linear of one step, the head for the last token alone.
  void step(Backend& backend, std::int64_t tokens) {
    for (std::size_t i = 0; i < matrices_.size(); ++i) {
      const PackedMatrix& matrix = matrices_[i];
      const std::int64_t rows = i + 1 == matrices_.size() ? 1 : tokens;
      const bool halved = epilogues_[i] == Epilogue::silu_mul;
      backend.linear({.in = f32_view(in_.data(), rows, matrix.cols),
                      .norm = {.weight = gain_.data(), .eps = 1e-5F},
                      .weight = &matrix,
                      .epilogue = epilogues_[i],
                      .out = f32_view(out_.data(), rows, halved ? matrix.rows / 2 : matrix.rows)});
    }
  }
  Bytes bytes() const { return bytes_; }
  std::int64_t macs(std::int64_t tokens) const {
    std::int64_t macs = 0;
    for (std::size_t i = 0; i < matrices_.size(); ++i) {
      const std::int64_t rows = i + 1 == matrices_.size() ? 1 : tokens;
      macs += rows * matrices_[i].rows * matrices_[i].cols;
    }
    return macs;
  }

 private:
  void add(DType dtype, const std::vector<Shape>& shapes) {
    PackedMatrix matrix;
    matrix.cols = shapes[0].cols;
    for (const Shape& shape : shapes) {
      matrix.parts.push_back({.dtype = dtype,
                              .rows = shape.rows,
                              .cols = shape.cols,
                              .data = arena().data() + bytes_});
      matrix.rows += shape.rows;
      bytes_ += packed_bytes(dtype, shape.rows, shape.cols);
    }
    CHECK(bytes_ <= kArenaBytes);
    matrices_.push_back(std::move(matrix));
    epilogues_.push_back(shapes[0].epilogue);
  }

  std::vector<PackedMatrix> matrices_;
  std::vector<Epilogue> epilogues_;
  Bytes bytes_ = 0;
  std::vector<float> in_ = activations(kPrefillTokens * kFeedForward);
  std::vector<float> gain_ = activations(kFeedForward);
  std::vector<float> out_ = std::vector<float>(kPrefillTokens * 2 * kFeedForward);
};

void step(benchmark::State& state, CpuPath path, std::int64_t tokens) {
  BenchBackend bench(path);
  Model model;
  const double read = tokens == 1 ? read_rate() : 0;
  for (auto _ : state) model.step(*bench.backend, tokens);
  set_rates(state, static_cast<double>(model.macs(tokens)), static_cast<double>(model.bytes()),
            read);
  state.counters["tokens/s"] = benchmark::Counter(static_cast<double>(tokens * state.iterations()),
                                                  benchmark::Counter::kIsRate);
}

void pack(benchmark::State& state, DType dtype) {
  const auto backend = std::move(*make_cpu_backend({}));
  const Shape shape{kFeedForward, kHidden * 8};
  const Bytes bytes = packed_bytes(dtype, shape.rows, shape.cols);
  Memory to(bytes);
  const StoredSlice slice{.dtype = dtype,
                          .bytes = arena().span().first(static_cast<std::size_t>(bytes)),
                          .cols_total = shape.cols,
                          .row_begin = 0,
                          .row_end = shape.rows,
                          .col_begin = 0,
                          .col_end = shape.cols};
  for (auto _ : state) CHECK(backend->pack(slice, to.span()).has_value());
  set_rates(state, 0, static_cast<double>(bytes), 0);
}

void embed(benchmark::State& state, DType dtype) {
  const auto backend = std::move(*make_cpu_backend({}));
  constexpr Shape kTable{1536, 8192};
  const PackedMatrix table = copies_of(dtype, kTable)[0];
  std::vector<std::int32_t> ids(kPrefillTokens);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::int32_t>(i * 61 % static_cast<std::size_t>(kTable.rows));
  }
  std::vector<float> out(static_cast<std::size_t>(kPrefillTokens * kTable.cols));
  for (auto _ : state) {
    backend->embed(table, ids, 1.0F, f32_view(out.data(), kPrefillTokens, kTable.cols));
  }
  state.SetItemsProcessed(state.iterations() * kPrefillTokens);
}

void register_all() {
  using benchmark::RegisterBenchmark;
  RegisterBenchmark("read", [](benchmark::State& state) {
    for (auto _ : state) read_all(arena().span());
    set_rates(state, 0, static_cast<double>(kArenaBytes), 0);
  });
  std::vector<benchmark::internal::Benchmark*> timed;
  for (const CpuPath path : {CpuPath::scalar, CpuPath::avx2, CpuPath::avx512}) {
    if (!cpu_path_runs_here(path)) continue;
    const std::string on = std::string("/") + cpu_path_name(path) + "/";
    for (const std::int64_t tokens : {std::int64_t{1}, kPrefillTokens}) {
      timed.push_back(RegisterBenchmark(("step" + on + std::to_string(tokens)).c_str(),
                                        [=](benchmark::State& s) { step(s, path, tokens); }));
      for (const DTypeInfo& info : all_dtypes()) {
        for (const Shape& shape : kShapes) {
          if (shape.cols % info.block_length != 0 && info.block_length != 256) continue;
          Shape fitted = shape;  // K-quants need whole blocks of 256
          if (info.block_length == 256) fitted.cols = round_up(shape.cols, 256);
          if (packed_bytes(info.dtype, fitted.rows, fitted.cols) > kArenaBytes) continue;
          const std::string name = std::string(tokens == 1 ? "gemv" : "gemm") + on +
                                   std::string(info.name) + "/" + std::to_string(fitted.cols) +
                                   "x" + std::to_string(fitted.rows);
          timed.push_back(
              RegisterBenchmark(name.c_str(), [=, dtype = info.dtype](benchmark::State& s) {
                multiply(s, path, dtype, fitted, tokens);
              }));
        }
      }
    }
  }
  if (thread_count() > 1) {
    for (auto* one : timed) one->UseRealTime();
  }
  for (const DTypeInfo& info : all_dtypes()) {
    const std::string name(info.name);
    RegisterBenchmark(("pack/" + name).c_str(),
                      [dtype = info.dtype](benchmark::State& s) { pack(s, dtype); });
    RegisterBenchmark(("embed/" + name).c_str(),
                      [dtype = info.dtype](benchmark::State& s) { embed(s, dtype); });
  }
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  plimsoll::register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
