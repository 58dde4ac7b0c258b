#include "kernels/cuda/host_runtime.h"

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>

#include "shared/base/check.h"
#include "shared/base/shared_block.h"

namespace plimsoll::cuda {

extern "C" {
#define PLIMSOLL_ROW(name, Arguments) void name(const Arguments& args);
PLIMSOLL_CUDA_KERNELS(PLIMSOLL_ROW)
#undef PLIMSOLL_ROW
}

namespace {

using Entry = void (*)(const void* arguments);

constexpr Entry kEntries[] = {
#define PLIMSOLL_ROW(name, Arguments) \
  [](const void* arguments) { name(*static_cast<const Arguments*>(arguments)); },
    PLIMSOLL_CUDA_KERNELS(PLIMSOLL_ROW)
#undef PLIMSOLL_ROW
};

constexpr std::size_t kArgumentBytes[] = {
#define PLIMSOLL_ROW(name, Arguments) sizeof(Arguments),
    PLIMSOLL_CUDA_KERNELS(PLIMSOLL_ROW)
#undef PLIMSOLL_ROW
};

struct Unmap {
  std::size_t bytes = 0;
  void operator()(std::byte* memory) const { ::munmap(memory, bytes); }
};
using Memory = std::unique_ptr<std::byte, Unmap>;

struct Copy {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
};

struct QueuedLaunch {
  Kernel kernel = Kernel::embed_rows;
  LaunchShape shape;
  std::vector<std::byte> arguments;
};

constexpr Bytes kGranule = 64 * kKiB;

class HostRuntime final : public DeviceRuntime {
 public:
  explicit HostRuntime(const HostRuntimeOptions& options)
      : options_(options),
        executor_({.seed = options.seed, .spin_deadline = options.spin_deadline}) {}

  std::string description() const override {
    return "the host executor (seed " + std::to_string(options_.seed) + ")";
  }

  Result<DeviceMemory::State> memory() override {
    return DeviceMemory::State{.free = options_.memory - taken_, .total = options_.memory};
  }

  Result<std::span<std::byte>> allocate(Bytes bytes, const std::string& purpose) override {
    TRY(check_room(bytes, purpose));
    const std::span<std::byte> memory = TRY(take(bytes, PROT_READ | PROT_WRITE, purpose));
    device_maps_.push_back(memory);
    taken_ += bytes;
    return memory;
  }

  Result<std::span<std::byte>> allocate_host(Bytes bytes, const std::string& purpose) override {
    return take(bytes, PROT_READ | PROT_WRITE, purpose);
  }

  Bytes granule() const override { return kGranule; }
  Result<std::span<std::byte>> reserve(Bytes bytes, const std::string& purpose) override {
    return take(round_up(bytes, kGranule), PROT_NONE, purpose);
  }
  std::vector<std::span<const std::byte>> host_maps() const override { return device_maps_; }
  Status map(std::span<std::byte> part, const std::string& purpose) override {
    const Bytes bytes = round_up(std::ssize(part), kGranule);
    if (bytes == 0) return {};
    TRY(check_room(bytes, purpose));
    if (::mprotect(part.data(), static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE) != 0) {
      return Error{Code::does_not_fit,
                   "map " + format_bytes(bytes) + " for " + purpose + ": " + std::strerror(errno)};
    }
    device_maps_.push_back(part);
    taken_ += bytes;
    return {};
  }

  Result<SharedMemory> allocate_shared(Bytes bytes, const std::string& purpose) override {
    TRY(check_room(bytes, purpose));
    SharedBlock block = TRY(SharedBlock::create(purpose, bytes));
    UniqueFd handle(::fcntl(block.fd(), F_DUPFD_CLOEXEC, 0));
    if (!handle) {
      return Error{Code::unavailable, "share memory for " + purpose + ": " + std::strerror(errno)};
    }
    taken_ += bytes;
    shared_.push_back(std::move(block));
    return SharedMemory{shared_.back().bytes(), std::move(handle)};
  }
  Result<std::span<std::byte>> open_shared(UniqueFd handle, Bytes bytes,
                                           const std::string&) override {
    shared_.push_back(TRY(SharedBlock::map(std::move(handle), bytes)));
    return shared_.back().bytes();
  }
  Result<std::span<std::byte>> show_host(std::span<std::byte> memory, const std::string&) override {
    return memory;
  }

  void copy_in(void* device, const void* host, std::size_t bytes) override {
    queue_.emplace_back(Copy{device, host, bytes});
  }
  void copy_out(void* host, const void* device, std::size_t bytes) override {
    queue_.emplace_back(Copy{host, device, bytes});
  }

  void launch_bytes(Kernel kernel, const LaunchShape& shape,
                    std::span<const std::byte> arguments) override {
    CHECK(arguments.size() == kArgumentBytes[static_cast<std::size_t>(kernel)]);
    CHECK(shape.shared_bytes <= kSharedBytesMax);
    QueuedLaunch launch{kernel, shape, {arguments.begin(), arguments.end()}};
    if (is_recording_) {
      recordings_.back().push_back(std::move(launch));
    } else {
      queue_.emplace_back(std::move(launch));
    }
  }

  Status synchronize() override {
    for (const auto& item : queue_) {
      if (failure_) break;
      if (const Status ran = run(item); !ran) failure_ = ran.error();
    }
    queue_.clear();
    if (failure_) return *failure_;
    return {};
  }

  Status begin_recording() override {
    CHECK(!is_recording_);
    is_recording_ = true;
    recordings_.emplace_back();
    return {};
  }
  Result<Recording> end_recording() override {
    CHECK(is_recording_);
    is_recording_ = false;
    return Recording{recordings_.size() - 1};
  }
  void replay(Recording recording) override {
    for (const QueuedLaunch& launch : recordings_[static_cast<std::size_t>(recording)]) {
      queue_.emplace_back(launch);
    }
  }
  void drop_recordings() override { recordings_.clear(); }

 private:
  using Item = std::variant<Copy, QueuedLaunch>;

  Status check_room(Bytes bytes, const std::string& purpose) const {
    if (taken_ + bytes <= options_.memory) return {};
    return Error{Code::does_not_fit, "the host executor is out of memory: " + purpose + " needs " +
                                         format_bytes(bytes) + " and " +
                                         format_bytes(options_.memory - taken_) + " of " +
                                         format_bytes(options_.memory) + " are free"};
  }

  Result<std::span<std::byte>> take(Bytes bytes, int protection, const std::string& purpose) {
    CHECK(bytes >= 0);
    if (bytes == 0) return std::span<std::byte>();
    const auto size = static_cast<std::size_t>(bytes);
    void* map =
        ::mmap(nullptr, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) {
      return Error{Code::does_not_fit,
                   "map " + format_bytes(bytes) + " for " + purpose + ": " + std::strerror(errno)};
    }
    Memory memory(static_cast<std::byte*>(map), Unmap{size});
    memory_.push_back(std::move(memory));
    return std::span(memory_.back().get(), size);
  }

  Status run(const Item& item) {
    if (const auto* copy = std::get_if<Copy>(&item)) {
      std::memcpy(copy->to, copy->from, copy->bytes);
      return {};
    }
    const auto& launch = std::get<QueuedLaunch>(item);
    return executor_.run(host_grid(launch.kernel, launch.shape, launch.arguments.data()));
  }

  HostRuntimeOptions options_;
  host_cuda::Executor executor_;
  std::vector<Memory> memory_;
  std::vector<SharedBlock> shared_;
  std::vector<std::span<const std::byte>> device_maps_;
  Bytes taken_ = 0;
  std::vector<Item> queue_;
  std::vector<std::vector<QueuedLaunch>> recordings_;
  bool is_recording_ = false;
  std::optional<Error> failure_;
};

}  // namespace

host_cuda::Grid host_grid(Kernel kernel, const LaunchShape& shape, const void* arguments) {
  return {.kernel = kernel_name(kernel),
          .entry = kEntries[static_cast<std::size_t>(kernel)],
          .arguments = arguments,
          .grid = {shape.grid.x, shape.grid.y, shape.grid.z},
          .block = {shape.block.x, shape.block.y, shape.block.z},
          .shared_bytes = shape.shared_bytes,
          .is_resident = waits_for_peers(kernel)};
}

std::unique_ptr<DeviceRuntime> make_host_runtime(const HostRuntimeOptions& options) {
  return std::make_unique<HostRuntime>(options);
}

}  // namespace plimsoll::cuda
