#include "worker/collective/nccl_api.h"

#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>

namespace plimsoll {
namespace {

constexpr const char* kRemedy = "; install NCCL 2.18 or newer, or use --collective ipc";

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10'000, version / 100 % 100, version % 100);
}

}  // namespace

Result<NcclLibrary> NcclLibrary::open(const std::string& file_name) {
  NcclLibrary library;
  library.handle_ = dlopen(file_name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library.handle_ == nullptr) {
    const char* why = dlerror();
    return not_found(fmt::format("open NCCL ({}): {}{}", file_name,
                                 why == nullptr ? "not found" : why, kRemedy));
  }
  TRY(library.start(file_name));
  return library;
}

Status NcclLibrary::start(const std::string& file_name) {
  const char* missing = nullptr;
  const auto find = [&](auto& member, const char* symbol) {
    member = reinterpret_cast<std::decay_t<decltype(member)>>(dlsym(handle_, symbol));
    if (member == nullptr) missing = symbol;
  };
#define PLIMSOLL_ROW(member, symbol, parameters) find(api_.member, #symbol);
  PLIMSOLL_NCCL_FUNCTIONS(PLIMSOLL_ROW)
#undef PLIMSOLL_ROW
  find(api_.result_text, "ncclGetErrorString");
  find(api_.last_error, "ncclGetLastError");
  if (missing != nullptr) {
    return invalid(
        fmt::format("open NCCL ({}): it has no function {}{}", file_name, missing, kRemedy));
  }
  int version = 0;
  if (const NcclResult told = api_.version(&version); told != kNcclSuccess) {
    return error(told, fmt::format("ask NCCL ({}) for its version", file_name), nullptr);
  }
  version_ = version_text(version);
  if (version >= kNcclVersionMin) return {};
  return invalid(fmt::format("open NCCL ({}): it is version {}{}", file_name, version_, kRemedy));
}

Error NcclLibrary::error(NcclResult result, const std::string& attempted, NcclComm comm) const {
  const char* text = api_.result_text(result);
  std::string message = attempted + ": ";
  message += text == nullptr ? fmt::format("error {}", result) : text;
  const char* last = api_.last_error(comm);
  if (last != nullptr && *last != '\0') message += fmt::format(" ({})", last);
  const bool is_peers = result == kNcclRemoteError || result == kNcclSystemError;
  return Error{is_peers ? Code::unavailable : Code::internal, std::move(message)};
}

NcclLibrary::NcclLibrary(NcclLibrary&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)),
      api_(other.api_),
      version_(std::move(other.version_)) {}

NcclLibrary::~NcclLibrary() {
  if (handle_ != nullptr) dlclose(handle_);
}

}  // namespace plimsoll
