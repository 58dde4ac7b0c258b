#include "worker/collective/ipc_exchange.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "shared/control/descriptors.h"

namespace plimsoll {
namespace {

constexpr const char* kTag = "buffer";
constexpr Duration kLookEvery = milliseconds(50);  // at the abort word

Result<UniqueFd> receive_from(int peer, int socket, const ReplicaSegment& segment,
                              TimePoint deadline) {
  const std::string attempted = fmt::format("get the buffer of rank {}: ", peer);
  while (true) {
    if (segment.aborted()) return unavailable(attempted + segment.abort_reason());
    Result<TaggedFd> received =
        receive_descriptor(socket, std::clamp(deadline - now(), Duration(0), kLookEvery));
    if (received && received->tag == kTag) return std::move(received->fd);
    if (received) {
      return internal_error(fmt::format("{}it sent '{}' instead", attempted, received->tag));
    }
    const Error& error = received.error();
    if (error.code != Code::timed_out || now() >= deadline) {
      return Error{error.code, attempted + error.message};
    }
  }
}

}  // namespace

Result<PeerFds> exchange_descriptors(const PeerFds& sockets, int rank, int own,
                                     const ReplicaSegment& segment, Duration deadline) {
  const int ranks = static_cast<int>(sockets.size());
  const TimePoint until = now() + deadline;
  const auto socket = [&](int peer) { return sockets[static_cast<std::size_t>(peer)].get(); };
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    TRY_CONTEXT(fmt::format("give rank {} the buffer: ", peer),
                send_descriptor(socket(peer), kTag, own));
  }
  PeerFds received(sockets.size());
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    received[static_cast<std::size_t>(peer)] =
        TRY(receive_from(peer, socket(peer), segment, until));
  }
  return received;
}

}  // namespace plimsoll
