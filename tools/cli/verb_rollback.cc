#include <ostream>

#include <fmt/format.h>

#include "tools/cli/daemon_client.h"
#include "tools/cli/generation_source.h"
#include "tools/cli/json_view.h"
#include "tools/cli/operation.h"
#include "tools/cli/verb.h"

namespace plimsoll {
namespace {

Result<const GenerationRecord*> target_of(const Invocation& call, const Generations& all,
                                          std::int64_t running) {
  if (!call.line.arguments.empty()) return named_generation(all, call.line.arguments.front());
  const GenerationRecord* present = find_generation(all, running);
  // Of one that has failed to start, the one that worked may have the same options.
  const bool works = present != nullptr && present->known_good;
  const std::int64_t before = running > 0 ? running : all.last_number + 1;
  const GenerationRecord* target = last_known_good(all, before, works ? present : nullptr);
  if (target != nullptr) return target;
  return not_found(
      "no earlier generation has served with other options (`plimsoll history` lists "
      "all)");
}

}  // namespace

Result<int> run_rollback(const Invocation& call) {
  if (!is_daemon_running(call)) return report_not_running(call);
  const Json status = TRY(ask_status(runtime_of(call)));
  const Result<Generations> all = generations_of(call);
  if (!all) return report_no_generation(call, all.error(), false);
  const std::int64_t running = int_at(status, {"generation"});
  const Result<const GenerationRecord*> found = target_of(call, *all, running);
  if (!found) return report_no_generation(call, found.error(), true);
  const GenerationRecord& target = **found;
  if (!target.known_good) {
    return report_reply(
        call, {.exit_code = kExitFailed,
               .message = fmt::format("generation {} has never served ({}): a rollback would not "
                                      "help; `plimsoll reconfigure` tries options once more",
                                      target.number, outcome_text(target)),
               .result = {}});
  }
  const std::string state = text_at(status, {"state"});
  const bool runs = state != "stopped" && state != "failed";
  const std::string cause = fmt::format("rollback to {}", target.number);
  Json arguments = Json::object({{"options", target.options}, {"cause", cause}});
  if (runs) arguments.set("based_on", running);
  const Command command{.verb = runs ? "reconfigure" : "start", .arguments = std::move(arguments)};
  return report_reply(call, TRY(run_operation(call, command)));
}

}  // namespace plimsoll
