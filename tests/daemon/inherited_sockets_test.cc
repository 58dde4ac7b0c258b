#include "daemon/inherited_sockets.h"

#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/listener.h"

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

TEST(InheritedSockets, WithoutAManagerThereAreNone) {
  ::unsetenv("LISTEN_FDS");
  EXPECT_TRUE(take_inherited_sockets().empty());
}

TEST(InheritedSockets, TakesListeningOnesByNameAndClosesOthers) {
  const int code = in_child([] {
    Result<Listener> listener = bind_listener("127.0.0.1", 0);
    if (!listener) return 10;
    if (::dup2(listener->fd.get(), 3) != 3 || ::dup2(0, 4) != 4) return 11;
    ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
    ::setenv("LISTEN_FDS", "2", 1);
    ::setenv("LISTEN_FDNAMES", "http:other", 1);
    const std::vector<InheritedSocket> sockets = take_inherited_sockets();
    if (sockets.size() != 1 || sockets[0].name != "http" || sockets[0].fd.get() != 3) return 12;
    if (::fcntl(4, F_GETFD) != -1) return 13;
    if (std::getenv("LISTEN_FDS") != nullptr) return 14;
    return (::fcntl(3, F_GETFL) & O_NONBLOCK) != 0 ? 0 : 15;
  });
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace plimsoll
