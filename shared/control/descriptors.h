// Descriptors: file descriptors over the inherited socket pair (SCM_RIGHTS), each with a tag.
//
// The pair carries descriptors and is the death pipe, nothing else: all words go over ZeroMQ.
#pragma once

#include <string>

#include "shared/base/clock.h"
#include "shared/base/result.h"
#include "shared/base/unique_fd.h"

namespace plimsoll {

// The child's end of the pair is this descriptor number.
constexpr int kParentFd = 3;

struct TaggedFd {
  // "segment" (memory that a replica's ranks share), "peer" (a socket to another rank; they come in
  // rank order), "buffer", "nccl id" (over such a socket), "weights" (a SealedBlock),
  // "listener"
  std::string tag;
  UniqueFd fd;
};

struct SocketPair {
  UniqueFd parent;
  UniqueFd child;
};
Result<SocketPair> descriptor_pair();

// Never blocks. Errors: unavailable where the other side is gone or does not take what was sent.
Status send_descriptor(int socket, const std::string& tag, int fd);
// Errors: timed_out; unavailable where the other side is gone.
Result<TaggedFd> receive_descriptor(int socket, Duration timeout);

}  // namespace plimsoll
