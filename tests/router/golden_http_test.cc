// Whole exchanges as bytes: what a client sends and what it gets, with an engine that always says
// the same. UPDATE_GOLDEN=1 writes the answers anew.
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

#include "router/http/request_reader.h"
#include "router/service.h"
#include "shared/base/text.h"
#include "tests/router/tiny_context.h"
#include "tests/support/test_data.h"

namespace plimsoll {
namespace {

constexpr TimePoint kTime = TimePoint() + seconds(1000);
constexpr std::string_view kSays = "A ship floats; it's é!";

// The bytes that one client would get.
class Exchange {
 public:
  Exchange() : service_(tiny_context(256), {.limits = {}, .random_seed = 1}) {
    service_.daemon_message(Replicas{"serving", "", {{0, "ready", "ipc://x", 1}}}, kTime);
    service_.take_actions();
  }

  std::string answer_to(std::string_view bytes) {
    RequestReader reader({});
    reader.feed(bytes);
    if (reader.state() == RequestReader::State::failed) {
      return response_bytes(error_response(reader.refusal()), framing_);
    }
    EXPECT_EQ(reader.state(), RequestReader::State::complete);
    if (reader.state() != RequestReader::State::complete) return {};
    framing_.head_only = reader.is_head();
    framing_.keep_alive = reader.keep_alive();
    HttpRequest request = reader.take();
    request.received = 1'700'000'000;
    if (request.request_id.empty()) request.request_id = "req-0";
    service_.http_request(1, request, kTime);
    while (act()) {
    }
    return std::move(out_);
  }

 private:
  // Does what the service decided; false where there was nothing.
  bool act() {
    auto actions = service_.take_actions();
    for (RouterAction& action : actions) {
      if (const auto* one = std::get_if<Respond>(&action)) {
        out_ += response_bytes(one->response, framing_);
      } else if (const auto* head = std::get_if<BeginStream>(&action)) {
        out_ += stream_head_bytes(head->head, framing_);
      } else if (const auto* data = std::get_if<StreamData>(&action)) {
        out_ += chunk_bytes(data->data, framing_);
      } else if (std::holds_alternative<EndStream>(action)) {
        out_ += end_of_stream_bytes(framing_);
      } else if (const auto* leader = std::get_if<ToLeader>(&action)) {
        if (const auto* generate = std::get_if<Generate>(&leader->message)) run(*generate);
      }
    }
    return !actions.empty();
  }

  static TokenLogprob score(std::int64_t id, std::size_t at, std::int64_t alternatives) {
    TokenLogprob logprob{id, -0.1 * static_cast<double>(at + 1), {}, {}};
    for (std::int64_t i = 0; i < alternatives; ++i) {
      logprob.top_ids.push_back(3 + 'a' + i);
      logprob.top_logprobs.push_back(-1.0 / 3 - static_cast<double>(i));
    }
    return logprob;
  }

  // The engine: a token a step.
  void run(const Generate& generate) {
    const std::vector<std::int64_t> says = byte_ids(kSays);
    const auto limit = static_cast<std::size_t>(generate.sampling.max_tokens);
    std::size_t at = 0;
    do {
      TokenEvent event;
      event.id = generate.id;
      const bool ends = at == says.size();
      if (at < limit) event.tokens = {ends ? kTinyEos : says[at]};
      if (generate.sampling.logprobs >= 0 && at < limit) {
        event.logprobs = {score(event.tokens[0], at, generate.sampling.logprobs)};
      }
      if (generate.sampling.prompt_logprobs && at == 0) {
        for (std::size_t i = 1; i < generate.prompt.size(); ++i) {
          event.prompt_logprobs.push_back(score(generate.prompt[i], i, generate.sampling.logprobs));
        }
      }
      ++at;
      if (at >= limit) event.finish = "length";
      if (ends) event.finish = "stop";
      StepTokens step;
      step.events.push_back(event);
      service_.leader_tokens(0, std::move(step), kTime);
      if (!event.finish.empty()) return;
    } while (at <= says.size());
  }

  Service service_;
  ResponseFraming framing_{.date = "Tue, 15 Nov 1994 08:12:31 GMT"};
  std::string out_;
};

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_path("http"))) {
    if (entry.path().extension() == ".request") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

// Requests are kept with plain line ends and without their length.
std::string wire(const std::string& text) {
  const std::size_t end = text.find("\n\n");
  const std::string head = text.substr(0, end);
  std::string body = end == std::string::npos ? "" : text.substr(end + 2);
  if (body.ends_with('\n')) body.pop_back();
  std::string out;
  for (std::string_view line : split(head, '\n')) out += std::string(line) + "\r\n";
  if (!body.empty()) out += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  return out + "\r\n" + body;
}

TEST(GoldenHttp, AnswersStayAsTheyAre) {
  const std::vector<std::string> cases = names();
  ASSERT_GE(cases.size(), 15U);
  for (const std::string& name : cases) {
    const std::string request = read_test_file(golden_path("http/" + name + ".request"));
    const std::string answer = Exchange().answer_to(wire(request));
    const std::filesystem::path file = golden_path("http/" + name + ".response");
    if (std::getenv("UPDATE_GOLDEN") != nullptr) {
      ASSERT_TRUE(write_file(file, answer));
    }
    EXPECT_EQ(answer, read_test_file(file)) << name;
  }
}

}  // namespace
}  // namespace plimsoll
