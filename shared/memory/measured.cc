#include "shared/memory/measured.h"

#include <fmt/format.h>

namespace plimsoll {
namespace {

Status read_bytes(const Json& json, std::string_view name, Bytes& value) {
  const Json* found = json.find(name);
  if (found == nullptr || found->is_null()) return {};
  if (!found->is_integer() || found->as_int() < 0) {
    return invalid(fmt::format("measured memory: {} must be a number of bytes", name));
  }
  value = found->as_int();
  return {};
}

Status read_bytes(const Json& json, std::string_view name, std::optional<Bytes>& value) {
  const Json* found = json.find(name);
  if (found == nullptr || found->is_null()) return {};
  return read_bytes(json, name, value.emplace());
}

Json optional_bytes(const std::optional<Bytes>& value) { return value ? Json(*value) : Json(); }

}  // namespace

Bytes Measured::sum() const {
  Bytes sum = 0;
  for (const auto& [term, bytes] : terms) sum += bytes;
  return sum;
}

Json measured_to_json(const Measured& measured) {
  Json terms = Json::object();
  for (const auto& [term, bytes] : measured.terms) terms.set(term, bytes);
  return Json::object({{"terms", std::move(terms)},
                       {"source", measured.source},
                       {"resident", measured.resident},
                       {"kv_committed", measured.kv_committed},
                       {"kv_touched", measured.kv_touched},
                       {"free", optional_bytes(measured.free)},
                       {"neighbours", measured.neighbours},
                       {"cgroup", optional_bytes(measured.cgroup)}});
}

Result<Measured> measured_from_json(const Json& json) {
  if (!json.is_object()) {
    return invalid(fmt::format("measured memory: must be an object, not {}", json.type_name()));
  }
  Measured measured;
  const Json* terms = json.find("terms");
  if (terms != nullptr && !terms->is_object()) {
    return invalid("measured memory: terms must be an object");
  }
  if (terms != nullptr) {
    for (const auto& [term, bytes] : terms->as_object()) {
      TRY(read_bytes(*terms, term, measured.terms[term]));
    }
  }
  if (const Json* source = json.find("source"); source != nullptr && source->is_string()) {
    measured.source = source->as_string();
  }
  TRY(read_bytes(json, "resident", measured.resident));
  TRY(read_bytes(json, "kv_committed", measured.kv_committed));
  TRY(read_bytes(json, "kv_touched", measured.kv_touched));
  TRY(read_bytes(json, "free", measured.free));
  TRY(read_bytes(json, "neighbours", measured.neighbours));
  TRY(read_bytes(json, "cgroup", measured.cgroup));
  return measured;
}

}  // namespace plimsoll
