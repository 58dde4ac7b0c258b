#include "daemon/http_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

namespace plimsoll {
namespace {

class HttpSocketTest : public ::testing::Test {
 protected:
  static Listener bound() {
    Result<Listener> listener = bind_listener("127.0.0.1", 0);
    EXPECT_TRUE(listener) << listener.error().message;
    return std::move(*listener);
  }
  HttpSocket with(const char* name, UniqueFd fd) {
    std::vector<InheritedDescriptor> sockets;
    sockets.push_back({name, std::move(fd)});
    return HttpSocket(std::move(sockets), service_);
  }
  static std::int64_t port_of(int fd) { return socket_address(fd)->port; }
  ServiceNotify service_;
};

TEST_F(HttpSocketTest, WithoutAnInheritedOneItBinds) {
  HttpSocket http({}, service_);
  EXPECT_EQ(http.fd(), -1);
  const Result<std::string> url = http.open("127.0.0.1", 0);
  ASSERT_TRUE(url) << url.error().message;
  EXPECT_GE(http.fd(), 0);
  http.close({});
  EXPECT_EQ(http.fd(), -1);
}

TEST_F(HttpSocketTest, ThePortThatItHasGotMayBeAskedForByItsNumber) {
  HttpSocket http({}, service_);
  const std::string url = http.open("127.0.0.1", 0).value();
  const std::int64_t port = port_of(http.fd());
  const int fd = http.fd();
  const Result<std::string> again = http.open("127.0.0.1", port);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(*again, url);
  EXPECT_EQ(http.fd(), fd);
  EXPECT_TRUE(http.open("0.0.0.0", port)) << "of another host its own socket is in the way";
}

TEST_F(HttpSocketTest, TheSocketUnitsIsUsedAndOutlivesAClose) {
  Listener unit = bound();
  const std::string url = unit.url;
  const std::int64_t port = port_of(unit.fd.get());
  HttpSocket http = with("http", std::move(unit.fd));
  EXPECT_EQ(http.open("127.0.0.1", port).value(), url);
  http.close({});
  EXPECT_FALSE(bind_listener("127.0.0.1", port)) << "somebody may wait there";
  EXPECT_EQ(http.open("127.0.0.1", 0).value(), url);
}

TEST_F(HttpSocketTest, ASocketUnitWithAnotherPortIsAMistakeOfTheConfiguration) {
  HttpSocket http = with("http", bound().fd);
  const Result<std::string> url = http.open("127.0.0.1", 1);
  ASSERT_FALSE(url);
  EXPECT_EQ(url.error().code, Code::invalid);
  EXPECT_NE(url.error().message.find("port 1"), std::string::npos) << url.error().message;
}

TEST_F(HttpSocketTest, OneOfAnEarlierLifeIsUsedWhereItsAddressIsStillWanted) {
  Listener stored = bound();
  const std::string url = stored.url;
  const std::int64_t port = port_of(stored.fd.get());
  HttpSocket http = with(kStoredListener, std::move(stored.fd));
  EXPECT_EQ(http.open("localhost", port).value(), "http://localhost:" + std::to_string(port));
  http.close({});
  EXPECT_TRUE(bind_listener("127.0.0.1", port)) << url;
}

TEST_F(HttpSocketTest, OneOfAnEarlierLifeGoesWhereTheAddressHasChanged) {
  Listener stored = bound();
  const std::int64_t port = port_of(stored.fd.get());
  Listener other = bound();
  const std::int64_t wanted = port_of(other.fd.get());
  other.fd.reset();
  HttpSocket http = with(kStoredListener, std::move(stored.fd));
  ASSERT_TRUE(http.open("127.0.0.1", wanted));
  EXPECT_EQ(port_of(http.fd()), wanted);
  EXPECT_TRUE(bind_listener("127.0.0.1", port)) << "nobody waits at the old one";
}

TEST_F(HttpSocketTest, OfTwoOfAnEarlierLifeTheOneWithTheWantedAddressIsUsed) {
  for (const bool is_first : {true, false}) {
    Listener wanted = bound();
    Listener other = bound();
    const std::int64_t port = port_of(wanted.fd.get());
    const std::int64_t other_port = port_of(other.fd.get());
    std::vector<InheritedDescriptor> sockets;
    sockets.push_back({kStoredListener, std::move(is_first ? wanted.fd : other.fd)});
    sockets.push_back({kStoredListener, std::move(is_first ? other.fd : wanted.fd)});
    HttpSocket http(std::move(sockets), service_);
    ASSERT_TRUE(http.open("127.0.0.1", port)) << "killed between a change of port and its commit";
    EXPECT_TRUE(bind_listener("127.0.0.1", other_port)) << "the other one is let go of";
  }
}

TEST_F(HttpSocketTest, ATakenAddressLeavesWhatIsOpen) {
  HttpSocket http({}, service_);
  ASSERT_TRUE(http.open("127.0.0.1", 0));
  const std::int64_t port = port_of(http.fd());
  const Listener taken = bound();
  EXPECT_FALSE(http.open("127.0.0.1", port_of(taken.fd.get())));
  EXPECT_EQ(port_of(http.fd()), port);
}

TEST_F(HttpSocketTest, TheFormerOneComesBackWithWhoWaitsThere) {
  HttpSocket http({}, service_);
  ASSERT_TRUE(http.open("127.0.0.1", 0));
  const std::int64_t first = port_of(http.fd());
  Listener free = bound();
  const std::int64_t second = port_of(free.fd.get());
  free.fd.reset();
  ASSERT_TRUE(http.open("127.0.0.1", second));
  EXPECT_FALSE(bind_listener("127.0.0.1", first)) << "somebody may wait there";
  ASSERT_TRUE(http.open("127.0.0.1", 0));
  EXPECT_EQ(port_of(http.fd()), first);
  EXPECT_TRUE(bind_listener("127.0.0.1", second));
}

TEST_F(HttpSocketTest, TheFormerOneComesBackAlsoByTheNumberThatItGot) {
  HttpSocket http({}, service_);
  ASSERT_TRUE(http.open("127.0.0.1", 0));
  const std::int64_t first = port_of(http.fd());
  Listener free = bound();
  const std::int64_t second = port_of(free.fd.get());
  free.fd.reset();
  ASSERT_TRUE(http.open("127.0.0.1", second));
  const Result<std::string> back = http.open("127.0.0.1", first);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(port_of(http.fd()), first);
}

TEST_F(HttpSocketTest, TheFormerOneGoesWhenTheNewOneIsKept) {
  HttpSocket http({}, service_);
  ASSERT_TRUE(http.open("127.0.0.1", 0));
  const std::int64_t first = port_of(http.fd());
  Listener free = bound();
  const std::int64_t second = port_of(free.fd.get());
  free.fd.reset();
  ASSERT_TRUE(http.open("127.0.0.1", second));
  http.keep();
  EXPECT_TRUE(bind_listener("127.0.0.1", first));
  EXPECT_EQ(port_of(http.fd()), second);
}

TEST_F(HttpSocketTest, AnotherHostOfTheSamePortTakesItsPlace) {
  HttpSocket http({}, service_);
  Listener free = bound();
  const std::int64_t port = port_of(free.fd.get());
  free.fd.reset();
  ASSERT_TRUE(http.open("127.0.0.1", port));
  {
    // While a router still has it nobody else can, and the old one must not be lost over it.
    const UniqueFd router(::dup(http.fd()));
    EXPECT_FALSE(http.open("0.0.0.0", port));
  }
  ASSERT_TRUE(http.open("0.0.0.0", port));
  EXPECT_EQ(port_of(http.fd()), port);
}

TEST_F(HttpSocketTest, ASocketOfAnotherKindIsRefused) {
  HttpSocket http = with("http", UniqueFd(::socket(AF_UNIX, SOCK_STREAM, 0)));
  EXPECT_FALSE(http.open("127.0.0.1", 0));
}

}  // namespace
}  // namespace plimsoll
