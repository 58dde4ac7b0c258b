#include "kernels/cuda/driver_api.h"

#include <utility>

#include <dlfcn.h>

namespace plimsoll::cuda {
namespace {

constexpr int kDriverVersionMin = 13'000;  // what modules of nvcc 13.0 need

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Code code_of(CuResult result) {
  switch (result) {
    case kCuOutOfMemory:
      return Code::does_not_fit;
    case kCuNoBinaryForGpu:
    case kCuUnsupportedPtx:
      return Code::invalid;
    case kCuNotInitialized:
    case kCuStubLibrary:
    case kCuDeviceUnavailable:
    case kCuNoDevice:
    case kCuInvalidDevice:
    case kCuSystemNotReady:
    case kCuSystemMismatch:
      return Code::unavailable;
    default:
      return Code::internal;
  }
}

}  // namespace

Result<DriverLibrary> DriverLibrary::open(const std::string& file_name) {
  DriverLibrary library;
  library.handle_ = dlopen(file_name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library.handle_ == nullptr) {
    const char* why = dlerror();
    return not_found("open the NVIDIA driver (" + file_name +
                     "): " + (why == nullptr ? "not found" : why) +
                     "; install driver 580 or newer, or use --devices cpu");
  }
  TRY(library.start(file_name));
  return library;
}

Status DriverLibrary::start(const std::string& file_name) {
  const char* missing = nullptr;
#define PLIMSOLL_ROW(member, symbol, parameters)                                  \
  api_.member = reinterpret_cast<decltype(api_.member)>(dlsym(handle_, #symbol)); \
  if (api_.member == nullptr) missing = #symbol;
  PLIMSOLL_DRIVER_FUNCTIONS(PLIMSOLL_ROW)
#undef PLIMSOLL_ROW
  const std::string where = "open the NVIDIA driver (" + file_name + "): ";
  int version = 0;
  const bool says_version =
      api_.driver_version != nullptr && api_.driver_version(&version) == kCuSuccess;
  if (says_version && version < kDriverVersionMin) {
    return invalid(where + "it is for CUDA " + version_text(version) + " and this build needs " +
                   version_text(kDriverVersionMin) +
                   "; install driver 580 or newer, or use --devices cpu");
  }
  if (missing != nullptr) {
    return invalid(where + "it has no function " + missing +
                   "; install driver 580 or newer, or use --devices cpu");
  }
  return check(api_.init(0), "start the NVIDIA driver (" + file_name + ")");
}

Status DriverLibrary::check(CuResult result, const std::string& attempted) const {
  if (result == kCuSuccess) return {};
  const char* name = nullptr;
  const char* text = nullptr;
  if (api_.error_name(result, &name) != kCuSuccess) name = nullptr;
  if (api_.error_text(result, &text) != kCuSuccess) text = nullptr;
  std::string message = attempted + ": ";
  message += name == nullptr ? "error " + std::to_string(result) : name;
  if (text != nullptr) message += std::string(" (") + text + ")";
  return Error{code_of(result), std::move(message)};
}

DriverLibrary::DriverLibrary(DriverLibrary&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), api_(other.api_) {}

DriverLibrary::~DriverLibrary() {
  if (handle_ != nullptr) dlclose(handle_);
}

}  // namespace plimsoll::cuda
