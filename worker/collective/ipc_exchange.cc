#include "worker/collective/ipc_exchange.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "shared/control/descriptors.h"

namespace plimsoll {
namespace {

constexpr Duration kLookEvery = milliseconds(50);  // at the abort word

}  // namespace

Status give_descriptor(const PeerFds& sockets, int rank, int own, const std::string& what) {
  for (int peer = 0; peer < static_cast<int>(sockets.size()); ++peer) {
    if (peer == rank) continue;
    TRY_CONTEXT(fmt::format("give rank {} the {}: ", peer, what),
                send_descriptor(sockets[static_cast<std::size_t>(peer)].get(), what, own));
  }
  return {};
}

Result<UniqueFd> take_descriptor(const PeerFds& sockets, int peer, const std::string& what,
                                 const ReplicaSegment& segment, Duration deadline) {
  const TimePoint until = now() + deadline;
  const int socket = sockets[static_cast<std::size_t>(peer)].get();
  const std::string attempted = fmt::format("get the {} of rank {}: ", what, peer);
  while (true) {
    if (segment.aborted()) return unavailable(attempted + segment.abort_reason());
    Result<TaggedFd> received =
        receive_descriptor(socket, std::clamp(until - now(), Duration(0), kLookEvery));
    if (received && received->tag == what) return std::move(received->fd);
    if (received) {
      return internal_error(fmt::format("{}it sent '{}' instead", attempted, received->tag));
    }
    const Error& error = received.error();
    if (error.code != Code::timed_out || now() >= until) {
      return Error{error.code, attempted + error.message};
    }
  }
}

Result<PeerFds> exchange_descriptors(const PeerFds& sockets, int rank, int own,
                                     const std::string& what, const ReplicaSegment& segment,
                                     Duration deadline) {
  const TimePoint until = now() + deadline;
  TRY(give_descriptor(sockets, rank, own, what));
  PeerFds received(sockets.size());
  for (int peer = 0; peer < static_cast<int>(sockets.size()); ++peer) {
    if (peer == rank) continue;
    received[static_cast<std::size_t>(peer)] =
        TRY(take_descriptor(sockets, peer, what, segment, until - now()));
  }
  return received;
}

}  // namespace plimsoll
