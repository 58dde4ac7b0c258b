#include "shared/control/codec.h"

#include <limits>

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

std::span<const std::byte> as_span(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

Result<Message> round_trip(const Message& message) {
  return decode_message(as_span(encode_message(message)));
}

// What decoding says of bytes that it must refuse.
std::string refusal(const std::string& bytes) {
  const Result<Message> message = decode_message(as_span(bytes));
  EXPECT_FALSE(message);
  if (message) return "";
  EXPECT_EQ(message.error().code, Code::invalid);
  return message.error().message;
}

std::string frame(Json version, Json type, Json object) {
  return to_msgpack(Json::array({"PLIM", std::move(version), std::move(type), std::move(object)}));
}

StepTokens sample_step() {
  StepTokens step;
  step.running = 3;
  step.kv_blocks = 70'000;
  TokenEvent event;
  event.id = std::numeric_limits<std::uint64_t>::max();
  event.tokens = {0,
                  127,
                  128,
                  255,
                  256,
                  65'535,
                  65'536,
                  -1,
                  -32,
                  -33,
                  -129,
                  -40'000,
                  std::numeric_limits<std::int64_t>::max(),
                  std::numeric_limits<std::int64_t>::min()};
  event.logprobs.push_back({.id = 7, .logprob = -0.1, .top_ids = {7, 9}, .top_logprobs = {-0.1}});
  event.finish = "stop";
  step.events = {event, TokenEvent{}};
  return step;
}

TEST(Codec, EveryTypeComesBackAsItWas) {
  const std::vector<Message> messages = {
      Hello{},       Load{},     Opened{},    Progress{}, Loaded{},      Commit{},
      Ready{},       Ping{},     Pong{},      Fault{},    SetLive{},     Drain{},
      RouterSetup{}, Replicas{}, Listening{}, Probe{},    ProbeResult{}, RouterStats{},
      Command{},     Reply{},    Generate{},  Cancel{},   sample_step()};
  ASSERT_EQ(messages.size(), std::variant_size_v<Message>);
  for (const Message& message : messages) {
    const Result<Message> back = round_trip(message);
    ASSERT_TRUE(back) << message_type(message) << ": " << back.error().message;
    EXPECT_EQ(back->index(), message.index());
    EXPECT_EQ(message_to_json(*back), message_to_json(message)) << message_type(message);
    EXPECT_EQ(encode_message(*back), encode_message(message)) << message_type(message);
  }
}

TEST(Codec, SixtyFourBitSeedsAndExtremeDoublesAreExact) {
  Generate generate;
  generate.sampling.seed = 0xfedc'ba98'7654'3211ULL;
  generate.sampling.temperature = 0.1 + 0.2;
  generate.sampling.min_p = std::numeric_limits<double>::denorm_min();
  generate.sampling.top_p = -std::numeric_limits<double>::infinity();
  generate.prompt.assign(70'000, 49'151);
  const Result<Message> back = round_trip(generate);
  ASSERT_TRUE(back) << back.error().message;
  const auto& copy = std::get<Generate>(*back);
  EXPECT_EQ(copy.sampling.seed, generate.sampling.seed);
  EXPECT_EQ(copy.sampling.temperature, generate.sampling.temperature);
  EXPECT_EQ(copy.sampling.min_p, generate.sampling.min_p);
  EXPECT_EQ(copy.sampling.top_p, generate.sampling.top_p);
  EXPECT_EQ(copy.prompt, generate.prompt);
}

TEST(Codec, BytesThatAreNotUtf8PassUnchanged) {
  const std::string text = std::string("\xff\xfe\0\x80 caf\xc3", 9);
  Fault fault{.code = text, .message = std::string(300, '\xff')};
  const Result<Message> back = round_trip(fault);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(std::get<Fault>(*back).code, text);
  EXPECT_EQ(std::get<Fault>(*back).message.size(), 300U);

  const Reply reply{.exit_code = 0, .message = text, .result = Json::object({{text, text}})};
  const Result<Message> json = round_trip(reply);
  ASSERT_TRUE(json) << json.error().message;
  EXPECT_EQ(std::get<Reply>(*json).result, reply.result);
}

TEST(Codec, MembersInAnyOrderWithUnknownOnesAmongThemAreRead) {
  const std::string bytes =
      frame(kProtocolVersion, "progress",
            Json::object({{"total", 9},
                          {"new", Json::array({1, Json::object({{"a", nullptr}})})},
                          {"phase", "loading"},
                          {"done", 4},
                          {"more", 2.5}}));
  const Result<Message> message = decode_message(as_span(bytes));
  ASSERT_TRUE(message) << message.error().message;
  const auto& progress = std::get<Progress>(*message);
  EXPECT_EQ(progress.phase, "loading");
  EXPECT_EQ(progress.done, 4);
  EXPECT_EQ(progress.total, 9);
}

TEST(Codec, ErrorsNameThePlace) {
  EXPECT_EQ(refusal(frame(kProtocolVersion, "ping", Json::object())),
            "message 'ping'.sequence is missing");
  EXPECT_EQ(refusal(frame(kProtocolVersion, "ping", Json::object({{"sequence", "7"}}))),
            "message 'ping'.sequence is of type string, not an integer");
  const Json event = Json::object({{"id", 1}, {"tokens", Json::array({1, 2, true})}});
  EXPECT_EQ(refusal(frame(kProtocolVersion, "step_tokens",
                          Json::object({{"events", Json::array({event})}}))),
            "message 'step_tokens'.events[0].tokens[2] is of type boolean, not an integer");
}

TEST(Codec, AnotherVersionNamesBoth) {
  const std::string words = refusal(frame(kProtocolVersion + 1, "ping", Json::object()));
  const auto says = [&](const std::string& text, std::int64_t version) {
    return words.find(text + std::to_string(version)) != std::string::npos;
  };
  EXPECT_TRUE(says("of protocol version ", kProtocolVersion + 1)) << words;
  EXPECT_TRUE(says("speaks version ", kProtocolVersion)) << words;
}

TEST(Codec, WhatIsNotOursIsRefused) {
  for (const char* foreign : {"", "GET / HTTP/1.1\r\n\r\n", "\x01", "\x94\xa4PLIX\x01\x01\x01"}) {
    EXPECT_EQ(refusal(foreign).find("not a message of Plimsoll"), 0U) << foreign;
  }
  EXPECT_EQ(refusal(to_msgpack(Json::array({"PLIM", "x", "ping", 1}))),
            "message without a protocol version");
  EXPECT_EQ(refusal(frame(kProtocolVersion, 3, 4)), "message without a type");
  EXPECT_EQ(refusal(frame(kProtocolVersion, "pi\xffng", 4)),
            "message of an unknown type 'pi\xEF\xBF\xBDng'");
  EXPECT_NE(refusal(encode_message(Ping{}) + "x"), "");
}

TEST(Codec, EveryPrefixIsRefused) {
  const std::string whole = encode_message(sample_step());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(decode_message(as_span(whole.substr(0, size)))) << size;
  }
}

TEST(Codec, AClaimOfFourBillionItemsCostsNothing) {
  std::string bytes = encode_message(StepTokens{});
  const std::size_t events = bytes.find("events") + 6;
  bytes.replace(events, 1, std::string("\xdd\xff\xff\xff\xff", 5));
  EXPECT_NE(refusal(bytes).find("not valid MessagePack"), std::string::npos);
}

TEST(Codec, JsonNestedTooDeepIsRefused) {
  std::string deep(5'000, '\x91');
  deep.push_back('\xc0');
  std::string bytes = encode_message(Loaded{});
  bytes.pop_back();  // the nil of `measured`
  EXPECT_NE(refusal(bytes + deep).find("nested deeper"), std::string::npos);
}

TEST(Codec, NamesOfTypes) {
  EXPECT_STREQ(message_type(Hello{}), "hello");
  EXPECT_STREQ(message_type(StepTokens{}), "step_tokens");
  EXPECT_STREQ(message_type(SetLive{}), "set_live");
  EXPECT_STREQ(message_type(ProbeResult{}), "probe_result");
}

}  // namespace
}  // namespace plimsoll
