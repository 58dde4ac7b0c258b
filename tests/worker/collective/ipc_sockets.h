// IpcSockets: what the daemon gives the ranks of a replica: a socket pair between every two.
#pragma once

#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "shared/control/descriptors.h"
#include "worker/collective/ipc_exchange.h"

namespace plimsoll {

inline std::vector<PeerFds> connect_ranks(int ranks) {
  std::vector<PeerFds> sockets(static_cast<std::size_t>(ranks));
  for (std::size_t low = 0; low < sockets.size(); ++low) {
    sockets[low].resize(sockets.size());
    for (std::size_t high = 0; high < low; ++high) {
      auto pair = descriptor_pair();
      EXPECT_TRUE(pair) << pair.error().message;
      if (!pair) return sockets;
      sockets[low][high] = std::move(pair->parent);
      sockets[high][low] = std::move(pair->child);
    }
  }
  return sockets;
}

}  // namespace plimsoll
