#include "kernels/cuda/host/fibre.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <boost/context/detail/fcontext.hpp>
#include <sys/mman.h>

#if PLIMSOLL_FIBRES_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if PLIMSOLL_FIBRES_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace plimsoll::host_cuda {
namespace {

namespace context = boost::context::detail;

constexpr std::size_t kStackBytes = 64 * 1024;
constexpr std::size_t kGuardBytes = 4096;
constexpr std::size_t kStaggerSteps = 31;
constexpr std::size_t kStaggerBytes = 448;

}  // namespace

struct Fibre::Switch {
  Fibre* from = nullptr;
  Fibre* to = nullptr;
};

struct FibreStart {
  static void run(context::transfer_t transfer) { Fibre::begin(transfer.fctx, transfer.data); }
};

Fibre::Fibre() {
#if PLIMSOLL_FIBRES_TSAN
  race_thread_ = __tsan_get_current_fiber();
#endif
}

Result<Fibre> Fibre::create(std::size_t number, Entry entry) {
  Fibre fibre;
  fibre.race_thread_ = nullptr;
  void* map = ::mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) {
    return Error{Code::does_not_fit,
                 std::string("map the stack of a CUDA thread on the CPU: ") + std::strerror(errno)};
  }
  fibre.map_ = static_cast<std::byte*>(map);
  if (::mprotect(map, kGuardBytes, PROT_NONE) != 0) {
    return internal_error(std::string("protect the end of a stack: ") + std::strerror(errno));
  }
  const std::size_t stagger = number % kStaggerSteps * kStaggerBytes / 64 * 64;
  fibre.bottom_ = fibre.map_ + kGuardBytes;
  fibre.size_ = kStackBytes - stagger;
  fibre.entry_ = entry;
#if PLIMSOLL_FIBRES_TSAN
  fibre.race_thread_ = __tsan_create_fiber(0);
#endif
  fibre.restart();
  return fibre;
}

Fibre::Fibre(Fibre&& other) noexcept
    : entry_(other.entry_),
      context_(other.context_),
      map_(std::exchange(other.map_, nullptr)),
      bottom_(other.bottom_),
      size_(other.size_),
      fake_stack_(other.fake_stack_),
      race_thread_(other.race_thread_) {}

Fibre& Fibre::operator=(Fibre&& other) noexcept {
  std::swap(entry_, other.entry_);
  std::swap(context_, other.context_);
  std::swap(map_, other.map_);
  std::swap(bottom_, other.bottom_);
  std::swap(size_, other.size_);
  std::swap(fake_stack_, other.fake_stack_);
  std::swap(race_thread_, other.race_thread_);
  return *this;
}

Fibre::~Fibre() {
  if (map_ == nullptr) return;
#if PLIMSOLL_FIBRES_ASAN
  __asan_unpoison_memory_region(bottom_, size_);
#endif
#if PLIMSOLL_FIBRES_TSAN
  if (race_thread_ != nullptr) __tsan_destroy_fiber(race_thread_);
#endif
  ::munmap(map_, kGuardBytes + kStackBytes);
}

void Fibre::restart() {
#if PLIMSOLL_FIBRES_ASAN
  __asan_unpoison_memory_region(bottom_, size_);  // of frames that were abandoned
#endif
  fake_stack_ = nullptr;
  auto* top = static_cast<std::byte*>(const_cast<void*>(bottom_)) + size_;
  context_ = context::make_fcontext(top, size_, FibreStart::run);
}

// On the stack that was switched to, before anything else there.
void Fibre::land(Switch& arrived, void* context_left) {
  arrived.from->context_ = context_left;
#if PLIMSOLL_FIBRES_ASAN
  __sanitizer_finish_switch_fiber(arrived.to->fake_stack_, &arrived.from->bottom_,
                                  &arrived.from->size_);
#endif
}

void Fibre::begin(void* transfer_context, void* transfer_data) {
  auto& arrived = *static_cast<Switch*>(transfer_data);
  const Entry entry = arrived.to->entry_;
  land(arrived, transfer_context);
  entry();
}

void Fibre::switch_over(Fibre& from, Fibre& to) {
  if (&from == &to) return;
  Switch own{&from, &to};
#if PLIMSOLL_FIBRES_ASAN
  __sanitizer_start_switch_fiber(&from.fake_stack_, to.bottom_, to.size_);
#endif
#if PLIMSOLL_FIBRES_TSAN
  __tsan_switch_to_fiber(to.race_thread_, __tsan_switch_to_fiber_no_sync);
#endif
  const context::transfer_t back = context::jump_fcontext(to.context_, &own);
  land(*static_cast<Switch*>(back.data), back.fctx);
}

}  // namespace plimsoll::host_cuda
