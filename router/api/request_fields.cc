#include "router/api/request_fields.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include <fmt/core.h>

namespace plimsoll {
namespace {

enum class Type { boolean, integer, number, string, strings, object, array, prompt, any };

enum class Use {
  read,
  ignored,  // accepted: it changes nothing here by its nature (user, metadata, store)
  neutral,  // we do not have it: only the value that asks for nothing is accepted
};

constexpr double kAny = std::numeric_limits<double>::infinity();
constexpr std::size_t kStopStringsMax = 16;
constexpr std::size_t kStopStringBytesMax = 1024;
constexpr std::size_t kStopIdsMax = 64;
constexpr std::size_t kNameShownMax = 64;
constexpr double kIntMax = 9e15;  // integers that a double holds exactly

constexpr unsigned kText = static_cast<unsigned>(Body::completion);
constexpr unsigned kChat = static_cast<unsigned>(Body::chat);
constexpr unsigned kBoth = kText | kChat;
constexpr unsigned kTokenize = static_cast<unsigned>(Body::tokenize);
constexpr unsigned kDetokenize = static_cast<unsigned>(Body::detokenize);

struct Row {
  std::string_view name;
  Type type;
  unsigned bodies;
  double min = -kAny;
  double max = kAny;
  Use use = Use::read;
  void (*set)(RequestFields&, const Json&) = nullptr;
  const char* neutral = "";  // JSON text
};

using F = RequestFields;

void set_stop(F& f, const Json& value) {
  if (value.is_string()) {
    f.stop = {value.as_string()};
    return;
  }
  for (const Json& item : value.as_array()) f.stop.push_back(item.as_string());
}

// Where two rows set the same thing, the later one wins.
constexpr Row kRows[] = {
    {"model", Type::string, kBoth | kTokenize | kDetokenize, -kAny, kAny, Use::read,
     [](F& f, const Json& v) { f.model = v.as_string(); }},
    {"prompt", Type::prompt, kText, -kAny, kAny, Use::read,
     [](F& f, const Json& v) { f.prompt = v; }},
    {"prompt", Type::string, kTokenize, -kAny, kAny, Use::read,
     [](F& f, const Json& v) { f.prompt = v; }},
    {"content", Type::string, kTokenize, -kAny, kAny, Use::read,
     [](F& f, const Json& v) { f.prompt = v; }},
    {"messages", Type::array, kChat | kTokenize, -kAny, kAny, Use::read,
     [](F& f, const Json& v) { f.messages = v; }},
    {"tools", Type::array, kChat | kTokenize, -kAny, kAny, Use::read,
     [](F& f, const Json& v) { f.tools = v; }},
    {"tokens", Type::array, kDetokenize, -kAny, kAny, Use::read,
     [](F& f, const Json& v) { f.tokens = v; }},
    {"chat_template_kwargs", Type::object, kChat | kTokenize, -kAny, kAny, Use::read,
     [](F& f, const Json& v) { f.template_variables = v; }},
    {"add_generation_prompt", Type::boolean, kChat | kTokenize, -kAny, kAny, Use::read,
     [](F& f, const Json& v) { f.add_generation_prompt = v.as_bool(); }},
    {"add_special_tokens", Type::boolean, kText | kTokenize, -kAny, kAny, Use::read,
     [](F& f, const Json& v) { f.add_special_tokens = v.as_bool(); }},
    {"with_pieces", Type::boolean, kTokenize, -kAny, kAny, Use::read,
     [](F& f, const Json& v) { f.with_pieces = v.as_bool(); }},
    {"stream", Type::boolean, kBoth, -kAny, kAny, Use::read,
     [](F& f, const Json& v) { f.stream = v.as_bool(); }},
    {"stream_options", Type::object, kBoth, -kAny, kAny, Use::read,
     [](F& f, const Json& v) {
       const Json* usage = v.find("include_usage");
       f.include_usage = usage != nullptr && usage->is_bool() && usage->as_bool();
     }},
    {"max_tokens", Type::integer, kText, 0, kIntMax, Use::read,
     [](F& f, const Json& v) { f.max_tokens = v.as_int(); }},
    {"max_tokens", Type::integer, kChat, 1, kIntMax, Use::read,
     [](F& f, const Json& v) { f.max_tokens = v.as_int(); }},
    {"max_completion_tokens", Type::integer, kChat, 1, kIntMax, Use::read,
     [](F& f, const Json& v) { f.max_tokens = v.as_int(); }},
    {"temperature", Type::number, kBoth, 0, 2, Use::read,
     [](F& f, const Json& v) { f.sampling.temperature = v.as_double(); }},
    {"top_p", Type::number, kBoth, 0, 1, Use::read,
     [](F& f, const Json& v) { f.sampling.top_p = v.as_double(); }},
    {"top_k", Type::integer, kBoth, -1, kIntMax, Use::read,
     [](F& f, const Json& v) { f.sampling.top_k = std::max<std::int64_t>(v.as_int(), 0); }},
    {"min_p", Type::number, kBoth, 0, 1, Use::read,
     [](F& f, const Json& v) { f.sampling.min_p = v.as_double(); }},
    {"frequency_penalty", Type::number, kBoth, -2, 2, Use::read,
     [](F& f, const Json& v) { f.sampling.frequency_penalty = v.as_double(); }},
    {"presence_penalty", Type::number, kBoth, -2, 2, Use::read,
     [](F& f, const Json& v) { f.sampling.presence_penalty = v.as_double(); }},
    {"seed", Type::integer, kBoth, -kAny, kAny, Use::read,
     [](F& f, const Json& v) { f.seed = static_cast<std::uint64_t>(v.as_int()); }},
    {"stop", Type::strings, kBoth, -kAny, kAny, Use::read, set_stop},
    {"stop_token_ids", Type::array, kBoth, -kAny, kAny, Use::read,
     [](F& f, const Json& v) {
       for (const Json& id : v.as_array()) f.sampling.stop_ids.push_back(id.as_int());
     }},
    {"ignore_eos", Type::boolean, kBoth, -kAny, kAny, Use::read,
     [](F& f, const Json& v) { f.sampling.ignore_eos = v.as_bool(); }},
    {"n", Type::integer, kBoth, 1, 16, Use::read, [](F& f, const Json& v) { f.n = v.as_int(); }},
    {"echo", Type::boolean, kText, -kAny, kAny, Use::read,
     [](F& f, const Json& v) { f.echo = v.as_bool(); }},
    {"logprobs", Type::integer, kText, 0, 20, Use::read,
     [](F& f, const Json& v) {
       f.logprobs = true;
       f.top_logprobs = v.as_int();
     }},
    {"logprobs", Type::boolean, kChat, -kAny, kAny, Use::read,
     [](F& f, const Json& v) { f.logprobs = v.as_bool(); }},
    {"top_logprobs", Type::integer, kChat, 0, 20, Use::read,
     [](F& f, const Json& v) { f.top_logprobs = v.as_int(); }},

    {"user", Type::string, kBoth, -kAny, kAny, Use::ignored},
    {"metadata", Type::object, kBoth, -kAny, kAny, Use::ignored},
    {"store", Type::boolean, kBoth, -kAny, kAny, Use::ignored},
    {"service_tier", Type::string, kBoth, -kAny, kAny, Use::ignored},
    {"safety_identifier", Type::string, kBoth, -kAny, kAny, Use::ignored},
    {"prompt_cache_key", Type::string, kBoth, -kAny, kAny, Use::ignored},
    {"parallel_tool_calls", Type::boolean, kChat, -kAny, kAny, Use::ignored},

    {"suffix", Type::string, kText, -kAny, kAny, Use::neutral, nullptr, "\"\""},
    {"best_of", Type::integer, kText, 1, 1, Use::ignored},
    {"logit_bias", Type::object, kBoth, -kAny, kAny, Use::neutral, nullptr, "{}"},
    {"response_format", Type::object, kChat, -kAny, kAny, Use::neutral, nullptr,
     R"({"type":"text"})"},
    {"repetition_penalty", Type::number, kBoth, 1, 1, Use::ignored},
    {"min_tokens", Type::integer, kBoth, 0, 0, Use::ignored},
    {"functions", Type::array, kChat, -kAny, kAny, Use::neutral, nullptr, "[]"},
};

const Row* find_row(std::string_view name, Body kind) {
  for (const Row& row : kRows) {
    if (row.name == name && (row.bodies & static_cast<unsigned>(kind)) != 0) return &row;
  }
  return nullptr;
}

const char* type_words(Type type) {
  switch (type) {
    case Type::boolean:
      return "true or false";
    case Type::integer:
      return "an integer";
    case Type::number:
      return "a number";
    case Type::string:
      return "a string";
    case Type::strings:
      return "a string or a list of strings";
    case Type::object:
      return "an object";
    case Type::array:
      return "a list";
    case Type::prompt:
      return "a string, a list of strings, a list of token ids or a list of such lists";
    case Type::any:
      break;
  }
  return "a value";
}

bool all_strings(const Json& value) {
  return std::ranges::all_of(value.as_array(), [](const Json& item) { return item.is_string(); });
}

bool has_type(const Json& value, Type type) {
  switch (type) {
    case Type::boolean:
      return value.is_bool();
    case Type::integer:
      return value.is_integer();
    case Type::number:
      return value.is_number();
    case Type::string:
      return value.is_string();
    case Type::strings:
      return value.is_string() || (value.is_array() && all_strings(value));
    case Type::object:
      return value.is_object();
    case Type::array:
      return value.is_array();
    case Type::prompt:
      return value.is_string() || value.is_array();
    case Type::any:
      break;
  }
  return true;
}

std::string range_words(const Row& row) {
  if (row.min == row.max) return fmt::format(" (only {} is supported here)", row.min);
  if (row.min == -kAny) {
    return row.type == Type::integer ? " from -9223372036854775808 to 9223372036854775807" : "";
  }
  if (row.max == kIntMax) return fmt::format(" of at least {}", row.min);
  return fmt::format(" from {} to {}", row.min, row.max);
}

// What was found where a value is of the wrong type.
std::string found_words(const Row& row, const Json& value) {
  if (row.type == Type::integer && value.is_number()) return "it is " + dump_json(value);
  if (row.type == Type::strings && value.is_array()) {
    const auto& items = value.as_array();
    const auto wrong =
        std::ranges::find_if(items, [](const Json& item) { return !item.is_string(); });
    return fmt::format("item {} of it is of type {}", wrong - items.begin(), wrong->type_name());
  }
  return fmt::format("it is of type {}", value.type_name());
}

Refusal check_value(const Row& row, const Json& value) {
  const std::string name(row.name);
  if (!has_type(value, row.type)) {
    return bad_field(name, fmt::format("{} must be {}{}; {}", name, type_words(row.type),
                                       range_words(row), found_words(row, value)));
  }
  if (value.is_number()) {
    const double number = value.as_double();
    // Written so that a value that is no number fails too.
    if (!(number >= row.min && number <= row.max)) {
      return bad_field(name, fmt::format("{} must be {}{}; it is {}", name, type_words(row.type),
                                         range_words(row), dump_json(value)));
    }
  }
  if (row.use == Use::neutral && dump_json(value) != row.neutral) {
    return bad_field(
        name, fmt::format("{} is not supported here; leave it out or send {}", name, row.neutral));
  }
  return {};
}

Refusal check_stop(const F& fields) {
  if (fields.stop.size() > kStopStringsMax) {
    return bad_field("stop", fmt::format("stop has {} strings; at most {} are allowed",
                                         fields.stop.size(), kStopStringsMax));
  }
  for (const std::string& stop : fields.stop) {
    if (stop.empty() || stop.size() > kStopStringBytesMax) {
      return bad_field("stop", fmt::format("a stop string has from 1 to {} bytes; one has {}",
                                           kStopStringBytesMax, stop.size()));
    }
  }
  return {};
}

Refusal check_stop_ids(const Json& value) {
  const auto& ids = value.as_array();
  const bool integers =
      std::ranges::all_of(ids, [](const Json& id) { return id.is_integer() && id.as_int() >= 0; });
  if (integers && ids.size() <= kStopIdsMax) return {};
  return bad_field(
      "stop_token_ids",
      fmt::format("stop_token_ids must be a list of at most {} token ids", kStopIdsMax));
}

Refusal check_tool_choice(const Json& value) {
  if (value.is_string() && (value.as_string() == "none" || value.as_string() == "auto")) return {};
  return bad_field("tool_choice",
                   "tool_choice may be \"none\" or \"auto\" here; calls cannot be forced");
}

Refusal check_stream_options(const Json& value) {
  const Json* usage = value.find("include_usage");
  if (usage == nullptr || usage->is_bool() || usage->is_null()) return {};
  return bad_field("stream_options.include_usage",
                   fmt::format("stream_options.include_usage must be true or false; it is of type "
                               "{}",
                               usage->type_name()));
}

Refusal check_special(const Row& row, const Json& value) {
  if (row.name == "stop_token_ids") return check_stop_ids(value);
  if (row.name == "stream_options") return check_stream_options(value);
  return {};
}

// 16.0 is an integer for every client library that people use. `made` holds what is returned where
// that is another value; prompts of megabytes pass through without a copy.
const Json& exact_integer(const Row& row, const Json& value, Json& made) {
  if (row.type != Type::integer || value.is_integer() || !value.is_number()) return value;
  const double number = value.as_double();
  if (std::floor(number) != number || std::fabs(number) > kIntMax) return value;
  made = static_cast<std::int64_t>(number);
  return made;
}

}  // namespace

Refusal read_fields(const Json& body, Body kind, RequestFields& fields) {
  if (!body.is_object()) {
    return bad_field(
        "", fmt::format("the body must be a JSON object; it is of type {}", body.type_name()));
  }
  for (const auto& [name, value] : body.as_object()) {
    if (name == "tool_choice" && kind == Body::chat && !value.is_null()) {
      if (Refusal refusal = check_tool_choice(value)) return refusal;
      continue;
    }
    const Row* row = find_row(name, kind);
    if (row == nullptr) {
      if (fields.unknown.size() < kUnknownFieldsMax && name != "tool_choice") {
        fields.unknown.push_back(name.substr(0, kNameShownMax));
      }
      continue;
    }
    if (value.is_null()) continue;  // as absent, as clients send it
    Json made;
    if (Refusal refusal = check_value(*row, exact_integer(*row, value, made))) return refusal;
    if (Refusal refusal = check_special(*row, value)) return refusal;
  }
  for (const Row& row : kRows) {
    if (row.set == nullptr || (row.bodies & static_cast<unsigned>(kind)) == 0) continue;
    const Json* value = body.find(row.name);
    if (value == nullptr || value->is_null()) continue;
    Json made;
    row.set(fields, exact_integer(row, *value, made));
  }
  if (kind == Body::chat && fields.top_logprobs > 0 && !fields.logprobs) {
    return bad_field("top_logprobs", "top_logprobs needs logprobs: true");
  }
  return check_stop(fields);
}

}  // namespace plimsoll
