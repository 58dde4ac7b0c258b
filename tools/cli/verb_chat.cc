#include <charconv>
#include <istream>
#include <ostream>
#include <vector>

#include <fmt/format.h>

#include "shared/base/http_client.h"
#include "shared/base/text.h"
#include "tools/cli/chat_stream.h"
#include "tools/cli/daemon_client.h"
#include "tools/cli/json_view.h"
#include "tools/cli/operation.h"
#include "tools/cli/verb.h"

namespace plimsoll {
namespace {

// A prompt may wait in the queue before its first token.
constexpr seconds kSilenceMax{300};

// What a caller may do about a deployment that does not serve: start it, look why, or wait.
int exit_code_of(std::string_view state) {
  if (state == "stopped") return kExitNotRunning;
  return state == "failed" ? kExitFailed : exit_code(Code::unavailable);
}

void print_json(const Invocation& call, const ChatStream& stream) {
  call.console.out << dump_json(Json::object({{"answer", stream.answer()},
                                              {"finish_reason", stream.finish_reason()},
                                              {"prompt_tokens", stream.prompt_tokens()},
                                              {"completion_tokens", stream.tokens()},
                                              {"first_token_s", stream.first_token_s()},
                                              {"tokens_per_second", stream.tokens_per_second()}}),
                                2)
                   << std::endl;
}

// One question; the answer is printed as it arrives and added to the messages.
Status ask(const Invocation& call, const HttpRequest& base, const ChatOptions& options,
           std::vector<ChatMessage>& messages) {
  HttpRequest request = base;
  request.json = dump_json(chat_request(messages, options));
  ChatStream stream(now());
  Status failure;
  const HttpAnswer answer = TRY(http_stream(request, [&](std::string_view data) {
    const Result<std::string> text = stream.event(data, now());
    if (!text) failure = text.error();
    if (text && !call.line.json) call.console.out << *text << std::flush;
    return text.has_value() && !stream.is_done() && call.console.out.good();
  }));
  if (answer.status != 200) {
    const std::string message = chat_error(answer.body);
    return answer.status == 503 ? unavailable(message) : internal_error(message);
  }
  if (!call.line.json && !stream.answer().empty()) call.console.out << std::endl;
  TRY(failure);
  if (!stream.is_done()) return unavailable("the answer ended early");
  if (call.line.json) {
    print_json(call, stream);
  } else {
    call.console.err << stream.summary() << std::endl;
  }
  messages.push_back({.role = "assistant", .content = stream.answer()});
  return {};
}

Result<int> talk(const Invocation& call, const HttpRequest& request, const ChatOptions& options) {
  std::vector<ChatMessage> messages;
  std::string line;
  while (true) {
    if (call.console.is_terminal) call.console.err << "> " << std::flush;
    if (!std::getline(call.console.in, line)) return kExitOk;
    if (trim(line).empty()) continue;
    messages.push_back({.role = "user", .content = line});
    TRY(ask(call, request, options, messages));
  }
}

template <typename Number>
bool read_number(const std::string& text, Number& number) {
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  return failure == std::errc() && end == text.data() + text.size();
}

Result<ChatOptions> chat_options(const Invocation& call) {
  ChatOptions options;
  const auto& flags = call.line.flags;
  if (const auto given = flags.find("max-tokens"); given != flags.end()) {
    if (!read_number(given->second, options.max_tokens) || options.max_tokens < 1) {
      return invalid(fmt::format("--max-tokens: '{}' is no number of tokens", given->second));
    }
  }
  if (const auto given = flags.find("temperature"); given != flags.end()) {
    double temperature = 0;
    const bool is_number = read_number(given->second, temperature);
    if (!is_number || !(temperature >= 0 && temperature <= 2)) {
      return invalid(fmt::format("--temperature: '{}' is not from 0 to 2", given->second));
    }
    options.temperature = temperature;
  }
  return options;
}

}  // namespace

Result<int> run_chat(const Invocation& call) {
  const Result<ChatOptions> options = chat_options(call);
  if (!options) return report_bad_value(call, options.error().message);
  if (!is_daemon_running(call)) return report_not_running(call);
  const Json status = TRY(ask_status(runtime_of(call)));
  const std::string state = text_at(status, {"state"});
  if (state != "serving") {
    return report_reply(
        call, {.exit_code = exit_code_of(state),
               .message = fmt::format(
                   "the deployment is {}, not serving; `plimsoll status` says more", state),
               .result = {}});
  }
  const HttpRequest request{.method = "POST",
                            .url = text_at(status, {"url"}) + "/v1/chat/completions",
                            .json = "",
                            .timeout = kSilenceMax};
  if (call.line.arguments.empty()) return talk(call, request, *options);
  std::vector<ChatMessage> messages = {{.role = "user", .content = call.line.arguments.front()}};
  TRY(ask(call, request, *options, messages));
  return kExitOk;
}

}  // namespace plimsoll
