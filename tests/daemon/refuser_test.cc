#include "daemon/refuser.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/listener.h"
#include "shared/base/json.h"
#include "tests/support/raw_http.h"

namespace plimsoll {
namespace {

class RefuserTest : public ::testing::Test {
 protected:
  RefuserTest() {
    EXPECT_TRUE(listener_) << listener_.error().message;
    (void)::fcntl(listener_->fd.get(), F_SETFL, O_NONBLOCK);
    port_ = static_cast<std::uint16_t>(socket_address(listener_->fd.get())->port);
  }
  Result<Listener> listener_ = bind_listener("127.0.0.1", 0);
  std::uint16_t port_ = 0;
  Refuser refuser_;
};

TEST_F(RefuserTest, WhoWaitsIsToldWhyAndToComeAgain) {
  RawHttp client(port_);
  client.post("/v1/completions", R"({"prompt":"x"})");
  refuser_.serve(listener_->fd.get(), "no \"model\" is served", now());
  RawAnswer answer = client.answer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_FALSE(answer.headers["retry-after"].empty());
  const Result<Json> body = parse_json(answer.body);
  ASSERT_TRUE(body) << answer.body;
  EXPECT_EQ(body->find("error")->find("message")->as_string(), "no \"model\" is served");
}

TEST_F(RefuserTest, ClientsThatCloseAreLetGoAndOthersAfterTheirTime) {
  const TimePoint start = now();
  RawHttp one(port_);
  RawHttp other(port_);
  refuser_.serve(listener_->fd.get(), "stopped", start);
  EXPECT_EQ(refuser_.open(), 2U);
  EXPECT_EQ(refuser_.descriptors().size(), 2U);
  one.close();
  while (refuser_.open() == 2 && now() < start + Refuser::kReadTime) refuser_.look(start);
  EXPECT_EQ(refuser_.open(), 1U);
  EXPECT_EQ(refuser_.next_deadline(), start + Refuser::kReadTime);
  refuser_.look(start + Refuser::kReadTime);
  EXPECT_EQ(refuser_.open(), 0U);
}

TEST_F(RefuserTest, WithoutDescriptorsItPausesAndThenGoesOn) {
  RawHttp client(port_);
  client.post("/v1/completions", R"({"prompt":"x"})");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  const int next = ::dup(listener_->fd.get());
  ::close(next);
  none.rlim_cur = static_cast<rlim_t>(next);  // the first number that would be free
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const TimePoint at = now();
  refuser_.serve(listener_->fd.get(), "nothing is served", at);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(refuser_.has_room()) << "it would be asked again and again";
  EXPECT_EQ(refuser_.next_deadline(), at + Refuser::kPause);
  refuser_.look(at + Refuser::kPause);
  EXPECT_TRUE(refuser_.has_room());
  refuser_.serve(listener_->fd.get(), "nothing is served", now());
  EXPECT_EQ(client.answer().status, 503);
}

TEST_F(RefuserTest, FinishingAnswersAllThatWaitAndEndsInTime) {
  RawHttp one(port_);
  RawHttp other(port_);
  one.get("/health");
  refuser_.finish(listener_->fd.get(), "it has failed", milliseconds(20));
  EXPECT_EQ(one.answer().status, 503);
  EXPECT_EQ(other.answer().status, 503);
}

TEST_F(RefuserTest, WithNobodyThereFinishingIsImmediate) {
  const TimePoint start = now();
  refuser_.finish(listener_->fd.get(), "it has failed", seconds(60));
  EXPECT_LT(to_seconds(now() - start), 30);
}

}  // namespace
}  // namespace plimsoll
