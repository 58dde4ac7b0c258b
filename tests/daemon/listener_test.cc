#include "daemon/listener.h"

#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"

namespace plimsoll {
namespace {

std::int64_t port_of(const std::string& url) { return std::stoll(url.substr(url.rfind(':') + 1)); }

TEST(Listener, PortZeroIsAFreeOneAndTheUrlSaysWhich) {
  const Result<Listener> listener = bind_listener("127.0.0.1", 0);
  ASSERT_TRUE(listener) << listener.error().message;
  EXPECT_EQ(listener->url.rfind("http://127.0.0.1:", 0), 0U);
  EXPECT_GT(port_of(listener->url), 0);
}

TEST(Listener, ATakenPortNamesItsHolder) {
  const Result<Listener> first = bind_listener("127.0.0.1", 0);
  ASSERT_TRUE(first);
  const Result<Listener> second = bind_listener("127.0.0.1", port_of(first->url));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::unavailable);
  EXPECT_NE(second.error().message.find("process " + std::to_string(::getpid())), std::string::npos)
      << second.error().message;
  EXPECT_NE(second.error().message.find("--port"), std::string::npos);
}

TEST(Listener, EveryAddressIsShownAsOneToConnectTo) {
  const Result<Listener> listener = bind_listener("0.0.0.0", 0);
  ASSERT_TRUE(listener);
  EXPECT_EQ(listener->url.rfind("http://127.0.0.1:", 0), 0U);
}

TEST(Listener, AHostThatIsNoneIsInvalid) {
  const Result<Listener> listener = bind_listener("256.1.1.1.invalid", 0);
  ASSERT_FALSE(listener);
  EXPECT_EQ(listener.error().code, Code::invalid);
  const Result<Listener> foreign = bind_listener("192.0.2.1", 0);
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().code, Code::invalid);
  // Another port would not help.
  EXPECT_NE(foreign.error().message.find("--host"), std::string::npos) << foreign.error().message;
  EXPECT_EQ(foreign.error().message.find("--port"), std::string::npos) << foreign.error().message;
}

TEST(Listener, ASocketSaysItsAddress) {
  const Result<Listener> listener = bind_listener("::1", 0);
  if (listener) {  // not every machine has IPv6
    EXPECT_EQ(socket_address(listener->fd.get())->host, "::1");
    EXPECT_NE(listener->url.find("[::1]"), std::string::npos);
  }
  const Result<Listener> v4 = bind_listener("127.0.0.1", 0);
  EXPECT_EQ(socket_address(v4->fd.get())->host, "127.0.0.1");
  EXPECT_FALSE(socket_address(0));
}

TEST(Listener, ANameAndItsAddressAreTheSameHost) {
  EXPECT_TRUE(is_same_host("127.0.0.1", "127.0.0.1"));
  EXPECT_TRUE(is_same_host("0.0.0.0", "0.0.0.0"));
  EXPECT_FALSE(is_same_host("0.0.0.0", "127.0.0.1"));
  EXPECT_FALSE(is_same_host("256.1.1.1.invalid", "127.0.0.1"));
}

TEST(Listener, AHolderThatCannotBeSeenIsNotNamed) {
  const TempFolder empty;
  EXPECT_EQ(port_holder(8000, empty.path()), "");
}

}  // namespace
}  // namespace plimsoll
