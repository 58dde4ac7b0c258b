// str(), repr() and json.dumps() of a value.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "shared/tokenizer/jinja/value.h"

namespace plimsoll::jinja {
namespace {

constexpr int kDepthMax = 100;

std::string real_to_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string scalar_to_text(const Value& value) {
  switch (value.kind) {
    case Kind::none:
      return "None";
    case Kind::boolean:
      return value.boolean ? "True" : "False";
    case Kind::integer:
      return fmt::format("{}", value.integer);
    case Kind::real:
      return real_to_text(value.real);
    default:
      return "";
  }
}

// Python's choice: single quotes, unless the text has some and no double ones.
void repr_text(std::string_view text, std::string& out) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out += quote;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  out += quote;
}

void repr(Heap& heap, const Value& value, int depth, std::string& out) {
  heap.charge(1);
  if (depth > kDepthMax || !heap.reserve(out.size())) {
    out += "...";
    return;
  }
  switch (value.kind) {
    case Kind::text:
      heap.charge(value.text->size() / 8);
      if (!heap.reserve(out.size() + value.text->size())) return;
      repr_text(value.text->bytes(), out);
      return;
    case Kind::undefined:
      out += "Undefined";
      return;
    case Kind::callable:
      out += "<function " + value.callable->name + ">";
      return;
    case Kind::list:
    case Kind::tuple: {
      const auto& items = value.list->items;
      out += value.is(Kind::list) ? '[' : '(';
      for (std::size_t i = 0; i < items.size(); ++i) {
        if (i > 0) out += ", ";
        repr(heap, items[i], depth + 1, out);
      }
      if (value.is(Kind::tuple) && items.size() == 1) out += ',';
      out += value.is(Kind::list) ? ']' : ')';
      return;
    }
    case Kind::dict:
    case Kind::name_space: {
      out += value.is(Kind::dict) ? "{" : "<Namespace {";
      bool first = true;
      for (const auto& [key, member] : value.dict->members) {
        if (!first) out += ", ";
        first = false;
        repr(heap, key, depth + 1, out);
        out += ": ";
        repr(heap, member, depth + 1, out);
      }
      out += value.is(Kind::dict) ? "}" : "}>";
      return;
    }
    default:
      out += scalar_to_text(value);
  }
}

class JsonWriter {
 public:
  JsonWriter(Heap& heap, const JsonStyle& style) : heap_(heap), style_(style) {}

  Status write(const Value& value, int depth) {
    heap_.charge(1);
    if (depth > kDepthMax) return invalid("tojson: the value is nested too deeply");
    if (heap_.exhausted() || !heap_.reserve(0) || out_.size() > kBytesMax) {
      return heap_.exhausted() ? heap_.exhaustion() : invalid("tojson: the value is too large");
    }
    switch (value.kind) {
      case Kind::none:
        out_ += "null";
        return {};
      case Kind::boolean:
        out_ += value.boolean ? "true" : "false";
        return {};
      case Kind::real:
        out_ += std::isnan(value.real)   ? "NaN"
                : std::isinf(value.real) ? (value.real < 0 ? "-Infinity" : "Infinity")
                                         : real_to_text(value.real);
        return {};
      case Kind::integer:
        out_ += scalar_to_text(value);
        return {};
      case Kind::text:
        TRY(heap_.work(value.text->size()));
        if (!heap_.reserve(out_.size() + value.text->size())) return heap_.exhaustion();
        string(value.text->bytes());
        return {};
      case Kind::list:
      case Kind::tuple:
        return array(value.list->items, depth);
      case Kind::dict:
        return object(*value.dict, depth);
      default:
        return invalid(fmt::format("tojson: an object of type {} has no JSON form{}",
                                   kind_name(value),
                                   value.is(Kind::undefined) && value.text != nullptr
                                       ? " ('" + value.text->bytes() + "' is undefined)"
                                       : ""));
    }
  }

  std::string take() { return std::move(out_); }

 private:
  static constexpr std::size_t kBytesMax = std::size_t{64} << 20;

  void string(std::string_view text) {
    out_ += '"';
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      if (byte == '"' || byte == '\\') {
        out_ += '\\';
        out_ += text[i];
      } else if (byte < 0x20) {
        control(text[i]);
      } else if (style_.ascii && byte >= 0x80) {
        i += escaped(text.substr(i)) - 1;
      } else {
        out_ += text[i];
      }
    }
    out_ += '"';
  }

  void control(char c) {
    static constexpr std::string_view kShort = "\b\f\n\r\t";
    const std::size_t at = kShort.find(c);
    out_ += at == std::string_view::npos ? fmt::format("\\u{:04x}", static_cast<unsigned char>(c))
                                         : fmt::format("\\{}", "bfnrt"[at]);
  }

  // \uXXXX of the character at the front, two where it is beyond U+FFFF; its length in bytes.
  std::size_t escaped(std::string_view text) {
    const auto lead = static_cast<unsigned char>(text[0]);
    const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    std::uint32_t code = lead & (0xFFU >> (length + 1));
    for (std::size_t i = 1; i < length && i < text.size(); ++i) {
      code = (code << 6) | (static_cast<unsigned char>(text[i]) & 0x3FU);
    }
    if (code >= 0x10000) {
      code -= 0x10000;
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF));
    } else {
      out_ += fmt::format("\\u{:04x}", code);
    }
    return std::min(length, text.size());
  }

  // What comes before an item: a line of its own where the style has indents.
  void begin_item(bool first, int depth) {
    if (!first) out_ += style_.item_separator;
    if (style_.indent < 0) return;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(style_.indent) * static_cast<std::size_t>(depth + 1), ' ');
  }
  void end_items(int depth) {
    if (style_.indent < 0) return;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(style_.indent) * static_cast<std::size_t>(depth), ' ');
  }

  Status array(const std::vector<Value>& items, int depth) {
    out_ += '[';
    for (std::size_t i = 0; i < items.size(); ++i) {
      begin_item(i == 0, depth);
      TRY(write(items[i], depth + 1));
    }
    if (!items.empty()) end_items(depth);
    out_ += ']';
    return {};
  }

  Status object(const Dict& dict, int depth) {
    std::vector<std::pair<std::string, Value>> members;
    members.reserve(dict.members.size());
    for (const auto& [key, member] : dict.members) {
      std::string name = key.is(Kind::text) ? key.text->bytes() : scalar_to_text(key);
      if (key.is(Kind::boolean)) name = key.boolean ? "true" : "false";
      if (key.is(Kind::none)) name = "null";
      members.emplace_back(std::move(name), member);
    }
    if (style_.sorted) {
      std::stable_sort(members.begin(), members.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    out_ += '{';
    for (std::size_t i = 0; i < members.size(); ++i) {
      begin_item(i == 0, depth);
      string(members[i].first);
      out_ += style_.key_separator;
      TRY(write(members[i].second, depth + 1));
    }
    if (!members.empty()) end_items(depth);
    out_ += '}';
    return {};
  }

  Heap& heap_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

Text to_text(Heap& heap, const Value& value) {
  if (value.is(Kind::text)) {
    // A copy that nobody will see is not made: the run ends at its next step.
    if (!heap.work(value.text->size())) return Text();
    return *value.text;
  }
  if (value.is(Kind::undefined)) return Text();
  if (!value.is_list() && !value.is_dict() && !value.is(Kind::callable)) {
    return Text(scalar_to_text(value), value.trusted);
  }
  std::string out;
  repr(heap, value, 0, out);
  return Text(out, false);
}

Result<Value> to_json(Heap& heap, const Value& value, const JsonStyle& style) {
  JsonWriter writer(heap, style);
  TRY(writer.write(value, 0));
  return heap.text(writer.take(), false);
}

}  // namespace plimsoll::jinja
