// RequestFields: the JSON body of a request, checked against one table of every field that we know.
//
// A value of the wrong type or out of range is refused by name; a field that we do not know is
// accepted (other servers have it) and listed, so that the answer can say so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "router/api/api_error.h"
#include "shared/base/json.h"
#include "shared/control/messages.h"

namespace plimsoll {

// Which bodies have a field; a set of bits.
enum class Body : unsigned { completion = 1, chat = 2, tokenize = 4, detokenize = 8 };

struct RequestFields {
  std::string model;
  bool stream = false;
  bool include_usage = false;
  std::optional<std::int64_t> max_tokens;
  std::optional<std::uint64_t> seed;
  Sampling sampling;  // but for max_tokens and seed
  bool logprobs = false;
  std::int64_t top_logprobs = 0;
  std::vector<std::string> stop;
  std::int64_t n = 1;
  bool echo = false;
  bool add_generation_prompt = true;
  bool add_special_tokens = true;
  bool with_pieces = false;
  // As they came; null where absent.
  Json prompt;  // a string, strings, token ids, or lists of token ids (`content` of /tokenize too)
  Json messages;  // an array
  Json tools;
  Json template_variables;  // an object
  Json tokens;
  std::vector<std::string> unknown;  // at most kUnknownFieldsMax
};

constexpr std::size_t kUnknownFieldsMax = 16;

Refusal read_fields(const Json& body, Body kind, RequestFields& fields);

}  // namespace plimsoll
