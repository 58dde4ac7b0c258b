#include "daemon/service_notify.h"

#include <array>
#include <cstdlib>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "shared/base/unique_fd.h"
#include "tests/support/temp_folder.h"

namespace plimsoll {
namespace {

// A service manager that only listens.
class Manager {
 public:
  Manager() : socket_(::socket(AF_UNIX, SOCK_DGRAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = (folder_.path() / "notify").string();
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
  }
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;
  ~Manager() {
    ::unsetenv("NOTIFY_SOCKET");
    ::unsetenv("WATCHDOG_USEC");
  }
  std::string heard() const {
    std::array<char, 4096> buffer;
    const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    return got > 0 ? std::string(buffer.data(), static_cast<std::size_t>(got)) : "";
  }

 private:
  TempFolder folder_;
  UniqueFd socket_;
};

TEST(ServiceNotify, SpeaksTheProtocolsWords) {
  EXPECT_EQ(notify_text({.is_ready = true, .status = "serving"}), "READY=1\nSTATUS=serving\n");
  EXPECT_EQ(notify_text({.status = "loading", .extend = seconds(60)}),
            "STATUS=loading\nEXTEND_TIMEOUT_USEC=60000000\n");
  EXPECT_EQ(notify_text({.is_stopping = true, .status = ""}), "STOPPING=1\n");
}

TEST(ServiceNotify, WordsReachTheManager) {
  const Manager manager;
  ServiceNotify service;
  service.send({.is_ready = true, .status = "serving"});
  EXPECT_EQ(manager.heard(), "READY=1\nSTATUS=serving\n");
  EXPECT_FALSE(service.next_deadline());
}

TEST(ServiceNotify, TheWatchdogIsFedAtHalfItsInterval) {
  const Manager manager;
  ::setenv("WATCHDOG_USEC", "10000000", 1);
  ServiceNotify service;
  const TimePoint start = TimePoint() + seconds(100);
  service.alive(start);
  EXPECT_EQ(manager.heard(), "WATCHDOG=1");
  service.alive(start + seconds(1));
  EXPECT_EQ(manager.heard(), "");
  EXPECT_EQ(service.next_deadline(), start + seconds(5));
  service.alive(start + seconds(5));
  EXPECT_EQ(manager.heard(), "WATCHDOG=1");
}

TEST(ServiceNotify, WithoutAManagerNothingHappens) {
  ServiceNotify service;
  service.send({.is_ready = true, .status = "x"});
  service.alive(now());
  EXPECT_FALSE(service.next_deadline());
}

TEST(ServiceNotify, ADescriptorGoesIntoTheStoreAndOut) {
  const Manager manager;
  ServiceNotify service;
  EXPECT_TRUE(service.store("listener", 0));
  EXPECT_EQ(manager.heard(), "FDSTORE=1\nFDNAME=listener");
  service.forget("listener");
  EXPECT_EQ(manager.heard(), "FDSTOREREMOVE=1\nFDNAME=listener");
}

TEST(ServiceNotify, WithoutAManagerNothingIsStored) {
  ::unsetenv("NOTIFY_SOCKET");
  EXPECT_FALSE(ServiceNotify().store("listener", 0));
}

}  // namespace
}  // namespace plimsoll
