// Block: the CUDA threads of one block on the CPU: what each waits for, and its shared memory.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/host/device_calls.h"
#include "kernels/cuda/host/executor.h"
#include "kernels/cuda/host/fibre.h"
#include "kernels/cuda/host/shared_memory.h"

namespace plimsoll::host_cuda {

constexpr unsigned kWarpLanes = 32;
constexpr unsigned kBlockThreadsMax = 1024;

enum class ThreadState : std::uint8_t { fresh, ready, at_barrier, in_warp_operation, returned };

struct Block;
struct Warp;

struct Thread {
  ThreadIds ids;
  Fibre* fibre = nullptr;  // once begun
  Warp* warp = nullptr;
  unsigned index = 0;  // in its block
  unsigned lane = 0;
  ThreadState state = ThreadState::fresh;
  Site site;               // of the barrier or operation it waits in
  std::uint32_t mask = 0;  // of the operation
};

struct Warp {
  Block* block = nullptr;
  unsigned index = 0;
  std::uint32_t lanes = 0;     // that exist
  std::uint32_t runnable = 0;  // by lane
  std::uint32_t waiting = 0;   // in a warp operation
  std::uint32_t live = 0;      // not returned
  Thread* threads[kWarpLanes] = {};
  void* arguments[kWarpLanes] = {};
  char meeting = 0;  // its address stands for __syncwarp()
};

struct Block {
  const Grid* grid = nullptr;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::uint32_t runnable_warps = 0;
  unsigned live = 0;
  unsigned arrived = 0;
  unsigned generation = 0;  // of its barrier
  char barriers[2] = {};    // their addresses stand for two barriers in a row
  SharedMemory shared;
  std::vector<std::unique_ptr<Fibre>> fibres;  // of each thread, where they may not be shared

  Status begin(const Grid& of, Dim3 id);
  void make_runnable(Warp& warp, std::uint32_t lanes);
  void make_all_runnable();
};

std::string thread_name(const Thread& thread);  // "thread (3,0,0) of block (1,0,0)"
std::string site_name(const Site& site);        // "__syncthreads at norm.cu:20"
// Who waits where: "32 threads wait in ...; 32 threads have returned".
std::string waiting_report(const Block& block);

}  // namespace plimsoll::host_cuda
