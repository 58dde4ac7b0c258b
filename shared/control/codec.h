// Codec: a Message to bytes and back: MessagePack of [magic, version, type, {field: value}].
#pragma once

#include <span>
#include <string>

#include "shared/base/json.h"
#include "shared/base/result.h"
#include "shared/control/messages.h"

namespace plimsoll {

constexpr std::size_t kMessageBytesMax = 64 * 1024 * 1024;

std::string encode_message(const Message& message);
// Errors: Code::invalid; not ours, another version (both named), an unknown type, a field that is
// missing or has another type. Unknown fields are ignored (a newer peer's).
Result<Message> decode_message(std::span<const std::byte> bytes);

const char* message_type(const Message& message);  // "hello", "step_tokens"
Json message_to_json(const Message& message);      // for logs and tests

}  // namespace plimsoll
