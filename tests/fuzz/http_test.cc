// Bytes of any content on a connection give requests or refusals, never anything else, and the same
// ones however they are cut; a body of any content gives an answer or a request to an engine.
#include <array>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "router/http/request_reader.h"
#include "router/service.h"
#include "shared/base/check.h"
#include "shared/base/log.h"
#include "tests/router/tiny_context.h"
#include "tests/support/fuzz.h"

namespace plimsoll {
namespace {

using State = RequestReader::State;
constexpr TimePoint kTime = TimePoint() + seconds(1000);
constexpr RequestLimits kLimits = {.header_bytes_max = 1024, .body_bytes_max = 4096};

struct Outcome {
  State state = State::header;
  int refusal = 0;
  HttpRequest request;
};

// Feeds pieces as a connection does: what is not taken comes again with the next.
Outcome read(std::string_view bytes, std::size_t piece) {
  RequestReader reader(kLimits);
  std::string pending;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    pending += bytes.substr(at, piece);
    const std::size_t used = reader.feed(pending);
    CHECK(used <= pending.size());
    pending.erase(0, used);
    if (reader.state() == State::failed || reader.state() == State::complete) break;
  }
  Outcome outcome;
  outcome.state = reader.state();
  if (outcome.state == State::failed) outcome.refusal = reader.refusal().status;
  if (outcome.state == State::complete) outcome.request = reader.take();
  return outcome;
}

// One service for all inputs: its model costs more to make than an input to try.
Service& service() {
  static Service one = [] {
    Service made(tiny_context(32), {.limits = {}, .random_seed = 1});
    made.daemon_message(Replicas{"serving", "", {{0, "ready", "ipc://x", 1}}}, kTime);
    return made;
  }();
  return one;
}

void ask(const HttpRequest& request) {
  static ExchangeId exchange = 0;
  service().http_request(++exchange, request, kTime);
  std::size_t answers = 0;
  std::size_t generates = 0;
  for (const RouterAction& action : service().take_actions()) {
    if (const auto* one = std::get_if<Respond>(&action)) {
      CHECK(one->response.status >= 200);
      ++answers;
    }
    if (const auto* leader = std::get_if<ToLeader>(&action)) {
      const auto& generate = std::get<Generate>(leader->message);
      CHECK(!generate.prompt.empty());
      CHECK(generate.sampling.max_tokens + static_cast<std::int64_t>(generate.prompt.size()) <= 32);
      ++generates;
    }
  }
  CHECK(answers <= 1);
  CHECK(answers == 1 || generates > 0);
  service().hung_up(exchange, kTime);
  service().take_actions();
}

void fuzz_one(std::span<const std::byte> input) {
  const std::string bytes(reinterpret_cast<const char*>(input.data()), input.size());
  const Outcome whole = read(bytes, bytes.size() + 1);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}}) {
    const Outcome cut = read(bytes, piece);
    // A refusal may come earlier or later, by what had to be seen for it; a request may not differ.
    if (whole.state != State::complete) continue;
    CHECK(cut.state == State::complete);
    CHECK(cut.request.body == whole.request.body && cut.request.path == whole.request.path);
  }
  if (whole.state == State::complete) ask(whole.request);
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"}) {
    ask(json_request(path, bytes));
  }
}

TEST(HttpFuzz, NeverCrashes) {
  log_level(LogLevel::error);  // each unknown field would be a line
  const std::vector<std::string> seeds = {
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"x\"}",
      "POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3;a=b\r\n{\"p\r\nb\r\nrompt\":\"x\"}\r\n0\r\nT: v\r\n\r\n",
      "GET /v1/models/a%2fb?x=1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
      R"({"prompt":"xy","max_tokens":3,"stop":["a"],"n":2,"logprobs":1,"echo":true,"seed":-1})",
      R"({"prompt":[["x"],[1,2]],"stream":true,"stream_options":{"include_usage":true}})",
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"temperature":0.5})",
      R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":"{}"}}]}]})",
      R"({"tokens":[1,2,3],"model":null})",
  };
  const FuzzOptions options = {
      .input_bytes_max = 8192,
      .dictionary = {"\r\n\r\n", "\r\n",       "0\r\n",    "chunked", "Content-Length: ",
                     "HTTP/1.1", "null",       "[",        "{",       "\"",
                     ":",        ",",          "1e308",    "-1",      "9007199254740993",
                     "\\ud800",  "max_tokens", "messages", "prompt",  "true"}};
  EXPECT_GT(fuzz_corpus(seeds, options, fuzz_one).inputs, seeds.size());
}

}  // namespace
}  // namespace plimsoll

PLIMSOLL_FUZZ_MAIN(plimsoll::fuzz_one)
