// TinyContext: what endpoints know of a model with the tiny vocabulary: byte b is token 3 + b.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "router/api/model_context.h"
#include "tests/support/fake_root.h"
#include "tests/support/tiny_model.h"

namespace plimsoll {

constexpr std::int64_t kTinyEos = 2;

inline std::filesystem::path write_router_model(const FakeRoot& folder) {
  TinyModel shape;
  shape.layers = 1;
  shape.hidden = 32;
  shape.heads = 1;
  shape.kv_heads = 1;
  shape.ffn = 32;
  auto path = write_tiny_model(shape, folder.path());
  EXPECT_TRUE(path) << path.error().message;
  return *path;
}

inline Tokenizer tiny_tokenizer() {
  const FakeRoot folder("router_model_" + std::to_string(::getpid()));
  const auto file = GgufFile::open(write_router_model(folder));
  EXPECT_TRUE(file) << file.error().message;
  auto tokenizer = Tokenizer::from_gguf(*file);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return std::move(*tokenizer);
}

constexpr std::string_view kTinyTemplate =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}{% endif %}";

inline ModelContext tiny_context(std::int64_t context_length = 64) {
  Tokenizer tokenizer = tiny_tokenizer();
  const PromptLimits limits = prompt_limits(tokenizer, context_length);
  std::optional<ChatTemplate> chat_template;
  if (auto compiled = ChatTemplate::compile(kTinyTemplate)) chat_template = std::move(*compiled);
  return {.tokenizer = std::move(tokenizer),
          .chat_template = std::move(chat_template),
          .name = "ship",
          .stem = "ship-Q4_0",
          .limits = limits,
          .created = 1'700'000'000};
}

// A token a byte, as a model might emit them (the tokenizer itself would merge some).
inline std::vector<std::int64_t> byte_ids(std::string_view text) {
  std::vector<std::int64_t> ids;
  for (char c : text) ids.push_back(3 + static_cast<std::int64_t>(static_cast<unsigned char>(c)));
  return ids;
}

inline HttpRequest json_request(std::string path, std::string body) {
  HttpRequest request;
  request.method = "POST";
  request.path = std::move(path);
  request.content_type = "application/json";
  request.request_id = "req-1";
  request.body = std::move(body);
  return request;
}

inline Json parsed(std::string_view text) {
  auto json = parse_json(text);
  EXPECT_TRUE(json) << json.error().message << " in " << text;
  return json ? std::move(*json) : Json();
}

}  // namespace plimsoll
