#include "worker/worker_arguments.h"

#include <charconv>

#include <fmt/format.h>

namespace plimsoll {

Result<WorkerArguments> parse_worker_arguments(std::span<const std::string> arguments) {
  WorkerArguments result;
  const std::string usage =
      "; usage: plimsoll-worker --control ENDPOINT --instance WORD --replica N --rank N (started "
      "by plimsolld)";
  for (std::size_t i = 0; i < arguments.size(); i += 2) {
    const std::string& name = arguments[i];
    if (i + 1 == arguments.size()) return invalid(fmt::format("{} needs a value{}", name, usage));
    const std::string& value = arguments[i + 1];
    if (name == "--control") {
      result.control = value;
    } else if (name == "--instance") {
      result.instance = value;
    } else if (name == "--replica" || name == "--rank") {
      std::int64_t& number = name == "--rank" ? result.rank : result.replica;
      const char* last = value.data() + value.size();
      const auto [end, error] = std::from_chars(value.data(), last, number);
      if (error != std::errc{} || end != last || number < 0) {
        return invalid(fmt::format("{} is '{}'; expected 0 or more{}", name, value, usage));
      }
    } else {
      return invalid(fmt::format("unknown argument '{}'{}", name, usage));
    }
  }
  if (result.control.empty()) return invalid("--control is missing" + usage);
  return result;
}

}  // namespace plimsoll
