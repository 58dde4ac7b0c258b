// NvmlApi: the functions of NVIDIA's management library that we call, declared here since its
// header is rarely installed. They make no CUDA context: the daemon must survive what GPUs do.
#pragma once

#include <cstdint>

#include "shared/base/result.h"

namespace plimsoll {

using NvmlHandle = void*;
using NvmlReturn = int;

constexpr NvmlReturn kNvmlSuccess = 0;
constexpr NvmlReturn kNvmlInsufficientSize = 7;

struct NvmlMemory {
  std::uint64_t total, free, used;
};
struct NvmlBar1 {
  std::uint64_t total, free, used;
};
struct NvmlProcess {
  unsigned pid;
  std::uint64_t bytes;  // all ones: not available
  unsigned gpu_instance, compute_instance;
};
struct NvmlPci {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(NvmlProcess) == 24 && sizeof(NvmlPci) == 68);

// Null where this driver's library lacks a function that we can do without.
struct NvmlApi {
  NvmlReturn (*init)() = nullptr;
  NvmlReturn (*shutdown)() = nullptr;
  const char* (*error_text)(NvmlReturn) = nullptr;
  NvmlReturn (*device_count)(unsigned*) = nullptr;
  NvmlReturn (*device_at)(unsigned, NvmlHandle*) = nullptr;
  NvmlReturn (*name)(NvmlHandle, char*, unsigned) = nullptr;
  NvmlReturn (*uuid)(NvmlHandle, char*, unsigned) = nullptr;
  NvmlReturn (*memory)(NvmlHandle, NvmlMemory*) = nullptr;
  // The rest is optional.
  NvmlReturn (*bar1)(NvmlHandle, NvmlBar1*) = nullptr;
  NvmlReturn (*capability)(NvmlHandle, int*, int*) = nullptr;
  NvmlReturn (*cores)(NvmlHandle, unsigned*) = nullptr;
  NvmlReturn (*processes)(NvmlHandle, unsigned*, NvmlProcess*) = nullptr;
  NvmlReturn (*pci)(NvmlHandle, NvmlPci*) = nullptr;
  NvmlReturn (*link_state)(NvmlHandle, unsigned, unsigned*) = nullptr;
  NvmlReturn (*mig_mode)(NvmlHandle, unsigned*, unsigned*) = nullptr;
  NvmlReturn (*mig_count_max)(NvmlHandle, unsigned*) = nullptr;
  NvmlReturn (*mig_at)(NvmlHandle, unsigned, NvmlHandle*) = nullptr;
};

// The library, opened; closed at destruction.
class NvmlLibrary {
 public:
  // Errors: Code::not_found where there is no such library (a machine without the driver),
  // Code::unavailable where it lacks what we need.
  static Result<NvmlLibrary> open(const char* file_name = "libnvidia-ml.so.1");
  NvmlLibrary(NvmlLibrary&& other) noexcept;
  NvmlLibrary& operator=(NvmlLibrary&&) = delete;
  NvmlLibrary(const NvmlLibrary&) = delete;
  ~NvmlLibrary();
  const NvmlApi& api() const { return api_; }

 private:
  NvmlLibrary() = default;
  void* handle_ = nullptr;
  NvmlApi api_;
};

}  // namespace plimsoll
