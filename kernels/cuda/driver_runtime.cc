#include "kernels/cuda/driver_runtime.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "kernels/cuda/driver_api.h"
#include "shared/base/check.h"

namespace plimsoll::cuda {
namespace {

constexpr std::size_t kUuidDigits = 36;  // "5fd3ab12-…", after "GPU-" or "MIG-"
constexpr int kComputeMajorMin = 8;      // what the kernels are written for

std::size_t size(Bytes bytes) { return static_cast<std::size_t>(bytes); }

std::byte* address(CuPointer pointer) {
  return reinterpret_cast<std::byte*>(pointer);  // NOLINT(performance-no-int-to-ptr)
}

CuPointer pointer(const void* address) { return reinterpret_cast<CuPointer>(address); }

// As `nvidia-smi -L` prints it, without its first word.
std::string uuid_text(const CuUuid& uuid) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[uuid.bytes[i] >> 4U];
    text += kDigits[uuid.bytes[i] & 15U];
  }
  return text;
}

class DriverRuntime final : public DeviceRuntime {
 public:
  explicit DriverRuntime(DriverLibrary library)
      : library_(std::move(library)), api_(library_.api()) {}
  ~DriverRuntime() override;
  DriverRuntime(const DriverRuntime&) = delete;
  DriverRuntime& operator=(const DriverRuntime&) = delete;

  Status open(const DriverRuntimeOptions& options);

  std::string description() const override { return name_; }
  Result<DeviceMemory::State> memory() override;
  Result<std::span<std::byte>> allocate(Bytes bytes, const std::string& purpose) override;
  Result<std::span<std::byte>> allocate_host(Bytes bytes, const std::string& purpose) override;
  Bytes granule() const override { return granule_; }
  Result<std::span<std::byte>> reserve(Bytes bytes, const std::string& purpose) override;
  Status map(std::span<std::byte> part, const std::string& purpose) override;
  Result<SharedMemory> allocate_shared(Bytes bytes, const std::string& purpose) override;
  Result<std::span<std::byte>> open_shared(UniqueFd handle, Bytes bytes,
                                           const std::string& purpose) override;
  Result<std::span<std::byte>> show_host(std::span<std::byte> memory,
                                         const std::string& purpose) override;
  void* native_stream() override { return stream_; }
  void copy_in(void* device, const void* host, std::size_t bytes) override;
  void copy_out(void* host, const void* device, std::size_t bytes) override;
  void launch_bytes(Kernel kernel, const LaunchShape& shape,
                    std::span<const std::byte> arguments) override;
  Status synchronize() override;
  Status begin_recording() override;
  Result<Recording> end_recording() override;
  void replay(Recording recording) override;
  void drop_recordings() override;

 private:
  struct Range {
    CuPointer begin = 0;
    std::size_t bytes = 0;
  };

  Status find_device(const std::string& uuid);
  Status check_device(const std::vector<CudaModule>& modules);
  Status load_modules(const DriverRuntimeOptions& options);
  Status find_kernel(std::size_t index);
  CuAllocationProperties properties() const;
  // Puts memory behind reserved addresses, and gives the handle up: the map keeps the memory alive.
  Status map_memory(CuPointer begin, std::size_t bytes, CuMemory memory,
                    const std::string& attempted);
  Status check(CuResult result, const std::string& attempted) const {
    return library_.check(result, attempted + " on " + name_);
  }
  // Of work in the stream: kept for synchronize().
  void note(CuResult result, const char* attempted);

  DriverLibrary library_;
  const DriverApi& api_;
  std::string name_ = "a GPU";
  CuDevice device_ = 0;
  bool has_context_ = false;
  CuStream stream_ = nullptr;
  std::vector<CuModule> modules_;
  std::array<CuFunction, kKernelCount> kernels_{};
  Bytes granule_ = 0;
  int compute_ = 0;  // 90 for SM 9.0
  int shared_bytes_max_ = 0;
  std::vector<CuPointer> memory_;
  std::vector<void*> host_memory_;
  std::vector<void*> shown_;
  std::vector<Range> reserved_;
  std::vector<Range> mapped_;
  std::vector<CuGraphExec> recordings_;
  std::optional<Error> failure_;
};

Status DriverRuntime::find_device(const std::string& uuid) {
  int count = 0;
  TRY(library_.check(api_.device_count(&count), "count GPUs"));
  const std::string_view wanted =
      std::string_view(uuid).substr(uuid.size() - std::min(uuid.size(), kUuidDigits));
  for (int i = 0; i < count; ++i) {
    TRY(library_.check(api_.device_at(&device_, i), "open GPU " + std::to_string(i)));
    CuUuid found{};
    TRY(library_.check(api_.device_uuid(&found, device_),
                       "tell the UUID of GPU " + std::to_string(i)));
    if (uuid.empty() || uuid_text(found) == wanted) return {};
  }
  return unavailable("the NVIDIA driver shows " + std::to_string(count) + " GPU" +
                     (count == 1 ? "" : "s") + (uuid.empty() ? "" : ", none of them " + uuid) +
                     "; CUDA_VISIBLE_DEVICES may hide it");
}

Status DriverRuntime::check_device(const std::vector<CudaModule>& modules) {
  std::array<char, 128> name{};
  TRY(check(api_.device_name(name.data(), static_cast<int>(name.size()) - 1, device_),
            "ask for the name"));
  name_ = name.data();
  int major = 0;
  int minor = 0;
  int can_map = 0;
  const std::array<std::pair<int, int*>, 4> wanted = {{{kCuComputeMajor, &major},
                                                       {kCuComputeMinor, &minor},
                                                       {kCuSharedBytesOptin, &shared_bytes_max_},
                                                       {kCuCanMapMemory, &can_map}}};
  for (const auto& [attribute, value] : wanted) {
    TRY(check(api_.device_attribute(value, attribute, device_),
              "ask for attribute " + std::to_string(attribute)));
  }
  compute_ = 10 * major + minor;
  name_ += " (SM " + std::to_string(major) + "." + std::to_string(minor) + ")";
  if (major < kComputeMajorMin) {
    return invalid(name_ + " is too old: the kernels need SM 8.0 or newer; use --devices cpu");
  }
  if (can_map == 0) {
    return invalid(name_ +
                   " cannot map memory to reserved addresses, as a vGPU without unified "
                   "memory cannot; use --devices cpu");
  }
  if (modules.empty()) {
    return invalid("this build has no kernels for GPUs, and was told to use " + name_ +
                   "; build it where nvcc is found (docs/gpu.md), or use --devices cpu");
  }
  return {};
}

Status DriverRuntime::find_kernel(std::size_t index) {
  const char* name = kKernelNames[index];
  const std::string attempted = std::string("find the kernel ") + name;
  for (CuModule module : modules_) {
    const CuResult result = api_.find_function(&kernels_[index], module, name);
    if (result == kCuNotFound) continue;
    TRY(check(result, attempted));
    int fixed = 0;
    TRY(check(api_.function_attribute(&fixed, kCuFunctionSharedBytes, kernels_[index]), attempted));
    const int dynamic = std::min(static_cast<int>(kSharedBytesMax), shared_bytes_max_ - fixed);
    return check(api_.set_function_attribute(kernels_[index], kCuFunctionDynamicShared, dynamic),
                 attempted + " and give it " + std::to_string(dynamic) + " bytes shared memory");
  }
  return internal_error(attempted + " on " + name_ + ": no module of this build has it");
}

Status DriverRuntime::load_modules(const DriverRuntimeOptions& options) {
  for (const CudaModule& module : options.modules) {
    CuModule loaded = nullptr;
    TRY(check(api_.load_module(&loaded, module.fatbin.data()),
              "load the kernels of " + std::string(module.name) + ", compiled for " +
                  options.architectures));
    modules_.push_back(loaded);
  }
  for (std::size_t i = 0; i < kKernelCount; ++i) TRY(find_kernel(i));
  return {};
}

Status DriverRuntime::open(const DriverRuntimeOptions& options) {
  TRY(find_device(options.uuid));
  TRY(check_device(options.modules));
  CuContext context = nullptr;
  TRY(check(api_.retain_context(&context, device_), "make a context"));
  has_context_ = true;
  TRY(check(api_.set_context(context), "enter the context"));
  TRY(load_modules(options));
  TRY(check(api_.create_stream(&stream_, kCuStreamNonBlocking), "make a stream"));
  const CuAllocationProperties wanted = properties();
  std::size_t granule = 0;
  TRY(check(api_.granularity(&granule, &wanted, kCuGranularityMinimum),
            "ask in which pieces memory is mapped"));
  granule_ = static_cast<Bytes>(granule);
  return {};
}

// What cannot be freed any more, after a fault of the device, ends with the process.
DriverRuntime::~DriverRuntime() {
  if (!has_context_) return;
  if (stream_ != nullptr) (void)api_.wait_stream(stream_);
  drop_recordings();
  for (const Range& range : mapped_) (void)api_.unmap(range.begin, range.bytes);
  for (const Range& range : reserved_) (void)api_.free_reserved(range.begin, range.bytes);
  for (CuPointer memory : memory_) (void)api_.free(memory);
  for (void* memory : shown_) (void)api_.unregister_host(memory);
  for (void* memory : host_memory_) (void)api_.free_host(memory);
  if (stream_ != nullptr) (void)api_.destroy_stream(stream_);
  for (CuModule module : modules_) (void)api_.unload_module(module);
  (void)api_.set_context(nullptr);
  (void)api_.release_context(device_);
}

Result<DeviceMemory::State> DriverRuntime::memory() {
  std::size_t free = 0;
  std::size_t total = 0;
  TRY(check(api_.memory_info(&free, &total), "ask how much memory is free"));
  return DeviceMemory::State{.free = static_cast<Bytes>(free), .total = static_cast<Bytes>(total)};
}

Result<std::span<std::byte>> DriverRuntime::allocate(Bytes bytes, const std::string& purpose) {
  CHECK(bytes >= 0);
  if (bytes == 0) return std::span<std::byte>();
  const std::string attempted = "allocate " + format_bytes(bytes) + " for " + purpose;
  CuPointer memory = 0;
  TRY(check(api_.allocate(&memory, size(bytes)), attempted));
  memory_.push_back(memory);
  TRY(check(api_.fill(memory, 0, size(bytes), stream_), attempted));
  TRY(synchronize());
  return std::span(address(memory), size(bytes));
}

Result<std::span<std::byte>> DriverRuntime::allocate_host(Bytes bytes, const std::string& purpose) {
  CHECK(bytes >= 0);
  if (bytes == 0) return std::span<std::byte>();
  void* memory = nullptr;
  TRY(check(api_.allocate_host(&memory, size(bytes), 0),
            "pin " + format_bytes(bytes) + " of host memory for " + purpose));
  host_memory_.push_back(memory);
  return std::span(static_cast<std::byte*>(memory), size(bytes));
}

CuAllocationProperties DriverRuntime::properties() const {
  CuAllocationProperties wanted{};
  wanted.type = kCuAllocationPinned;
  wanted.location = {.type = kCuLocationDevice, .id = device_};
  return wanted;
}

Result<std::span<std::byte>> DriverRuntime::reserve(Bytes bytes, const std::string& purpose) {
  const std::size_t whole = size(round_up(bytes, granule_));
  if (whole == 0) return std::span<std::byte>();
  CuPointer begin = 0;
  TRY(check(api_.reserve(&begin, whole, 0, 0, 0),
            "reserve addresses for " + format_bytes(bytes) + " of " + purpose));
  reserved_.push_back({begin, whole});
  return std::span(address(begin), whole);
}

Status DriverRuntime::map(std::span<std::byte> part, const std::string& purpose) {
  const std::size_t whole = size(round_up(std::ssize(part), granule_));
  if (whole == 0) return {};
  const std::string attempted =
      "map " + format_bytes(static_cast<Bytes>(whole)) + " for " + purpose;
  const CuAllocationProperties wanted = properties();
  CuMemory memory = 0;
  TRY(check(api_.create_memory(&memory, whole, &wanted, 0), attempted));
  const CuPointer begin = pointer(part.data());
  TRY(map_memory(begin, whole, memory, attempted));
  TRY(check(api_.fill(begin, 0, whole, stream_), attempted));
  return synchronize();
}

Status DriverRuntime::map_memory(CuPointer begin, std::size_t bytes, CuMemory memory,
                                 const std::string& attempted) {
  const Status mapped = check(api_.map(begin, bytes, 0, memory, 0), attempted);
  const Status released = check(api_.release_memory(memory), attempted);
  TRY(mapped);
  mapped_.push_back({begin, bytes});
  TRY(released);
  const CuAccess access{.location = properties().location, .flags = kCuReadWrite};
  return check(api_.set_access(begin, bytes, &access, 1), attempted);
}

Result<DeviceRuntime::SharedMemory> DriverRuntime::allocate_shared(Bytes bytes,
                                                                   const std::string& purpose) {
  const std::span<std::byte> place = TRY(reserve(bytes, purpose));
  const std::string attempted = "share " + format_bytes(std::ssize(place)) + " for " + purpose;
  CuAllocationProperties wanted = properties();
  wanted.handle_types = kCuHandleDescriptor;
  CuMemory memory = 0;
  TRY(check(api_.create_memory(&memory, place.size(), &wanted, 0), attempted));
  int descriptor = -1;
  const Status exported =
      check(api_.export_memory(&descriptor, memory, kCuHandleDescriptor, 0), attempted);
  UniqueFd handle(exported ? descriptor : -1);
  TRY(map_memory(pointer(place.data()), place.size(), memory, attempted));
  TRY(exported);
  TRY(check(api_.fill(pointer(place.data()), 0, place.size(), stream_), attempted));
  TRY(synchronize());
  return SharedMemory{place.first(size(bytes)), std::move(handle)};
}

Result<std::span<std::byte>> DriverRuntime::open_shared(UniqueFd handle, Bytes bytes,
                                                        const std::string& purpose) {
  const std::span<std::byte> place = TRY(reserve(bytes, purpose));
  const std::string attempted = "open " + purpose;
  CuMemory memory = 0;
  // The driver takes the number itself in place of an address, and does not keep the descriptor.
  auto* number = reinterpret_cast<void*>(  // NOLINT(performance-no-int-to-ptr)
      static_cast<std::uintptr_t>(handle.get()));
  TRY(check(api_.import_memory(&memory, number, kCuHandleDescriptor), attempted));
  TRY(map_memory(pointer(place.data()), place.size(), memory,
                 attempted + " (is it on a GPU that this one can reach?)"));
  return place.first(size(bytes));
}

Result<std::span<std::byte>> DriverRuntime::show_host(std::span<std::byte> memory,
                                                      const std::string& purpose) {
  const std::string attempted = "let kernels see " + purpose;
  TRY(check(api_.register_host(memory.data(), memory.size(), kCuHostMapped), attempted));
  shown_.push_back(memory.data());
  CuPointer seen = 0;
  TRY(check(api_.host_address(&seen, memory.data(), 0), attempted));
  return std::span(address(seen), memory.size());
}

void DriverRuntime::note(CuResult result, const char* attempted) {
  if (result == kCuSuccess || failure_) return;
  failure_ = check(result, attempted).error();
}

void DriverRuntime::copy_in(void* device, const void* host, std::size_t bytes) {
  if (!failure_) note(api_.copy_in(pointer(device), host, bytes, stream_), "copy to memory");
}

void DriverRuntime::copy_out(void* host, const void* device, std::size_t bytes) {
  if (!failure_) note(api_.copy_out(host, pointer(device), bytes, stream_), "copy from memory");
}

void DriverRuntime::launch_bytes(Kernel kernel, const LaunchShape& shape,
                                 std::span<const std::byte> arguments) {
  if (failure_) return;
  // The driver reads a kernel's one argument, and knows how long it is.
  void* parameters[] = {const_cast<std::byte*>(arguments.data())};
  const auto& [grid, block, shared_bytes] = shape;
  const CuResult result =
      api_.launch(kernels_[static_cast<std::size_t>(kernel)], grid.x, grid.y, grid.z, block.x,
                  block.y, block.z, shared_bytes, stream_, parameters, nullptr);
  if (result != kCuSuccess) note(result, (std::string("launch ") + kernel_name(kernel)).c_str());
}

Status DriverRuntime::synchronize() {
  if (!failure_) note(api_.wait_stream(stream_), "run what was launched");
  if (failure_) return *failure_;
  return {};
}

Status DriverRuntime::begin_recording() {
  return check(api_.begin_capture(stream_, kCuCaptureThreadLocal), "record launches");
}

Result<Recording> DriverRuntime::end_recording() {
  CuGraph graph = nullptr;
  const Status ended = check(api_.end_capture(stream_, &graph), "record launches");
  if (failure_) {  // a launch that failed ends the capture, too, and is the cause
    if (graph != nullptr) (void)api_.destroy_graph(graph);
    return *failure_;
  }
  TRY(ended);
  CuGraphExec recording = nullptr;
  const Status made = check(api_.instantiate(&recording, graph, 0), "make a graph of launches");
  (void)api_.destroy_graph(graph);  // the executable one does not need it
  TRY(made);
  recordings_.push_back(recording);
  // Its memory is taken here, where it is measured, and not by the first step.
  TRY(check(api_.upload_graph(recording, stream_), "put a graph of launches on the device"));
  TRY(synchronize());
  return Recording{recordings_.size() - 1};
}

void DriverRuntime::replay(Recording recording) {
  if (failure_) return;
  note(api_.launch_graph(recordings_[static_cast<std::size_t>(recording)], stream_),
       "launch a graph");
}

// A graph that runs is freed once it has.
void DriverRuntime::drop_recordings() {
  for (CuGraphExec recording : recordings_) (void)api_.destroy_graph_exec(recording);
  recordings_.clear();
}

}  // namespace

Result<std::unique_ptr<DeviceRuntime>> make_driver_runtime(const DriverRuntimeOptions& options) {
  auto runtime = std::make_unique<DriverRuntime>(TRY(DriverLibrary::open(options.library)));
  TRY(runtime->open(options));
  return std::unique_ptr<DeviceRuntime>(std::move(runtime));
}

}  // namespace plimsoll::cuda
