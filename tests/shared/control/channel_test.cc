#include "shared/control/channel.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <zmq.h>

#include "shared/base/unique_fd.h"
#include "shared/control/codec.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

class ChannelTest : public ::testing::Test {
 protected:
  ChannelTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "channel.XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    endpoint_ = "ipc://" + (folder_ / "control").string();
  }
  ~ChannelTest() override { std::filesystem::remove_all(folder_); }

  Channel bind() {
    Result<Channel> channel = Channel::bind(endpoint_, 0600);
    EXPECT_TRUE(channel) << channel.error().message;
    return std::move(*channel);
  }
  Channel connect() { return std::move(*Channel::connect(endpoint_)); }

  std::filesystem::path folder_;
  std::string endpoint_;
};

// A socket of the bare library, for what our own peers never send.
class ForeignPeer {
 public:
  explicit ForeignPeer(const std::string& endpoint)
      : context_(zmq_ctx_new()), socket_(zmq_socket(context_, ZMQ_DEALER)) {
    EXPECT_EQ(zmq_connect(socket_, endpoint.c_str()), 0);
  }
  ForeignPeer(const ForeignPeer&) = delete;
  ForeignPeer& operator=(const ForeignPeer&) = delete;
  ~ForeignPeer() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  void send(std::string_view bytes, int flags = 0) {
    EXPECT_EQ(zmq_send(socket_, bytes.data(), bytes.size(), flags), static_cast<int>(bytes.size()));
  }

 private:
  void* context_;
  void* socket_;
};

TEST_F(ChannelTest, AnswersGoToTheOneWhoAsked) {
  Channel server = bind();
  Channel first = connect();
  Channel second = connect();
  ASSERT_TRUE(first.send(Ping{1}));
  ASSERT_TRUE(second.send(Ping{2}));
  for (int i = 0; i < 2; ++i) {
    const std::optional<Received> received = server.receive(seconds(5));
    ASSERT_TRUE(received);
    EXPECT_FALSE(received->peer.empty());
    const std::int64_t sequence = std::get<Ping>(received->message).sequence;
    ASSERT_TRUE(server.send(received->peer, Pong{.sequence = sequence * 10}));
  }
  EXPECT_EQ(std::get<Pong>(first.receive(seconds(5))->message).sequence, 10);
  EXPECT_EQ(std::get<Pong>(second.receive(seconds(5))->message).sequence, 20);
  EXPECT_FALSE(first.receive());
}

TEST_F(ChannelTest, WhatIsSentBeforeTheOtherSideBindsArrives) {
  Channel early = connect();
  ASSERT_TRUE(early.send(Ping{7}));
  Channel server = bind();
  const std::optional<Received> received = server.receive(seconds(5));
  ASSERT_TRUE(received);
  EXPECT_EQ(std::get<Ping>(received->message).sequence, 7);
}

TEST_F(ChannelTest, TheSocketFileHasItsModeAndGoesWithTheChannel) {
  const std::filesystem::path path = folder_ / "control";
  {
    const Channel server = bind();
    struct stat found {};
    ASSERT_EQ(::stat(path.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777U, 0600U);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(ChannelTest, ASocketFileInUseIsNotTakenOver) {
  Channel server = bind();
  const Result<Channel> second = Channel::bind(endpoint_, 0600);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::unavailable);
  Channel client = connect();
  ASSERT_TRUE(client.send(Ping{1}));
  EXPECT_TRUE(server.receive(seconds(5)));
}

TEST_F(ChannelTest, ALeftSocketFileIsReplaced) {
  {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (folder_ / "control").string().copy(address.sun_path, sizeof address.sun_path - 1);
    const UniqueFd left(::socket(AF_UNIX, SOCK_STREAM, 0));
    ASSERT_EQ(::bind(left.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ASSERT_TRUE(std::filesystem::exists(folder_ / "control"));
  Channel server = bind();
  Channel client = connect();
  ASSERT_TRUE(client.send(Ping{1}));
  EXPECT_TRUE(server.receive(seconds(5)));
}

TEST_F(ChannelTest, AFileThatIsNoSocketIsKept) {
  std::ofstream(folder_ / "control") << "precious";
  EXPECT_FALSE(Channel::bind(endpoint_, 0600));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "control"));
}

TEST_F(ChannelTest, APathLongerThanASocketMayHaveNamesTheOption) {
  const Result<Channel> channel = Channel::bind("ipc:///tmp/" + std::string(200, 'x'), 0600);
  ASSERT_FALSE(channel);
  EXPECT_EQ(channel.error().code, Code::invalid);
  EXPECT_NE(channel.error().message.find("--runtime-dir"), std::string::npos);
}

TEST_F(ChannelTest, GarbageIsSkippedAndReportedOncePerPeer) {
  Channel server = bind();
  ForeignPeer foreign(endpoint_);
  ForeignPeer another(endpoint_);
  Channel ours = connect();
  for (int i = 0; i < 100; ++i) foreign.send("GET / HTTP/1.1\r\n");
  foreign.send("", ZMQ_SNDMORE);  // the framing of a REQ socket
  foreign.send(encode_message(Ping{1}));
  foreign.send(encode_message(Ping{2}));
  another.send(to_msgpack(Json::array({"PLIM", 99, "ping", Json::object()})));
  another.send(encode_message(Ping{3}));
  ASSERT_TRUE(ours.send(Ping{4}));

  std::int64_t sum = 0;
  for (int i = 0; i < 3; ++i) {
    const std::optional<Received> received = server.receive(seconds(5));
    ASSERT_TRUE(received);
    sum += std::get<Ping>(received->message).sequence;
  }
  EXPECT_EQ(sum, 2 + 3 + 4);
  std::vector<std::string> lines;
  while (std::optional<std::string> line = server.take_refusal()) lines.push_back(*line);
  ASSERT_EQ(lines.size(), 2U);
  const std::string both = lines[0] + lines[1];
  EXPECT_NE(both.find("not a message of Plimsoll"), std::string::npos) << both;
  EXPECT_NE(both.find("version 99"), std::string::npos) << both;
}

// Reads with the edge-triggered descriptor only, as the processes' loops do.
TEST_F(ChannelTest, AFloodOfRefusedMessagesHoldsNoCallAndLosesNothing) {
  constexpr int kRefused = 1000;
  Channel server = bind();
  ForeignPeer foreign(endpoint_);
  for (int i = 0; i < kRefused; ++i) foreign.send("garbage");
  foreign.send(encode_message(Ping{1}));
  std::optional<Received> received;
  int calls = 0;
  for (const TimePoint end = now() + seconds(20); !received && now() < end; ++calls) {
    received = server.receive();
    if (received || server.has_more()) continue;
    pollfd wanted{.fd = server.fd(), .events = POLLIN, .revents = 0};
    if (::poll(&wanted, 1, 20'000) != 1) break;
  }
  ASSERT_TRUE(received);
  EXPECT_GE(calls, kRefused / 20) << "one call looked at too many";
  EXPECT_FALSE(server.has_more());
  EXPECT_TRUE(server.take_refusal());
  EXPECT_FALSE(server.take_refusal());
}

TEST_F(ChannelTest, WhatItsReaderRefusesIsReportedOncePerPeer) {
  Channel server = bind();
  for (int i = 0; i < 3; ++i) server.refuse("a", "'pong' does not belong here");
  server.refuse("b", "'pong' does not belong here");
  EXPECT_EQ(server.take_refusal(), "refused a message: 'pong' does not belong here");
  EXPECT_TRUE(server.take_refusal());
  EXPECT_FALSE(server.take_refusal());
}

TEST_F(ChannelTest, ManyRefusedPeersCostABoundedAmount) {
  Channel server = bind();
  std::size_t lines = 0;
  for (int i = 0; i < 300; ++i) {
    ForeignPeer foreign(endpoint_);
    foreign.send("garbage");
    foreign.send(encode_message(Ping{1}));
    ASSERT_TRUE(server.receive(seconds(5))) << i;
    while (server.take_refusal()) ++lines;
  }
  EXPECT_EQ(lines, 257U);
}

TEST_F(ChannelTest, AnOversizeMessageIsRefusedBeforeItIsSent) {
  Channel server = bind();
  Channel client = connect();
  const Status sent = client.send(Fault{.code = "", .message = std::string(kMessageBytesMax, 'x')});
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, Code::invalid);
  ASSERT_TRUE(client.send(Ping{1}));
  EXPECT_TRUE(server.receive(seconds(5)));
}

TEST_F(ChannelTest, AnOversizeMessageOfAForeignPeerNeverArrives) {
  Channel server = bind();
  ForeignPeer foreign(endpoint_);
  foreign.send(std::string(kMessageBytesMax + 1, 'x'));
  Channel client = connect();
  ASSERT_TRUE(client.send(Ping{1}));
  const std::optional<Received> received = server.receive(seconds(10));
  ASSERT_TRUE(received);
  EXPECT_EQ(std::get<Ping>(received->message).sequence, 1);
}

TEST_F(ChannelTest, APeerThatHasGoneIsAnError) {
  Channel server = bind();
  std::string peer;
  {
    Channel client = connect();
    ASSERT_TRUE(client.send(Ping{1}));
    peer = server.receive(seconds(5))->peer;
    ASSERT_TRUE(server.send(peer, Pong{}));
  }
  Status sent;
  const TimePoint deadline = now() + seconds(10);
  while (sent && now() < deadline) {
    sent = server.send(peer, Pong{});
    (void)server.receive(milliseconds(1));  // lets the library notice
  }
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, Code::unavailable);
  EXPECT_FALSE(server.send("no such peer", Pong{}));
}

TEST_F(ChannelTest, AConnectionThatBreaksIsToldOnce) {
  std::optional<Channel> server = bind();
  Channel client = connect();
  EXPECT_FALSE(client.take_break());
  ASSERT_TRUE(client.send(Ping{1}));
  ASSERT_TRUE(server->receive(seconds(5)));
  EXPECT_FALSE(client.take_break());
  server.reset();
  bool is_told = false;
  for (const TimePoint end = now() + seconds(10); !is_told && now() < end;) {
    (void)client.receive(milliseconds(5));
    is_told = client.take_break();
  }
  EXPECT_TRUE(is_told);
  server = bind();
  ASSERT_TRUE(client.send(Ping{2}));
  EXPECT_TRUE(server->receive(seconds(5))) << "the library connects again by itself";
  EXPECT_FALSE(client.take_break());
}

TEST_F(ChannelTest, APeerThatNeverReadsFillsABoundedQueue) {
  Channel server = bind();
  Channel client = connect();
  Status sent;
  std::int64_t count = 0;
  while (sent && count < 2'000'000) {
    sent = client.send(Ping{count});
    ++count;
  }
  EXPECT_FALSE(sent);
  EXPECT_EQ(sent.error().code, Code::unavailable);
}

TEST_F(ChannelTest, LastWordsOfAClosedChannelArrive) {
  Channel server = bind();
  {
    Channel client = connect();
    ASSERT_TRUE(client.send(Fault{.code = "invalid", .message = "bye"}));
  }
  const std::optional<Received> received = server.receive(seconds(5));
  ASSERT_TRUE(received);
  EXPECT_EQ(std::get<Fault>(received->message).message, "bye");
}

TEST_F(ChannelTest, ClosingTowardsNobodyTakesNoLongerThanTheLinger) {
  const TimePoint start = now();
  {
    Channel client = connect();
    ASSERT_TRUE(client.send(Ping{1}));
  }
  EXPECT_LT(now() - start, seconds(5));
}

// Reads with the edge-triggered descriptor only, as the processes' loops do.
std::int64_t echo(Channel& server, std::int64_t count) {
  std::int64_t echoed = 0;
  while (echoed < count) {
    while (std::optional<Received> received = server.receive()) {
      const std::int64_t sequence = std::get<Ping>(received->message).sequence;
      EXPECT_EQ(sequence, echoed);
      if (!server.send(received->peer, Pong{.sequence = sequence})) return echoed;
      ++echoed;
    }
    if (echoed >= count) break;
    pollfd wanted{.fd = server.fd(), .events = POLLIN, .revents = 0};
    if (::poll(&wanted, 1, 20'000) != 1) return echoed;
  }
  return echoed;
}

TEST_F(ChannelTest, AMillionMessagesBothWaysDoNotStall) {
  constexpr std::int64_t kCount = kIsSanitizerBuild ? 50'000 : 1'000'000;
  constexpr std::int64_t kWindow = 10'000;  // in flight
  Channel server = bind();
  Channel client = connect();
  std::int64_t echoed = 0;
  std::thread other([&] { echoed = echo(server, kCount); });
  std::int64_t sent = 0;
  std::int64_t answered = 0;
  while (answered < kCount) {
    while (sent < kCount && sent - answered < kWindow) {
      ASSERT_TRUE(client.send(Ping{sent}));
      ++sent;
    }
    std::optional<Received> received = client.receive(seconds(20));
    ASSERT_TRUE(received) << "stalled after " << answered;
    for (; received; received = client.receive()) {
      ASSERT_EQ(std::get<Pong>(received->message).sequence, answered);
      ++answered;
    }
  }
  other.join();
  EXPECT_EQ(echoed, kCount);
}

}  // namespace
}  // namespace plimsoll
