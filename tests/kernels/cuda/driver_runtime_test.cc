#include "kernels/cuda/driver_runtime.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#if !defined(__SANITIZE_THREAD__)
#include "tests/kernels/cuda/driver_library.h"

namespace plimsoll::cuda {
namespace {

std::unique_ptr<DeviceRuntime> make_runtime() {
  auto runtime = make_driver_runtime(TestDriver::options());
  EXPECT_TRUE(runtime) << runtime.error().message;
  return std::move(*runtime);
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// Swaps two rows of two columns.
void swap_rows(DeviceRuntime& runtime, const float* from, const std::int32_t* rows, float* to,
               unsigned shared_bytes = 0) {
  runtime.launch(
      Kernel::copy_rows, {.grid = {2}, .block = {32}, .shared_bytes = shared_bytes},
      CopyRowsArguments{
          .in = from, .in_stride = 2, .rows = rows, .cols = 2, .out = to, .out_stride = 2});
}

// Three pieces of device memory and what is in the first two.
struct Swapped {
  explicit Swapped(DeviceRuntime& on) : runtime(on) {
    const auto memory = runtime.allocate(3 * 256, "values");
    EXPECT_TRUE(memory) << memory.error().message;
    from = reinterpret_cast<float*>(memory->data());
    rows = reinterpret_cast<std::int32_t*>(memory->data() + 256);
    to = reinterpret_cast<float*>(memory->data() + 512);
    runtime.copy_in(rows, order.data(), 8);
  }
  void put(std::vector<float> given) {
    values = std::move(given);
    runtime.copy_in(from, values.data(), 16);
  }
  std::vector<float> get() {
    std::vector<float> out(4);
    runtime.copy_out(out.data(), to, 16);
    const Status done = runtime.synchronize();
    EXPECT_TRUE(done) << done.error().message;
    return out;
  }
  DeviceRuntime& runtime;
  std::vector<float> values;
  std::vector<std::int32_t> order = {1, 0};
  float* from;
  std::int32_t* rows;
  float* to;
};

TEST(DriverRuntime, KernelsRunOnWhatWasCopiedIn) {
  const TestDriver driver;
  {
    const auto runtime = make_runtime();
    EXPECT_EQ(runtime->description(), "Host Executor GPU (SM 9.0)");
    Swapped memory(*runtime);
    memory.put({1, 2, 3, 4});
    swap_rows(*runtime, memory.from, memory.rows, memory.to);
    EXPECT_EQ(memory.get(), (std::vector<float>{3, 4, 1, 2}));
  }
  EXPECT_EQ(driver.held(), 0U);
}

TEST(DriverRuntime, MemoryIsZeroedAndCounted) {
  const auto runtime = make_runtime();
  const Bytes before = runtime->memory()->free;
  const auto memory = runtime->allocate(3 * kMiB, "values");
  ASSERT_TRUE(memory);
  EXPECT_EQ(before - runtime->memory()->free, 4 * kMiB);  // in pieces of 2 MiB
  std::vector<std::byte> host(3 * kMiB, std::byte{1});
  runtime->copy_out(host.data(), memory->data(), host.size());
  ASSERT_TRUE(runtime->synchronize());
  EXPECT_EQ(host, std::vector<std::byte>(3 * kMiB));
}

TEST(DriverRuntime, RecordedLaunchesRunAgainOnWhatIsThereThen) {
  const auto runtime = make_runtime();
  Swapped memory(*runtime);
  memory.put({1, 2, 3, 4});
  ASSERT_TRUE(runtime->synchronize());
  ASSERT_TRUE(runtime->begin_recording());
  swap_rows(*runtime, memory.from, memory.rows, memory.to);
  const auto recording = runtime->end_recording();
  ASSERT_TRUE(recording) << recording.error().message;
  EXPECT_EQ(memory.get(), std::vector<float>(4)) << "what is recorded does not run";
  runtime->replay(*recording);
  EXPECT_EQ(memory.get(), (std::vector<float>{3, 4, 1, 2}));
  memory.put({5, 6, 7, 8});
  runtime->replay(*recording);
  EXPECT_EQ(memory.get(), (std::vector<float>{7, 8, 5, 6}));
}

TEST(DriverRuntime, ReservedAddressesTakeMemoryWhereTheyAreMapped) {
  const TestDriver driver;
  {
    const auto runtime = make_runtime();
    const Bytes granule = runtime->granule();
    const Bytes before = runtime->memory()->free;
    const auto range = runtime->reserve(3 * granule + 1, "KV");
    ASSERT_TRUE(range) << range.error().message;
    EXPECT_EQ(std::ssize(*range), 4 * granule);
    EXPECT_EQ(runtime->memory()->free, before);
    const auto part = range->subspan(static_cast<std::size_t>(granule), 8);
    ASSERT_TRUE(runtime->map(part, "KV"));
    EXPECT_EQ(before - runtime->memory()->free, granule);
    std::vector<std::byte> host(8, std::byte{1});
    runtime->copy_out(host.data(), part.data(), host.size());
    ASSERT_TRUE(runtime->synchronize());
    EXPECT_EQ(host, std::vector<std::byte>(8));
    // Before it nothing is there.
    runtime->copy_out(host.data(), range->data(), host.size());
    EXPECT_FALSE(runtime->synchronize());
  }
  EXPECT_EQ(driver.held(), 0U);
}

TEST(DriverRuntime, WhatDoesNotFitNamesItsPurposeSizeAndDevice) {
  const auto runtime = make_runtime();
  const auto refused = runtime->allocate(100 * kGiB, "the weights");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::does_not_fit);
  EXPECT_EQ(refused.error().message,
            "allocate 100.00 GiB for the weights on Host Executor GPU (SM 9.0): "
            "CUDA_ERROR_OUT_OF_MEMORY (as injected)");
  EXPECT_TRUE(runtime->synchronize()) << "a refusal is no failure of the stream";
}

TEST(DriverRuntime, TheDriversRulesForLaunchesAreItsErrors) {
  const auto runtime = make_runtime();
  runtime->launch(Kernel::copy_rows, {.grid = {1, 70'000}, .block = {32}}, CopyRowsArguments{});
  const Status failed = runtime->synchronize();
  ASSERT_FALSE(failed);
  EXPECT_TRUE(contains(failed.error().message,
                       "launch copy_rows on Host Executor GPU (SM 9.0): CUDA_ERROR_INVALID_VALUE"))
      << failed.error().message;
}

TEST(DriverRuntime, EveryKernelMayHaveTheSharedMemoryThatItIsGiven) {
  const auto runtime = make_runtime();
  Swapped memory(*runtime);
  memory.put({1, 2, 3, 4});
  swap_rows(*runtime, memory.from, memory.rows, memory.to, kSharedBytesMax);
  EXPECT_EQ(memory.get(), (std::vector<float>{3, 4, 1, 2}));
}

TEST(DriverRuntime, AGpuIsFoundByItsUuid) {
  DriverRuntimeOptions options = TestDriver::options();
  options.uuid = "GPU-01112131-4151-6171-8191-a1b1c1d1e1f1";
  EXPECT_TRUE(make_driver_runtime(options));
  options.uuid = "GPU-0f112131-4151-6171-8191-a1b1c1d1e1f1";
  const auto missing = make_driver_runtime(options);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message, "the NVIDIA driver shows 2 GPUs, none of them " +
                                         options.uuid + "; CUDA_VISIBLE_DEVICES may hide it");
}

TEST(DriverRuntime, ABuildWithoutKernelsSaysSo) {
  DriverRuntimeOptions options = TestDriver::options();
  options.modules.clear();
  const auto refused = make_driver_runtime(options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::invalid);
  EXPECT_TRUE(contains(refused.error().message, "this build has no kernels for GPUs"));
}

TEST(DriverRuntime, AGpuThatIsTooOldOrCannotMapMemoryIsRefused) {
  {
    const ScopedVariable old("FAKE_CUDA_COMPUTE", "75");
    const auto refused = make_driver_runtime(TestDriver::options());
    ASSERT_FALSE(refused);
    EXPECT_TRUE(contains(refused.error().message, "(SM 7.5) is too old"));
  }
  const ScopedVariable shared("FAKE_CUDA_NO_MAPS", "1");
  const auto refused = make_driver_runtime(TestDriver::options());
  ASSERT_FALSE(refused);
  EXPECT_TRUE(contains(refused.error().message, "cannot map memory"));
}

// Everything that a rank asks of its device, in order.
Status use(const DriverRuntimeOptions& options) {
  const auto runtime = TRY(make_driver_runtime(options));
  TRY(runtime->memory());
  const auto memory = TRY(runtime->allocate(1000, "values"));
  const auto host = TRY(runtime->allocate_host(1000, "staging"));
  std::ranges::fill(host, std::byte{0});
  const auto range = TRY(runtime->reserve(1000, "KV"));
  TRY(runtime->map(range.first(1000), "KV"));
  auto shared = TRY(runtime->allocate_shared(1000, "sums"));
  TRY(runtime->open_shared(std::move(shared.handle), 1000, "a peer's sums"));
  alignas(4096) static std::array<std::byte, 4096> page;
  TRY(runtime->show_host(page, "a page"));
  runtime->copy_in(memory.data(), host.data(), 1000);
  TRY(runtime->synchronize());
  TRY(runtime->begin_recording());
  swap_rows(*runtime, reinterpret_cast<const float*>(memory.data()),
            reinterpret_cast<const std::int32_t*>(memory.data() + 512),
            reinterpret_cast<float*>(memory.data() + 256));
  runtime->replay(TRY(runtime->end_recording()));
  runtime->copy_out(host.data(), memory.data(), 1000);
  return runtime->synchronize();
}

TEST(DriverRuntime, WhatIsWrittenThroughAHandleIsThereForBoth) {
  const TestDriver driver;
  {
    const auto runtime = make_driver_runtime(TestDriver::options());
    ASSERT_TRUE(runtime) << runtime.error().message;
    auto shared = (*runtime)->allocate_shared(5 * kMiB, "sums");
    ASSERT_TRUE(shared) << shared.error().message;
    const auto seen = (*runtime)->open_shared(std::move(shared->handle), 5 * kMiB, "a peer's sums");
    ASSERT_TRUE(seen) << seen.error().message;
    EXPECT_NE(seen->data(), shared->memory.data());
    const std::int64_t written = 0x1234'5678'9abc;
    std::int64_t read = 0;
    std::int64_t untouched = -1;
    (*runtime)->copy_in(seen->data() + 4096, &written, sizeof written);
    (*runtime)->copy_out(&read, shared->memory.data() + 4096, sizeof read);
    (*runtime)->copy_out(&untouched, shared->memory.data() + 4 * kMiB, sizeof untouched);
    ASSERT_TRUE((*runtime)->synchronize());
    EXPECT_EQ(read, written);
    EXPECT_EQ(untouched, 0);
  }
  EXPECT_EQ(driver.held(), 0U);
}

TEST(DriverRuntime, EachFunctionsFailureIsToldAndNothingIsLeft) {
  const TestDriver driver;
  ASSERT_TRUE(use(TestDriver::options()));
  const std::vector<std::string> only_at_the_end = {"cuDevicePrimaryCtxRelease_v2",
                                                    "cuModuleUnload",
                                                    "cuMemFree_v2",
                                                    "cuMemFreeHost",
                                                    "cuMemHostUnregister",
                                                    "cuStreamDestroy_v2",
                                                    "cuMemAddressFree",
                                                    "cuMemUnmap",
                                                    "cuGraphDestroy",
                                                    "cuGraphExecDestroy",
                                                    "cuGetErrorName",
                                                    "cuGetErrorString"};
  for (const char* symbol : driver_symbols()) {
    SCOPED_TRACE(symbol);
    if (std::ranges::find(only_at_the_end, symbol) != only_at_the_end.end()) continue;
    // The first call, and a later one, where there is.
    for (const int after : {0, 1, 2}) {
      const std::size_t before = driver.held();
      driver.fail(symbol, 999, after);
      const Status failed = use(TestDriver::options());
      driver.fail("", 0);
      if (after == 0 && std::string_view(symbol) != "cuDriverGetVersion") {
        ASSERT_FALSE(failed);
      }
      if (!failed) {
        EXPECT_TRUE(contains(failed.error().message, "error 999 (as injected)"))
            << failed.error().message;
      }
      EXPECT_EQ(driver.held(), before) << "memory or addresses are left";
    }
  }
}

}  // namespace
}  // namespace plimsoll::cuda
#endif
