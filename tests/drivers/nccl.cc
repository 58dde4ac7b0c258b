// A library with the functions of NCCL that worker/collective/nccl_api.h names, over memory that
// the ranks' processes share and the streams of cuda_driver.cc: sums in rank order.
//
// FAKE_NCCL_VERSION: what it says it is; FAKE_NCCL_FAIL: "SYMBOL RESULT" fails that function;
// FAKE_NCCL_ABORT_WAITS: an abort ends once that file is there (or after a bound); FILE.begun and
// FILE.ended say how far it is. As NVIDIA's, an abort waits until no graph has work of the
// communicator; here the process ends where that takes too long. So it does where a communicator is
// used after its abort.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "worker/collective/nccl_api.h"

#define EXPORT __attribute__((visibility("default")))

// Of cuda_driver.cc: `work` runs in its turn, when the stream is waited for.
extern "C" void fake_cuda_enqueue(int (*work)(void*), void* argument, void (*drop)(void*));
extern "C" int fake_cuda_is_capturing();

using plimsoll::NcclResult;
using plimsoll::NcclSettings;
using plimsoll::NcclUniqueId;

namespace {

constexpr int kRanksMax = 8;
constexpr std::size_t kSlot = 4096;  // sums of one exchange
constexpr int kLaunchFailed = 719;
constexpr std::uint32_t kAlive = 0x6c616d70;
constexpr auto kAbortBound = std::chrono::seconds(20);

struct Meeting {
  std::atomic<std::uint32_t> joined;
  std::atomic<std::uint32_t> aborted;
  std::array<std::atomic<std::uint64_t>, kRanksMax> epochs;
  double slots[2][kRanksMax][kSlot];
};

NcclResult injected(std::string_view symbol) {
  const char* fail = std::getenv("FAKE_NCCL_FAIL");
  std::array<char, 64> name{};
  int result = 0;
  if (fail == nullptr || std::sscanf(fail, "%63s %d", name.data(), &result) != 2) return 0;
  return symbol == name.data() ? result : 0;
}

}  // namespace

struct ncclComm {
  Meeting* meeting = nullptr;
  int ranks = 0;
  int rank = 0;
  std::uint64_t epoch = 0;
  std::uint32_t magic = kAlive;
  std::atomic<int> captured = 0;  // calls that graphs have
};

namespace {

Meeting* open_meeting(const NcclUniqueId& id) {
  const int fd = ::open(id.bytes, O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  void* map = ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  return map == MAP_FAILED ? nullptr : static_cast<Meeting*>(map);
}

void touch(const std::string& file) {
  ::close(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

// What NVIDIA's would do with one that is freed is not known: here the process ends.
void check_alive(const ncclComm& comm) {
  if (comm.magic == kAlive) return;
  std::fputs("fake NCCL: a communicator was used after its abort\n", stderr);
  std::abort();
}

// One exchange of at most kSlot sums, by all ranks.
int exchange(ncclComm& comm, double* sums, std::size_t count) {
  Meeting& meeting = *comm.meeting;
  const std::uint64_t epoch = ++comm.epoch;
  auto& slots = meeting.slots[epoch & 1U];
  std::memcpy(slots[comm.rank], sums, count * sizeof(double));
  meeting.epochs[static_cast<std::size_t>(comm.rank)].store(epoch);
  for (int peer = 0; peer < comm.ranks; ++peer) {
    while (meeting.epochs[static_cast<std::size_t>(peer)].load() < epoch) {
      if (meeting.aborted.load() != 0) return 0;  // as NCCL's kernels, which just end
      std::this_thread::yield();
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    double sum = slots[0][i];
    for (int r = 1; r < comm.ranks; ++r) sum += slots[r][i];
    sums[i] = sum;
  }
  return 0;
}

struct Call {
  ncclComm* comm;
  double* sums;
  std::size_t count;
  bool is_captured;
};

void drop_call(void* argument) {
  const auto* call = static_cast<Call*>(argument);
  if (call->is_captured) call->comm->captured.fetch_sub(1);
  delete call;
}

int run_call(void* argument) {
  const Call& call = *static_cast<Call*>(argument);
  for (std::size_t begin = 0; begin < call.count; begin += kSlot) {
    exchange(*call.comm, call.sums + begin, std::min(kSlot, call.count - begin));
  }
  return 0;
}

}  // namespace

extern "C" {

EXPORT NcclResult ncclGetVersion(int* version) {
  const char* given = std::getenv("FAKE_NCCL_VERSION");
  *version = given == nullptr ? 22'809 : std::atoi(given);
  return injected("ncclGetVersion");
}

EXPORT NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  if (const NcclResult result = injected("ncclGetUniqueId"); result != 0) return result;
  const int fd = ::memfd_create("nccl", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, sizeof(Meeting)) != 0) return plimsoll::kNcclSystemError;
  std::snprintf(id->bytes, sizeof id->bytes, "/proc/%d/fd/%d", ::getpid(), fd);
  return 0;
}

EXPORT NcclResult ncclCommInitRankConfig(ncclComm** comm, int ranks, NcclUniqueId id, int rank,
                                         NcclSettings* settings) {
  if (const NcclResult result = injected("ncclCommInitRankConfig"); result != 0) return result;
  const bool is_sound = settings->magic == 0xcafebeefU && settings->blocking == 0 &&
                        settings->max_ctas >= settings->min_ctas;
  if (!is_sound || ranks > kRanksMax) return plimsoll::kNcclInvalidUsage;
  Meeting* meeting = open_meeting(id);
  if (meeting == nullptr) return plimsoll::kNcclSystemError;
  *comm = new ncclComm{.meeting = meeting, .ranks = ranks, .rank = rank};
  meeting->joined.fetch_add(1);
  return plimsoll::kNcclInProgress;
}

EXPORT NcclResult ncclCommGetAsyncError(ncclComm* comm, NcclResult* result) {
  check_alive(*comm);
  *result = injected("ncclCommGetAsyncError");
  const bool is_there = comm->meeting->joined.load() >= static_cast<std::uint32_t>(comm->ranks);
  if (*result == 0 && !is_there) *result = plimsoll::kNcclInProgress;
  return 0;
}

// What runs may still look at it.
EXPORT NcclResult ncclCommAbort(ncclComm* comm) {
  check_alive(*comm);
  comm->magic = 0;
  comm->meeting->aborted.store(1);
  if (const char* file = std::getenv("FAKE_NCCL_ABORT_WAITS"); file != nullptr) {
    touch(file + std::string(".begun"));
    const auto until = std::chrono::steady_clock::now() + kAbortBound;
    while (::access(file, F_OK) != 0 && std::chrono::steady_clock::now() < until) {
      std::this_thread::yield();
    }
    touch(file + std::string(".ended"));
  }
  const auto until = std::chrono::steady_clock::now() + kAbortBound;
  while (comm->captured.load() != 0) {
    if (std::chrono::steady_clock::now() >= until) {
      std::fputs("fake NCCL: an abort would wait for graphs with its kernels without end\n",
                 stderr);
      std::abort();
    }
    std::this_thread::yield();
  }
  return injected("ncclCommAbort");
}

EXPORT NcclResult ncclAllReduce(const void* from, void* to, std::size_t count, int type,
                                int operation, ncclComm* comm, void* stream) {
  check_alive(*comm);
  if (const NcclResult result = injected("ncclAllReduce"); result != 0) return result;
  const bool is_known = from == to && type == plimsoll::kNcclFloat64 &&
                        operation == plimsoll::kNcclSum && stream != nullptr;
  if (!is_known) return plimsoll::kNcclInvalidUsage;
  const bool is_captured = fake_cuda_is_capturing() != 0;
  if (is_captured) comm->captured.fetch_add(1);
  fake_cuda_enqueue(run_call, new Call{comm, static_cast<double*>(to), count, is_captured},
                    drop_call);
  return 0;
}

EXPORT const char* ncclGetErrorString(NcclResult result) {
  return result == plimsoll::kNcclSystemError ? "unhandled system error" : "as injected";
}

EXPORT const char* ncclGetLastError(ncclComm*) { return ""; }

}  // extern "C"
