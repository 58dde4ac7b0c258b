// Fuzzes decode_message: whatever decodes must encode and decode to the same again.

#include "shared/control/codec.h"

#include <gtest/gtest.h>

#include "shared/base/check.h"
#include "tests/support/fuzz.h"

namespace plimsoll {
namespace {

void fuzz_codec(std::span<const std::byte> bytes) {
  const Result<Message> message = decode_message(bytes);
  if (!message) {
    CHECK(message.error().code == Code::invalid && !message.error().message.empty());
    return;
  }
  const std::string encoded = encode_message(*message);
  const Result<Message> again = decode_message(std::as_bytes(std::span(encoded)));
  CHECK(again.has_value() && again->index() == message->index());
  CHECK(encode_message(*again) == encoded);
  CHECK(message_to_json(*message).is_object());
}

template <std::size_t... I>
std::vector<std::string> one_of_each(std::index_sequence<I...>) {
  return {encode_message(std::variant_alternative_t<I, Message>{})...};
}

std::vector<std::string> seeds() {
  std::vector<std::string> all =
      one_of_each(std::make_index_sequence<std::variant_size_v<Message>>());
  StepTokens step;
  step.events.resize(3);
  step.events[1].tokens = {1, 300, 70'000};
  step.events[1].logprobs.resize(2);
  step.events[1].logprobs[1].top_ids = {4, 5, 6};
  all.push_back(encode_message(step));
  Reply reply;
  reply.result = Json::object(
      {{"a", Json::array({1, 2.5, "x", nullptr, true})}, {"b", Json::object({{"c", -7}})}});
  all.push_back(encode_message(reply));
  return all;
}

TEST(FuzzCodec, WhateverDecodesIsStable) {
  const std::vector<std::string> corpus = seeds();
  const FuzzOptions options{
      .iterations_max = 200'000,
      .dictionary = {"PLIM", "step_tokens", "events", "tokens", "result", "\xdd\xff\xff\xff\xff",
                     "\xdf\xff\xff\xff\xff", "\xdb\xff\xff\xff\xff", "\x91", "\xcf", "\xd3"}};
  const FuzzReport report = fuzz_corpus(corpus, options, fuzz_codec);
  EXPECT_GT(report.inputs, corpus.size());
}

}  // namespace
}  // namespace plimsoll

PLIMSOLL_FUZZ_MAIN(plimsoll::fuzz_codec)
