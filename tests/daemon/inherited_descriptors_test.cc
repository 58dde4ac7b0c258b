#include "daemon/inherited_descriptors.h"

#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/listener.h"
#include "shared/base/sealed_block.h"

namespace plimsoll {
namespace {

// The protocol wants descriptors from 3 on, which a process of its own can have.
int in_child(int (*body)()) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

TEST(InheritedDescriptors, WithoutAManagerThereAreNone) {
  ::unsetenv("LISTEN_FDS");
  const InheritedDescriptors taken = take_inherited_descriptors();
  EXPECT_TRUE(taken.sockets.empty() && taken.weights.empty());
}

TEST(InheritedDescriptors, TakesListeningOnesByNameAndClosesOthers) {
  const int code = in_child([] {
    Result<Listener> listener = bind_listener("127.0.0.1", 0);
    if (!listener) return 10;
    if (::dup2(listener->fd.get(), 3) != 3 || ::dup2(0, 4) != 4) return 11;
    ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
    ::setenv("LISTEN_FDS", "2", 1);
    ::setenv("LISTEN_FDNAMES", "http:other", 1);
    const std::vector<InheritedDescriptor> sockets = take_inherited_descriptors().sockets;
    if (sockets.size() != 1 || sockets[0].name != "http" || sockets[0].fd.get() != 3) return 12;
    if (::fcntl(4, F_GETFD) != -1) return 13;
    if (std::getenv("LISTEN_FDS") != nullptr) return 14;
    return (::fcntl(3, F_GETFL) & O_NONBLOCK) != 0 ? 0 : 15;
  });
  EXPECT_EQ(code, 0);
}

TEST(InheritedDescriptors, TakesWeightsThatAreAllThereAndClosesOthers) {
  const int code = in_child([] {
    const Result<UniqueFd> begun = SealedBlock::create("test", 1000);
    const Result<UniqueFd> done = SealedBlock::create("test", 1000);
    if (!begun || !done) return 10;
    auto block = SealedBlock::open(done->get(), 1000, "label");
    if (!block || !*block || !(*block)->seal()) return 11;
    // Their own numbers may be those that the protocol wants.
    const UniqueFd begun_high(::fcntl(begun->get(), F_DUPFD, 20));
    const UniqueFd done_high(::fcntl(done->get(), F_DUPFD, 20));
    if (::dup2(begun_high.get(), 3) != 3 || ::dup2(done_high.get(), 4) != 4) return 12;
    ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
    ::setenv("LISTEN_FDS", "2", 1);
    ::setenv("LISTEN_FDNAMES", "weights-0:weights-1", 1);
    const InheritedDescriptors taken = take_inherited_descriptors();
    if (!taken.sockets.empty() || taken.weights.size() != 1) return 13;
    if (::fcntl(3, F_GETFD) != -1) return 14;
    return taken.weights[0].name == "weights-1" && taken.weights[0].fd.get() == 4 ? 0 : 15;
  });
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace plimsoll
