// AlteredRuntime: a device whose launches a test may change or leave out, as a fault would.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/device_runtime.h"

namespace plimsoll::cuda {

class AlteredRuntime final : public DeviceRuntime {
 public:
  // Whether to launch, with the arguments that it leaves.
  using Alter = std::function<bool(Kernel, std::vector<std::byte>& arguments)>;
  AlteredRuntime(std::unique_ptr<DeviceRuntime> whole, Alter alter)
      : whole_(std::move(whole)), alter_(std::move(alter)) {}

  std::string description() const override { return whole_->description(); }
  Result<DeviceMemory::State> memory() override { return whole_->memory(); }
  Result<std::span<std::byte>> allocate(Bytes bytes, const std::string& purpose) override {
    return whole_->allocate(bytes, purpose);
  }
  Result<std::span<std::byte>> allocate_host(Bytes bytes, const std::string& purpose) override {
    return whole_->allocate_host(bytes, purpose);
  }
  Bytes granule() const override { return whole_->granule(); }
  Result<std::span<std::byte>> reserve(Bytes bytes, const std::string& purpose) override {
    return whole_->reserve(bytes, purpose);
  }
  Status map(std::span<std::byte> part, const std::string& purpose) override {
    return whole_->map(part, purpose);
  }
  Result<SharedMemory> allocate_shared(Bytes bytes, const std::string& purpose) override {
    return whole_->allocate_shared(bytes, purpose);
  }
  Result<std::span<std::byte>> open_shared(UniqueFd handle, Bytes bytes,
                                           const std::string& purpose) override {
    return whole_->open_shared(std::move(handle), bytes, purpose);
  }
  Result<std::span<std::byte>> show_host(std::span<std::byte> memory,
                                         const std::string& purpose) override {
    return whole_->show_host(memory, purpose);
  }
  void copy_in(void* device, const void* host, std::size_t bytes) override {
    whole_->copy_in(device, host, bytes);
  }
  void copy_out(void* host, const void* device, std::size_t bytes) override {
    whole_->copy_out(host, device, bytes);
  }
  void launch_bytes(Kernel kernel, const LaunchShape& shape,
                    std::span<const std::byte> arguments) override {
    std::vector<std::byte> own(arguments.begin(), arguments.end());
    if (alter_(kernel, own)) whole_->launch_bytes(kernel, shape, own);
  }
  Status synchronize() override { return whole_->synchronize(); }
  Status begin_recording() override { return whole_->begin_recording(); }
  Result<Recording> end_recording() override { return whole_->end_recording(); }
  void replay(Recording recording) override { whole_->replay(recording); }
  void drop_recordings() override { whole_->drop_recordings(); }

 private:
  std::unique_ptr<DeviceRuntime> whole_;
  Alter alter_;
};

}  // namespace plimsoll::cuda
