#include "shared/tokenizer/jinja/arguments.h"

#include <fmt/format.h>

namespace plimsoll::jinja {

const Value* Arguments::find(std::size_t place, std::string_view name) const {
  if (place < positional.size()) return &positional[place];
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

Result<std::int64_t> Arguments::integer(std::size_t place, std::string_view name,
                                        std::int64_t fallback) const {
  const Value* value = find(place, name);
  if (value == nullptr || value->is(Kind::none)) return fallback;
  if (value->is(Kind::integer) || value->is(Kind::boolean)) return value->as_integer();
  return invalid(fmt::format("argument '{}' must be an int, not {}", name, kind_name(*value)));
}

Result<std::string> Arguments::text(std::size_t place, std::string_view name,
                                    std::string fallback) const {
  const Value* value = find(place, name);
  if (value == nullptr || value->is(Kind::none)) return fallback;
  if (value->is(Kind::text)) return value->text->bytes();
  return invalid(fmt::format("argument '{}' must be a str, not {}", name, kind_name(*value)));
}

bool Arguments::truth(std::size_t place, std::string_view name, bool fallback) const {
  const Value* value = find(place, name);
  return value == nullptr ? fallback : is_true(*value);
}

Status charge_texts(Heap& heap, const Value& subject, const Arguments& given) {
  std::size_t bytes = subject.is(Kind::text) ? subject.text->size() : 0;
  for (const Value& value : given.positional) {
    if (value.is(Kind::text)) bytes += value.text->size();
  }
  for (const auto& [name, value] : given.named) {
    if (value.is(Kind::text)) bytes += value.text->size();
  }
  return heap.work(bytes);
}

}  // namespace plimsoll::jinja
