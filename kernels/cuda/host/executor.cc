#include "kernels/cuda/host/executor.h"

#include <algorithm>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cuda/host/block.h"
#include "kernels/cuda/host/random_order.h"
#include "shared/base/check.h"

#if PLIMSOLL_FIBRES_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace plimsoll::host_cuda {

constinit thread_local const ThreadIds* current_ids = nullptr;

namespace {

// A stack that another CUDA thread had would look like a race.
#if PLIMSOLL_FIBRES_TSAN
constexpr bool kSharesFibres = false;
// Neighbouring blocks must be different threads, or races between them would not show.
constexpr std::size_t kSpareBlocks = 2;
#else
constexpr bool kSharesFibres = true;
constexpr std::size_t kSpareBlocks = 0;
#endif

constexpr std::uint64_t kSpinsBeforeYield = 2000;
constexpr std::uint64_t kSpinsBetweenLooks = 256;

void orders_before(void* address) {
#if PLIMSOLL_FIBRES_TSAN
  __tsan_release(address);
#else
  (void)address;
#endif
}
void orders_after(void* address) {
#if PLIMSOLL_FIBRES_TSAN
  __tsan_acquire(address);
#else
  (void)address;
#endif
}

Status check(const Grid& grid) {
  const unsigned threads = grid.block.count();
  if (grid.entry != nullptr && grid.grid.count() > 0 && threads > 0 &&
      threads <= kBlockThreadsMax) {
    return {};
  }
  return internal_error("launch " + std::string(grid.kernel) + ": " +
                        std::to_string(grid.grid.count()) + " blocks of " +
                        std::to_string(threads) + " threads; a block has 1 to 1024");
}

}  // namespace

// What a thread stops a launch with. It owns nothing: the thread's stack is abandoned as it stands.
struct Fault {
  const char* what = "";
  Site site;
  const Thread* other = nullptr;  // that is elsewhere
  bool names_waiting = false;     // tells where all threads of the block are
};

class Executor::Schedule {
 public:
  explicit Schedule(const ExecutorOptions& options) : options_(options) {}

  Status run(std::span<const Grid> grids);
  const ExecutorCounters& counters() const { return counters_; }

  // On a fibre.
  Thread& self() { return *self_; }
  void wait_at_barrier(const Site& site);
  void meet(std::uint32_t mask, void* argument, const WarpOperation& operation, const Site& site);
  void pause(const Site& site);
  [[noreturn]] void fail(const Fault& fault);
  [[noreturn]] static void run_threads();

 private:
  struct Queue {  // what is left of one grid
    std::vector<unsigned> order;
    std::size_t next = 0;
    unsigned resident = 0;
  };

  Status begin_blocks(std::span<const Grid> grids);
  Status begin_block(const Grid& grid, unsigned index);
  Status add_fibres(Block& block);
  void finish_blocks(std::span<const Grid> grids);
  void abandon();
  void run_one();
  Thread* pick(Warp* prefer);
  Fibre& fibre_for(Thread& thread);
  void resume(Thread* thread);
  void wait();
  void end_thread();
  std::string describe(const Fault& fault) const;
  void check_meeting(const Warp& warp, const Thread& last);

  ExecutorOptions options_;
  ExecutorCounters counters_;
  RandomOrder random_{0};
  Fibre main_;
  Fibre* running_ = &main_;
  Thread* self_ = nullptr;
  Thread* starting_ = nullptr;  // what a fibre that begins shall run
  std::vector<std::unique_ptr<Block>> active_;
  std::vector<std::unique_ptr<Block>> idle_blocks_;
  std::vector<std::unique_ptr<Fibre>> fibres_;  // shared by all
  std::vector<Fibre*> idle_fibres_;
  std::vector<Queue> queues_;
  std::size_t live_threads_ = 0;
  std::optional<Fault> fault_;  // of self_
  std::optional<std::string> failure_;
  std::uint64_t spins_ = 0;  // since anything but spinning happened
  TimePoint spinning_since_{};
  char launched_ = 0;  // their addresses stand for the start and the end of all threads
  char ended_ = 0;
};

namespace {

constinit thread_local Executor::Schedule* current = nullptr;

}  // namespace

Status Executor::Schedule::run(std::span<const Grid> grids) {
  for (const Grid& grid : grids) TRY(check(grid));
  CHECK(current == nullptr);
  main_ = Fibre();
  running_ = &main_;
  random_ = RandomOrder(options_.seed);
  spins_ = 0;
  queues_.clear();
  for (const Grid& grid : grids) queues_.push_back({random_.order(grid.grid.count())});
  current = this;
  Status status;
  while (status && !failure_) {
    status = begin_blocks(grids);
    if (!status || active_.empty()) break;
    run_one();
    if (fault_) failure_ = describe(*std::exchange(fault_, std::nullopt));
    finish_blocks(grids);
  }
  current = nullptr;
  orders_after(&ended_);
  if (status && !failure_) return {};
  abandon();
  if (!status) return status;
  return internal_error(*std::exchange(failure_, std::nullopt));
}

Status Executor::Schedule::begin_blocks(std::span<const Grid> grids) {
  for (std::size_t i = 0; i < grids.size(); ++i) {
    Queue& queue = queues_[i];
    const unsigned resident_max = grids[i].is_resident ? grids[i].grid.count() : options_.resident;
    while (queue.resident < resident_max && queue.next < queue.order.size()) {
      TRY(begin_block(grids[i], queue.order[queue.next]));
      ++queue.next;
      ++queue.resident;
    }
  }
  return {};
}

Status Executor::Schedule::begin_block(const Grid& grid, unsigned index) {
  std::unique_ptr<Block> block;
  if (idle_blocks_.size() > kSpareBlocks) {
    block = std::move(idle_blocks_.front());
    idle_blocks_.erase(idle_blocks_.begin());
  } else {
    block = std::make_unique<Block>();
  }
  const Dim3& shape = grid.grid;
  TRY(block->begin(grid, {index % shape.x, index / shape.x % shape.y, index / shape.x / shape.y}));
  live_threads_ += block->live;
  TRY(add_fibres(*block));
  active_.push_back(std::move(block));
  orders_before(&launched_);
  return {};
}

Status Executor::Schedule::add_fibres(Block& block) {
  if (!kSharesFibres) {
    while (block.fibres.size() < block.threads.size()) {
      block.fibres.push_back(
          std::make_unique<Fibre>(TRY(Fibre::create(block.fibres.size(), run_threads))));
    }
    return {};
  }
  while (fibres_.size() < live_threads_) {
    fibres_.push_back(std::make_unique<Fibre>(TRY(Fibre::create(fibres_.size(), run_threads))));
    idle_fibres_.push_back(fibres_.back().get());
  }
  idle_fibres_.reserve(fibres_.size());
  return {};
}

// Until no thread can go on without the main fibre: a block is done, or there is a fault.
void Executor::Schedule::run_one() {
  Thread* next = pick(nullptr);
  if (next != nullptr) {
    resume(next);
    return;
  }
  for (const auto& block : active_) {
    if (block->live == 0) continue;
    failure_ =
        std::string(block->grid->kernel) + ": no thread can go on: " + waiting_report(*block);
  }
}

void Executor::Schedule::finish_blocks(std::span<const Grid> grids) {
  for (std::size_t i = 0; i < active_.size();) {
    if (active_[i]->live > 0) {
      ++i;
      continue;
    }
    std::unique_ptr<Block> block = std::move(active_[i]);
    active_[i] = std::move(active_.back());
    active_.pop_back();
    if (block->shared.is_overrun() && !failure_) {
      failure_ = std::string(block->grid->kernel) + ": a block wrote beside its " +
                 std::to_string(block->grid->shared_bytes) + " bytes of dynamic shared memory";
    }
    live_threads_ -= block->threads.size();
    --queues_[static_cast<std::size_t>(block->grid - grids.data())].resident;
    idle_blocks_.push_back(std::move(block));
  }
}

// What still waits never goes on: its stacks begin anew.
void Executor::Schedule::abandon() {
  for (auto& block : active_) {
    for (auto& fibre : block->fibres) fibre->restart();
    idle_blocks_.push_back(std::move(block));
  }
  active_.clear();
  live_threads_ = 0;
  idle_fibres_.clear();
  for (auto& fibre : fibres_) {
    fibre->restart();
    idle_fibres_.push_back(fibre.get());
  }
}

// A thread that can run, of this warp if there is one; in a random order now and then of another.
Thread* Executor::Schedule::pick(Warp* prefer) {
  Warp* warp = prefer;
  if (warp == nullptr || warp->runnable == 0 || random_.hops()) {
    Block* block = warp == nullptr ? nullptr : warp->block;
    if (block == nullptr || block->runnable_warps == 0 || prefer == nullptr) {
      block = nullptr;
      const std::size_t first = random_.start(active_.size());
      for (std::size_t i = 0; i < active_.size() && block == nullptr; ++i) {
        Block& candidate = *active_[(first + i) % active_.size()];
        if (candidate.runnable_warps != 0) block = &candidate;
      }
      if (block == nullptr) return nullptr;
    }
    warp = &block->warps[random_.bit(block->runnable_warps)];
  }
  const unsigned lane = random_.bit(warp->runnable);
  warp->runnable &= ~(1U << lane);
  if (warp->runnable == 0) warp->block->runnable_warps &= ~(1U << warp->index);
  return warp->threads[lane];
}

Fibre& Executor::Schedule::fibre_for(Thread& thread) {
  if (!kSharesFibres) return *thread.warp->block->fibres[thread.index];
  Fibre* fibre = idle_fibres_.back();
  idle_fibres_.pop_back();
  return *fibre;
}

// Leaves the running fibre for a thread, or for the main one.
void Executor::Schedule::resume(Thread* thread) {
  Fibre* to = &main_;
  if (thread != nullptr) {
    if (thread->state == ThreadState::fresh) {
      thread->fibre = &fibre_for(*thread);
      starting_ = thread;
    }
    to = thread->fibre;
  }
  Fibre* from = std::exchange(running_, to);
  ++counters_.switches;
  Fibre::switch_over(*from, *to);
}

// The running thread has said what it waits for.
void Executor::Schedule::wait() {
  Thread* me = self_;
  Thread* next = pick(me->warp);
  if (next != me) resume(next);
  self_ = me;
  current_ids = &me->ids;
}

void Executor::Schedule::run_threads() {
  while (true) {
    Schedule& schedule = *current;
    Thread& thread = *schedule.starting_;
    schedule.self_ = &thread;
    current_ids = &thread.ids;
    thread.state = ThreadState::ready;
    ++schedule.counters_.threads;
    orders_after(&schedule.launched_);
    const Grid& grid = *thread.warp->block->grid;
    grid.entry(grid.arguments);
    schedule.end_thread();
  }
}

// Returns where this stack shall run another thread: at once, or when it is resumed for one.
void Executor::Schedule::end_thread() {
  Thread& thread = *self_;
  orders_before(&ended_);
  Warp& warp = *thread.warp;
  thread.state = ThreadState::returned;
  warp.live &= ~(1U << thread.lane);
  --warp.block->live;
  spins_ = 0;
  Thread* next = pick(&warp);
  if (kSharesFibres && next != nullptr && next->state == ThreadState::fresh) {
    next->fibre = running_;
    starting_ = next;
    return;
  }
  if (kSharesFibres) idle_fibres_.push_back(running_);
  resume(next);
}

void Executor::Schedule::fail(const Fault& fault) {
  fault_ = fault;
  while (true) resume(nullptr);  // never comes back
}

std::string Executor::Schedule::describe(const Fault& fault) const {
  const Block& block = *self_->warp->block;
  std::string text = std::string(block.grid->kernel) + ": " + fault.what + ": " +
                     site_name(fault.site) + ", by " + thread_name(*self_);
  if (fault.other != nullptr) {
    text += ", but " + thread_name(*fault.other) + " is in " + site_name(fault.other->site);
  }
  if (fault.names_waiting) text += "; " + waiting_report(block);
  return text;
}

void Executor::Schedule::wait_at_barrier(const Site& site) {
  Thread& thread = *self_;
  Block& block = *thread.warp->block;
  ++counters_.barriers;
  spins_ = 0;
  char* barrier = &block.barriers[block.generation & 1U];
  orders_before(barrier);
  if (block.live != block.threads.size()) {
    fail({.what = "a barrier after threads of the block have returned",
          .site = site,
          .names_waiting = true});
  }
  thread.site = site;
  thread.state = ThreadState::at_barrier;
  if (++block.arrived == block.live) {
    for (const Thread& other : block.threads) {
      if (other.site.line == site.line && other.site.file == site.file) continue;
      fail({.what = "threads of one block wait at different barriers",
            .site = site,
            .other = &other});
    }
    block.arrived = 0;
    ++block.generation;
    block.make_all_runnable();
  }
  wait();
  orders_after(barrier);
}

void Executor::Schedule::check_meeting(const Warp& warp, const Thread& last) {
  for (std::uint32_t left = last.mask; left != 0; left &= left - 1) {
    const Thread& other = *warp.threads[std::countr_zero(left)];
    if (other.mask == last.mask && other.site.line == last.site.line &&
        other.site.file == last.site.file) {
      continue;
    }
    fail({.what = "lanes of one warp meet in different operations",
          .site = last.site,
          .other = &other});
  }
}

void Executor::Schedule::meet(std::uint32_t mask, void* argument, const WarpOperation& operation,
                              const Site& site) {
  Thread& thread = *self_;
  Warp& warp = *thread.warp;
  const std::uint32_t bit = 1U << thread.lane;
  ++counters_.warp_operations;
  spins_ = 0;
  if (mask == ~0U) mask = warp.lanes;  // a short block's warp has no more
  if ((mask & bit) == 0) fail({.what = "a lane is not in its own mask", .site = site});
  if ((mask & ~warp.live) != 0) {
    fail({.what = "a warp operation names lanes that have returned", .site = site});
  }
  if (operation.orders_memory) orders_before(&warp.meeting);
  thread.mask = mask;
  thread.site = site;
  warp.arguments[thread.lane] = argument;
  warp.waiting |= bit;
  if ((warp.waiting & mask) == mask) {
    check_meeting(warp, thread);
    if (operation.function != nullptr) operation.function(warp.arguments, mask);
    warp.waiting &= ~mask;
    for (std::uint32_t left = mask & ~bit; left != 0; left &= left - 1) {
      warp.threads[std::countr_zero(left)]->state = ThreadState::ready;
    }
    warp.block->make_runnable(warp, mask & ~bit);
    if (random_.last_queues()) {
      thread.state = ThreadState::ready;
      warp.block->make_runnable(warp, bit);
      wait();
    }
  } else {
    thread.state = ThreadState::in_warp_operation;
    wait();
  }
  if (operation.orders_memory) orders_after(&warp.meeting);
}

void Executor::Schedule::pause(const Site& site) {
  Thread& thread = *self_;
  thread.site = site;
  thread.state = ThreadState::ready;
  ++spins_;
  if (spins_ > kSpinsBeforeYield) {  // whoever is waited for may be on another OS thread
    if (spins_ == kSpinsBeforeYield + 1) spinning_since_ = now();
    std::this_thread::yield();
    if (spins_ % kSpinsBetweenLooks == 0 && now() - spinning_since_ > options_.spin_deadline) {
      fail({.what = "threads do nothing but spin", .site = site, .names_waiting = true});
    }
  }
  thread.warp->block->make_runnable(*thread.warp, 1U << thread.lane);
  const RandomOrder::Fair fair(random_);  // or a spinner that comes first would keep the turn
  Thread* next = pick(nullptr);
  if (next == &thread) return;
  resume(next);
  self_ = &thread;
  current_ids = &thread.ids;
}

// --- what kernels call ---

unsigned lane_index() { return current->self().lane; }

void block_barrier(const Site& site) { current->wait_at_barrier(site); }

void warp_operation(std::uint32_t mask, void* argument, const WarpOperation& operation,
                    const Site& site) {
  current->meet(mask, argument, operation, site);
}

void spin_pause(const Site& site) { current->pause(site); }

std::byte* dynamic_shared() { return current->self().warp->block->shared.dynamic(); }

void* static_shared(std::size_t bytes, const char* file, int line) {
  void* memory = current->self().warp->block->shared.declared(bytes, file, line);
  if (memory == nullptr) {
    kernel_fault("more than 16 declarations or 48 KiB of static shared memory",
                 {file, line, "__shared__"});
  }
  return memory;
}

void kernel_fault(const char* message, const Site& site) {
  current->fail({.what = message, .site = site});
}

Executor::Executor(const ExecutorOptions& options)
    : schedule_(std::make_unique<Schedule>(options)) {}
Executor::~Executor() = default;

Status Executor::run(std::span<const Grid> grids) { return schedule_->run(grids); }

const ExecutorCounters& Executor::counters() const { return schedule_->counters(); }

}  // namespace plimsoll::host_cuda
