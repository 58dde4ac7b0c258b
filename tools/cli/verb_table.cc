#include <algorithm>
#include <array>

#include "tools/cli/verb.h"

namespace plimsoll {
namespace {

constexpr std::array<VerbFlag, 1> kStopFlags = {
    {{"all", "", "end the daemon too, not only the deployment"}}};
constexpr std::array<VerbFlag, 3> kStatusFlags = {
    {{"collectives", "", "show by what the ranks of each replica exchange sums, and its test"},
     {"watch", "", "show it again each second, until Ctrl-C"},
     {"wait", "", "return when it serves (exit code 0), has failed or is gone"}}};
constexpr std::array<VerbFlag, 1> kRestartFlags = {
    {{"path", "PATH", "auto, beside, rolling, hold or restart: how to go about it"}}};
constexpr std::array<VerbFlag, 5> kReconfigureFlags = {
    {{"set", "NAME=VALUE", "the same as NAME=VALUE; may be repeated", {}, true},
     {"file", "FILE",
      "take what a configuration file says now; flags and variables of the daemon "
      "still win"},
     {"dry-run", "", "only say what would change, by which path and whether it fits"},
     {"path", "PATH", "auto, beside, rolling, hold or restart: how to go about it"},
     {"based-on", "N", "refuse it if the generation is another by now"}}};
constexpr std::array<VerbFlag, 1> kConfigFlags = {
    {{"origin", "", "say where each value came from"}}};
constexpr std::array<VerbFlag, 2> kChatFlags = {
    {{"max-tokens", "N", "longest answer, in tokens"},
     {"temperature", "T", "0: always the likeliest token; up to 2 (default 1)"}}};
constexpr std::array<VerbFlag, 3> kLogsFlags = {
    {{"rank", "REPLICA.RANK",
      "only what this rank has said, its memory by the plan's rows included"},
     {"follow", "", "go on with what is written from now on", "f"},
     {"lines", "N", "how many lines back to begin (default 100)", "n"}}};

constexpr std::array<VerbFlag, 3> kPlanFlags = {
    {{"explain", "TERM", "only this term of the plan: its formula with the numbers"},
     {"from-log", "LOG",
      "take options and measured sizes of a log of SGLang or vLLM, where none are given here"},
     {"svg", "FILE", "also write the bars as an image"}}};

constexpr std::array<Verb, 16> kVerbs = {{
    {.name = "start",
     .arguments = "[--OPTION VALUE ...]",
     .summary = "load a deployment and wait until it serves; launches the daemon where none runs",
     .takes_options = true,
     .run = run_start},
    {.name = "stop",
     .arguments = "[--all]",
     .summary = "finish running requests and unload the deployment",
     .flags = kStopFlags,
     .run = run_stop},
    {.name = "restart",
     .arguments = "[--path PATH]",
     .summary = "start every process again with the same options, while others serve if possible",
     .flags = kRestartFlags,
     .run = run_restart},
    {.name = "status",
     .arguments = "[--watch | --wait | --collectives]",
     .summary = "show state, URL, processes, memory, queue and speed",
     .flags = kStatusFlags,
     .run = run_status},
    {.name = "plan",
     .arguments = "[--explain TERM] [--from-log LOG] [--svg FILE] [--OPTION VALUE ...]",
     .summary = "show how memory would be used, here or on a described machine, without starting",
     .flags = kPlanFlags,
     .takes_options = true,
     .run = run_plan},
    {.name = "explain",
     .arguments = "LOG [LOG]",
     .summary = "say what happened in a log of SGLang or vLLM, or what differs between two",
     .arguments_min = 1,
     .arguments_max = 2,
     .run = run_explain},
    {.name = "reconfigure",
     .arguments = "{NAME=VALUE ... | --file FILE} [--dry-run] [--based-on N] [--path PATH]",
     .summary = "change options of the running deployment; what fails is taken back",
     .flags = kReconfigureFlags,
     .arguments_max = 256,
     .run = run_reconfigure},
    {.name = "history",
     .arguments = "",
     .summary = "list the launches of this instance and what came of them",
     .run = run_history},
    {.name = "diff",
     .arguments = "[[A] B]   (numbers of generations, or logs of SGLang and vLLM)",
     .summary = "show what differs between two launches, the likeliest cause of trouble first",
     .arguments_max = 2,
     .run = run_diff},
    {.name = "rollback",
     .arguments = "[N]",
     .summary = "go back to generation N, or to the last one that served with other options",
     .arguments_max = 1,
     .run = run_rollback},
    {.name = "config",
     .arguments = "{show [--origin] | check | default | reference | schema}",
     .summary = "show or check options",
     .flags = kConfigFlags,
     .arguments_min = 1,
     .arguments_max = 1,
     .takes_options = true,
     .run = run_config},
    {.name = "chat",
     .arguments = "[--max-tokens N] [--temperature T] [\"QUESTION\"]",
     .summary = "talk to the model; without a question, line by line",
     .flags = kChatFlags,
     .arguments_max = 1,
     .run = run_chat},
    {.name = "logs",
     .arguments = "[--rank REPLICA.RANK] [-f] [-n N]",
     .summary = "show what all processes have said",
     .flags = kLogsFlags,
     .run = run_logs},
    {.name = "bundle",
     .arguments = "[FILE]",
     .summary = "write what a report of a fault needs into one JSON file",
     .arguments_max = 1,
     .run = run_bundle},
    {.name = "version",
     .arguments = "",
     .summary = "show version, compiler and the instruction sets of this machine",
     .run = run_version},
    {.name = "help",
     .arguments = "[VERB]",
     .summary = "show how to call a verb",
     .arguments_max = 1,
     .run = run_help},
}};

}  // namespace

std::span<const Verb> verb_table() { return kVerbs; }

const Verb* find_verb(std::string_view name) {
  const auto found = std::ranges::find(kVerbs, name, &Verb::name);
  return found == kVerbs.end() ? nullptr : &*found;
}

}  // namespace plimsoll
