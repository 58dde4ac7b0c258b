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
constexpr NvmlReturn kNvmlTimeout = 10;
constexpr NvmlReturn kNvmlGpuIsLost = 15;
constexpr NvmlReturn kNvmlResetRequired = 16;
// Nothing can be asked of such a GPU, nor done on it.
constexpr bool is_out_of_use(NvmlReturn result) {
  return result == kNvmlGpuIsLost || result == kNvmlResetRequired;
}

using NvmlEventSet = void*;
constexpr std::uint64_t kNvmlEventDoubleBitEcc = 0x2;
constexpr std::uint64_t kNvmlEventXid = 0x8;
constexpr int kNvmlUncorrected = 1;  // a kind of memory error
constexpr int kNvmlVolatile = 0;     // counted since the driver was loaded
constexpr int kNvmlMemoryClock = 2;
constexpr int kNvmlPeerRead = 0;
constexpr int kNvmlPeerWrite = 1;
// Of nvmlDeviceGetTopologyCommonAncestor: up to which level two devices have nothing in common.
constexpr int kNvmlOneSwitch = 10;
constexpr int kNvmlSwitches = 20;
constexpr int kNvmlNode = 40;

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
struct NvmlEventData {
  NvmlHandle device;
  std::uint64_t type;
  std::uint64_t data;                       // the number of an Xid error
  unsigned gpu_instance, compute_instance;  // of a MIG slice; all ones: of the whole GPU
};
static_assert(sizeof(NvmlEventData) == 32);
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
  NvmlReturn (*bus_bits)(NvmlHandle, unsigned*) = nullptr;         // of its memory
  NvmlReturn (*clock_max)(NvmlHandle, int, unsigned*) = nullptr;   // MHz
  NvmlReturn (*pcie_generation)(NvmlHandle, unsigned*) = nullptr;  // the fastest in this slot
  NvmlReturn (*pcie_lanes)(NvmlHandle, unsigned*) = nullptr;
  NvmlReturn (*peer_status)(NvmlHandle, NvmlHandle, int, int*) = nullptr;  // 0: may
  NvmlReturn (*ancestor)(NvmlHandle, NvmlHandle, int*) = nullptr;
  NvmlReturn (*mig_mode)(NvmlHandle, unsigned*, unsigned*) = nullptr;
  NvmlReturn (*mig_count_max)(NvmlHandle, unsigned*) = nullptr;
  NvmlReturn (*mig_at)(NvmlHandle, unsigned, NvmlHandle*) = nullptr;
  NvmlReturn (*mig_parent)(NvmlHandle, NvmlHandle*) = nullptr;
  NvmlReturn (*device_by_uuid)(const char*, NvmlHandle*) = nullptr;
  NvmlReturn (*event_set_create)(NvmlEventSet*) = nullptr;
  NvmlReturn (*event_set_free)(NvmlEventSet) = nullptr;
  NvmlReturn (*event_register)(NvmlHandle, std::uint64_t, NvmlEventSet) = nullptr;
  NvmlReturn (*event_supported)(NvmlHandle, std::uint64_t*) = nullptr;
  NvmlReturn (*event_wait)(NvmlEventSet, NvmlEventData*, unsigned) = nullptr;
  NvmlReturn (*ecc_errors)(NvmlHandle, int, int, std::uint64_t*) = nullptr;
  // Corrected, uncorrected, a reset is pending, it failed.
  NvmlReturn (*remapped_rows)(NvmlHandle, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
  NvmlReturn (*retired_pending)(NvmlHandle, int*) = nullptr;
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
