// NcclApi: the functions of NVIDIA's NCCL that we call, declared here, since a machine that builds
// may not have nccl.h; where there is one, a test compares the two.
//
// The library is opened at run time and never linked, as the driver's is.
#pragma once

#include <cstddef>
#include <string>

#include "shared/base/result.h"

namespace plimsoll {

using NcclResult = int;
using NcclComm = struct ncclComm*;
struct NcclUniqueId {
  char bytes[128];
};

constexpr NcclResult kNcclSuccess = 0;
constexpr NcclResult kNcclSystemError = 2;
constexpr NcclResult kNcclInvalidUsage = 5;
constexpr NcclResult kNcclRemoteError = 6;
constexpr NcclResult kNcclInProgress = 7;
constexpr int kNcclFloat64 = 8;
constexpr int kNcclSum = 0;
constexpr int kNcclVersionMin = 21'800;  // that has all of the settings below

// As of 2.18; what later versions added after it they take from their defaults.
struct NcclSettings {
  std::size_t size = sizeof(NcclSettings);
  unsigned magic = 0xcafebeefU;
  unsigned version = kNcclVersionMin;
  int blocking = 0;
  int cga_cluster_size = kUnset;
  int min_ctas = kUnset;
  int max_ctas = kUnset;
  const char* net_name = nullptr;
  int split_share = kUnset;

  static constexpr int kUnset = -2'147'483'647 - 1;
};

// X(member, symbol, parameters): each returns an NcclResult.
// clang-format off
#define PLIMSOLL_NCCL_FUNCTIONS(X)                                                          \
  X(version, ncclGetVersion, (int* version))                                                \
  X(unique_id, ncclGetUniqueId, (NcclUniqueId*))                                            \
  X(init, ncclCommInitRankConfig, (NcclComm*, int ranks, NcclUniqueId, int rank,            \
                                   NcclSettings*))                                          \
  X(async_error, ncclCommGetAsyncError, (NcclComm, NcclResult*))                            \
  X(abort, ncclCommAbort, (NcclComm))                                                       \
  X(all_reduce, ncclAllReduce, (const void* from, void* to, std::size_t count, int type,    \
                                int operation, NcclComm, void* stream))
// clang-format on

struct NcclApi {
#define PLIMSOLL_ROW(member, symbol, parameters) NcclResult(*member) parameters = nullptr;
  PLIMSOLL_NCCL_FUNCTIONS(PLIMSOLL_ROW)
#undef PLIMSOLL_ROW
  const char* (*result_text)(NcclResult) = nullptr;  // ncclGetErrorString
  const char* (*last_error)(NcclComm) = nullptr;     // ncclGetLastError
};

class NcclLibrary {
 public:
  // Errors: there is no such library (not_found); it lacks a function or is too old (invalid).
  static Result<NcclLibrary> open(const std::string& file_name);
  NcclLibrary(NcclLibrary&& other) noexcept;
  NcclLibrary& operator=(NcclLibrary&&) = delete;
  NcclLibrary(const NcclLibrary&) = delete;
  ~NcclLibrary();

  const NcclApi& api() const { return api_; }
  std::string version() const { return version_; }  // "2.28.9"
  // "start NCCL: unhandled system error (what it last complained of)"
  Error error(NcclResult result, const std::string& attempted, NcclComm comm) const;

 private:
  NcclLibrary() = default;
  Status start(const std::string& file_name);

  void* handle_ = nullptr;
  NcclApi api_;
  std::string version_;
};

}  // namespace plimsoll
