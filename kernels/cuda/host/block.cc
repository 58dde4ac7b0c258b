#include "kernels/cuda/host/block.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace plimsoll::host_cuda {
namespace {

std::string triple(const Dim3& at) {
  return "(" + std::to_string(at.x) + "," + std::to_string(at.y) + "," + std::to_string(at.z) + ")";
}

Dim3 place(unsigned index, const Dim3& shape) {
  return {index % shape.x, index / shape.x % shape.y, index / shape.x / shape.y};
}

std::string state_name(const Thread& thread) {
  switch (thread.state) {
    case ThreadState::fresh:
      return "have not begun";
    case ThreadState::returned:
      return "have returned";
    case ThreadState::ready:
      return "can run";
    case ThreadState::at_barrier:
    case ThreadState::in_warp_operation:
      break;
  }
  return "wait in " + site_name(thread.site);
}

}  // namespace

Status Block::begin(const Grid& of, Dim3 id) {
  grid = &of;
  const unsigned count = of.block.count();
  live = count;
  arrived = 0;
  generation = 0;
  runnable_warps = 0;
  threads.assign(count, {});
  warps.assign((count + kWarpLanes - 1) / kWarpLanes, {});
  TRY(shared.prepare(of.shared_bytes));
  for (unsigned i = 0; i < warps.size(); ++i) {
    warps[i].block = this;
    warps[i].index = i;
  }
  for (unsigned i = 0; i < count; ++i) {
    Warp& warp = warps[i / kWarpLanes];
    const unsigned lane = i % kWarpLanes;
    threads[i].ids = {place(i, of.block), id, of.block, of.grid};
    threads[i].warp = &warp;
    threads[i].index = i;
    threads[i].lane = lane;
    warp.threads[lane] = &threads[i];
    warp.lanes |= 1U << lane;
  }
  for (Warp& warp : warps) {
    warp.live = warp.lanes;
    make_runnable(warp, warp.lanes);
  }
  return {};
}

void Block::make_runnable(Warp& warp, std::uint32_t lanes) {
  warp.runnable |= lanes;
  if (warp.runnable != 0) runnable_warps |= 1U << warp.index;
}

void Block::make_all_runnable() {
  for (Warp& warp : warps) {
    for (std::uint32_t left = warp.live; left != 0; left &= left - 1) {
      warp.threads[std::countr_zero(left)]->state = ThreadState::ready;
    }
    make_runnable(warp, warp.live);
  }
}

std::string thread_name(const Thread& thread) {
  return "thread " + triple(thread.ids.thread) + " of block " + triple(thread.ids.block);
}

std::string site_name(const Site& site) {
  const char* slash = std::strrchr(site.file, '/');
  return std::string(site.what) + " at " + (slash == nullptr ? site.file : slash + 1) + ":" +
         std::to_string(site.line);
}

std::string waiting_report(const Block& block) {
  struct Group {
    std::string state;
    const Thread* first;
    unsigned count;
  };
  std::vector<Group> groups;
  for (const Thread& thread : block.threads) {
    std::string state = state_name(thread);
    const auto found = std::ranges::find(groups, state, &Group::state);
    if (found == groups.end()) {
      groups.push_back({std::move(state), &thread, 1});
    } else {
      ++found->count;
    }
  }
  std::string text;
  for (const Group& group : groups) {
    if (!text.empty()) text += "; ";
    text += std::to_string(group.count) + (group.count == 1 ? " thread" : " threads") + " " +
            group.state + " (first: " + thread_name(*group.first) + ")";
  }
  return text;
}

}  // namespace plimsoll::host_cuda
