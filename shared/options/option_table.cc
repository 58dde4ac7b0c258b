#include "shared/options/option_table.h"

#include <algorithm>
#include <array>

#include "shared/base/text.h"
#include "shared/options/assumption.h"
#include "shared/options/device_choice.h"

namespace plimsoll {
namespace {

using Names = std::string_view;

constexpr std::array<Names, 2> kActivations = {"int8", "f32"};
constexpr std::array<Names, 2> kSwitch = {"off", "on"};
constexpr std::array<Names, 6> kCollectives = {"auto",  "shm",  "ipc",
                                               "fused", "nccl", "nccl_symmetric"};
constexpr std::array<Names, 5> kKvTypes = {"auto", "f16", "bf16", "fp8", "int8"};
constexpr std::array<Names, 4> kCpuPaths = {"auto", "scalar", "avx2", "avx512-vnni"};
constexpr std::array<Names, 4> kLogLevels = {"debug", "info", "warning", "error"};

constexpr std::array<Names, 1> kModelAliases = {"model-path"};
constexpr std::array<Names, 1> kServedNameAliases = {"alias"};
constexpr std::array<Names, 2> kContextAliases = {"max-model-len", "ctx-size"};
constexpr std::array<Names, 2> kTpAliases = {"tensor-parallel-size", "tp-size"};
constexpr std::array<Names, 2> kDpAliases = {"data-parallel-size", "dp-size"};
constexpr std::array<Names, 1> kTotalTokensAliases = {"max-total-num-tokens"};
constexpr std::array<Names, 2> kRunningAliases = {"max-num-seqs", "parallel"};
constexpr std::array<Names, 1> kPrefillAliases = {"max-num-batched-tokens"};
constexpr std::array<Names, 3> kDraftAliases = {"speculative-draft-model-path", "model-draft",
                                                "speculative-draft-model"};
constexpr std::array<Names, 2> kEpAliases = {"ep-size", "expert-parallel-size"};
constexpr std::array<Names, 1> kKvBytesAliases = {"kv-cache-memory-bytes"};
constexpr std::array<Names, 1> kGraphAliases = {"cuda-graph-max-bs-decode"};

constexpr std::int64_t kSecond = 1000;  // milliseconds
constexpr std::int64_t kHour = 3600 * kSecond;

Status check_devices(std::string_view text) {
  TRY(parse_device_choice(text));
  return {};
}
Status check_assumptions(std::string_view text) {
  TRY(parse_assumptions(text));
  return {};
}

constexpr std::array<OptionRow, 40> kTable = {{
    {.name = "model",
     .group = "Model",
     .field = &Options::model,
     .kind = OptionKind::path,
     .empty = "wait for `plimsoll start`",
     .effect = Effect::full,
     .aliases = kModelAliases,
     .help = "Path of the GGUF file to serve."},
    {.name = "served-model-name",
     .group = "Model",
     .field = &Options::served_model_name,
     .kind = OptionKind::text,
     .empty = "the file's name without its ending",
     .effect = Effect::full,
     .aliases = kServedNameAliases,
     .help = "Name of the model in the HTTP API."},
    {.name = "context-length",
     .group = "Model",
     .field = &Options::context_length,
     .kind = OptionKind::count,
     .min = 32,
     .max = 16'777'216,
     .unit = "tokens",
     .effect = Effect::full,
     .aliases = kContextAliases,
     .help =
         "Longest sequence, prompt and answer together; auto is the model's own length, lowered "
         "where memory is short."},
    {.name = "activations",
     .group = "Model",
     .field = &Options::activations,
     .kind = OptionKind::word,
     .words = kActivations,
     .effect = Effect::full,
     .help =
         "Type that inputs of quantised matrices are rounded to (with int8, those of BF16 matrices "
         "to bf16 where the CPU multiplies it); f32 is the slow reference."},
    {.name = "draft-model",
     .group = "Model",
     .field = &Options::draft_model,
     .kind = OptionKind::path,
     .empty = "no draft model",
     .effect = Effect::full,
     .aliases = kDraftAliases,
     .help = "Path of a small model whose tokens the large one checks; planned only so far."},

    {.name = "tp",
     .group = "Layout",
     .field = &Options::tp,
     .kind = OptionKind::count,
     .min = 1,
     .max = 64,
     .zero_is_auto = true,
     .unit = "ranks",
     .effect = Effect::full,
     .aliases = kTpAliases,
     .help = "Ranks (processes) that one copy of the model is split over; auto: the layout that is "
             "best for this machine."},
    {.name = "dp",
     .group = "Layout",
     .field = &Options::dp,
     .kind = OptionKind::count,
     .min = 1,
     .max = 64,
     .zero_is_auto = true,
     .unit = "replicas",
     .effect = Effect::full,
     .aliases = kDpAliases,
     .help = "Copies of the model, each served by its own ranks; auto: as with tp."},
    {.name = "threads",
     .group = "Layout",
     .field = &Options::threads,
     .kind = OptionKind::count,
     .min = 1,
     .max = 1024,
     .unit = "threads",
     .effect = Effect::rolling,
     .help = "Threads of one rank; auto divides the usable CPUs by all ranks."},
    {.name = "devices",
     .group = "Layout",
     .field = &Options::devices,
     .kind = OptionKind::text,
     .allowed = "auto, cpu, cuda, cuda:host, GPUs (cuda:0,1 or GPU-UUID), or simulated:SIZE "
                "(simulated:96GiB)",
     .check = check_devices,
     .effect = Effect::full,
     .help =
         "Devices that ranks run on; auto: GPUs, where there are any and this build has kernels "
         "for them. Simulated ones rehearse a launch on GPUs of that size."},
    {.name = "machine",
     .group = "Layout",
     .field = &Options::machine,
     .kind = OptionKind::path,
     .empty = "this machine",
     .effect = Effect::full,
     .help = "Description of the machine to plan for, as in configs/machines."},
    {.name = "ep",
     .group = "Layout",
     .field = &Options::ep,
     .kind = OptionKind::count,
     .min = 1,
     .max = 1024,
     .unit = "ranks",
     .effect = Effect::full,
     .aliases = kEpAliases,
     .help = "Ranks that the experts of a layer are divided over; planned only so far."},
    {.name = "ep-dispatch-tokens",
     .group = "Layout",
     .field = &Options::ep_dispatch_tokens,
     .kind = OptionKind::count,
     .min = 1,
     .max = 65'536,
     .unit = "tokens",
     .effect = Effect::full,
     .help = "Tokens that a rank sends to experts of other ranks in one step, at most; sizes the "
             "expert-parallel buffers."},
    {.name = "collective",
     .group = "Layout",
     .field = &Options::collective,
     .kind = OptionKind::word,
     .words = kCollectives,
     .effect = Effect::rolling,
     .help = "What the ranks of a replica exchange sums through; auto: on CPUs shm, by size what a "
             "test at start finds right and fastest; on GPUs fused, or nccl with "
             "--disable-custom-all-reduce."},
    {.name = "disable-custom-all-reduce",
     .group = "Layout",
     .field = &Options::disable_custom_all_reduce,
     .kind = OptionKind::word,
     .words = kSwitch,
     .alone = "on",
     .effect = Effect::rolling,
     .help = "Whether ranks on GPUs exchange sums through NCCL alone, without kernels of our own; "
             "the flag alone means on."},
    {.name = "simulation",
     .group = "Layout",
     .field = &Options::simulation,
     .kind = OptionKind::path,
     .empty = "simulated devices behave as planned",
     .effect = Effect::full,
     .help = "JSON file of what simulated devices take beside the plan, and when "
             "(docs/simulation.md)."},
    {.name = "cpu-path",
     .group = "Layout",
     .field = &Options::cpu_path,
     .kind = OptionKind::word,
     .words = kCpuPaths,
     .effect = Effect::rolling,
     .help = "Instruction set of the CPU kernels; auto is the best that this machine can run."},

    {.name = "device-memory",
     .group = "Memory",
     .field = &Options::device_memory,
     .kind = OptionKind::size,
     .min = kMiB,
     .max = 1024 * 1024 * kGiB,
     .effect = Effect::full,
     .help = "Memory that one rank may use for everything; auto is at most half of what is "
             "available, divided by all ranks."},
    {.name = "mem-fraction-static",
     .group = "Memory",
     .field = &Options::mem_fraction_static,
     .kind = OptionKind::fraction,
     .min = 1'000,
     .max = 999'000,
     .effect = Effect::full,
     .help = "Share of the memory that is free before weights are loaded which weights and KV "
             "fill, as in SGLang; auto sizes KV by demand."},
    {.name = "gpu-memory-utilization",
     .group = "Memory",
     .field = &Options::gpu_memory_utilization,
     .kind = OptionKind::fraction,
     .min = 1'000,
     .max = 1'000'000,
     .effect = Effect::full,
     .help = "Share of a device's total memory which weights, buffers and KV fill, as in vLLM; "
             "auto sizes KV by demand."},
    {.name = "kv-cache-bytes",
     .group = "Memory",
     .field = &Options::kv_cache_bytes,
     .kind = OptionKind::size,
     .min = kKiB,
     .max = 1024 * 1024 * kGiB,
     .effect = Effect::full,
     .aliases = kKvBytesAliases,
     .help = "KV cache of one rank; auto sizes it by demand."},
    {.name = "kv-cache-dtype",
     .group = "Memory",
     .field = &Options::kv_cache_dtype,
     .kind = OptionKind::word,
     .words = kKvTypes,
     .effect = Effect::full,
     .help = "Type that keys and values are stored as; auto is f16 where workers of ours run, "
             "and bf16 in plans for other GPUs."},
    {.name = "max-total-tokens",
     .group = "Memory",
     .field = &Options::max_total_tokens,
     .kind = OptionKind::count,
     .min = 32,
     .max = 1'000'000'000'000,
     .unit = "tokens",
     .effect = Effect::full,
     .aliases = kTotalTokensAliases,
     .help = "Tokens in the KV cache of one replica; auto is max-running-requests times "
             "context-length, as far as memory allows."},
    {.name = "max-running-requests",
     .group = "Memory",
     .field = &Options::max_running_requests,
     .kind = OptionKind::count,
     .min = 1,
     .max = 4096,
     .unit = "requests",
     .effect = Effect::full,
     .aliases = kRunningAliases,
     .help = "Requests that one replica computes at the same time; auto is 16 on CPUs and 256 on "
             "GPUs, fewer where memory is short."},
    {.name = "kv-prefault",
     .group = "Memory",
     .field = &Options::kv_prefault,
     .kind = OptionKind::word,
     .words = kSwitch,
     .bare = "on",
     .effect = Effect::rolling,
     .help = "Touch all of the KV cache at start, so that memory that is not there shows then."},
    {.name = "cuda-graph-max-bs",
     .group = "Memory",
     .field = &Options::cuda_graph_max_bs,
     .kind = OptionKind::count,
     .min = 0,
     .max = 4096,
     .unit = "requests",
     .effect = Effect::full,
     .aliases = kGraphAliases,
     .help = "Largest decode batch that is captured as a CUDA graph, 0 for none; auto goes by the "
             "device's memory, at most max-running-requests."},
    {.name = "assume",
     .group = "Memory",
     .field = &Options::assume,
     .kind = OptionKind::text,
     .allowed = "TERM=BYTES, several with commas (weights=72.29GiB,free=94GiB)",
     .check = check_assumptions,
     .repeats = true,
     .empty = "nothing is assumed",
     .effect = Effect::full,
     .help = "Figures that replace terms of the plan, so that a reported case can be replayed; may "
             "be given several times."},

    {.name = "chunked-prefill-size",
     .group = "Scheduling",
     .field = &Options::chunked_prefill_size,
     .kind = OptionKind::count,
     .min = 1,
     .max = 131'072,
     .unit = "tokens",
     .effect = Effect::full,
     .aliases = kPrefillAliases,
     .help = "Most tokens of one step; auto is at most 512 on CPUs, adapts to step-time-max, and "
             "goes by "
             "the device's memory on GPUs."},
    {.name = "step-time-max",
     .group = "Scheduling",
     .field = &Options::step_time_max,
     .kind = OptionKind::duration,
     .min = 1,
     .max = 60 * kSecond,
     .effect = Effect::live,
     .help = "Longest step that prompts may cause: running answers wait that long for a token."},
    {.name = "num-continuous-decode-steps",
     .group = "Scheduling",
     .field = &Options::num_continuous_decode_steps,
     .kind = OptionKind::count,
     .min = 1,
     .max = 256,
     .unit = "steps",
     .effect = Effect::rolling,
     .help = "Steps that only decode and run in a row before new requests are looked at and tokens "
             "are sent, within step-time-max; more saves work between steps, and tokens come in "
             "groups."},
    {.name = "disable-radix-cache",
     .group = "Scheduling",
     .field = &Options::disable_radix_cache,
     .kind = OptionKind::word,
     .words = kSwitch,
     .alone = "on",
     .effect = Effect::rolling,
     .help = "Whether every prompt is computed whole, even where an earlier one began alike; the "
             "flag alone means on."},
    {.name = "max-queued-requests",
     .group = "Scheduling",
     .field = &Options::max_queued_requests,
     .kind = OptionKind::count,
     .min = 0,
     .max = 1'000'000,
     .unit = "requests",
     .effect = Effect::live,
     .help = "Requests that may wait in the router, over all replicas; more are refused with 503."},
    {.name = "hold-deadline",
     .group = "Scheduling",
     .field = &Options::hold_deadline,
     .kind = OptionKind::duration,
     .min = 0,
     .max = kHour,
     .effect = Effect::live,
     .help = "How long the router holds requests, begun or not, while no replica is ready."},

    {.name = "host",
     .group = "HTTP",
     .field = &Options::host,
     .kind = OptionKind::text,
     .effect = Effect::full,
     .help = "Address that the router listens on; 0.0.0.0 is every IPv4 address."},
    {.name = "port",
     .group = "HTTP",
     .field = &Options::port,
     .kind = OptionKind::count,
     .min = 0,
     .max = 65'535,
     .effect = Effect::full,
     .help = "Port that the router listens on; 0 picks a free one, which `plimsoll status` shows."},

    {.name = "runtime-dir",
     .group = "Processes",
     .field = &Options::runtime_dir,
     .kind = OptionKind::path,
     .empty = "/run/plimsoll as root, else $XDG_RUNTIME_DIR/plimsoll",
     .effect = Effect::fixed,
     .help = "Folder of the sockets; two deployments side by side have two, and two --state-dir."},
    {.name = "state-dir",
     .group = "Processes",
     .field = &Options::state_dir,
     .kind = OptionKind::path,
     .empty = "/var/lib/plimsoll as root, else $XDG_STATE_HOME/plimsoll",
     .effect = Effect::fixed,
     .help = "Folder of records and logs, of one deployment."},
    {.name = "load-timeout",
     .group = "Processes",
     .field = &Options::load_timeout,
     .kind = OptionKind::duration,
     .min = kSecond,
     .max = 24 * kHour,
     .effect = Effect::full,
     .help = "How long loading may go without any progress before it counts as failed."},
    {.name = "shutdown-timeout",
     .group = "Processes",
     .field = &Options::shutdown_timeout,
     .kind = OptionKind::duration,
     .min = 0,
     .max = kHour,
     .effect = Effect::full,
     .help = "How long running requests may take to finish before processes are killed."},
    {.name = "stall-timeout",
     .group = "Processes",
     .field = &Options::stall_timeout,
     .kind = OptionKind::duration,
     .min = 100,
     .max = kHour,
     .effect = Effect::full,
     .help = "How long a rank with work may finish no step before it is restarted."},
    {.name = "log-level",
     .group = "Processes",
     .field = &Options::log_level,
     .kind = OptionKind::word,
     .words = kLogLevels,
     .effect = Effect::live,
     .help = "Least important messages that are logged."},
}};

std::string dashed(std::string_view name) {
  std::string out = lower(name);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

}  // namespace

std::span<const OptionRow> option_table() { return kTable; }

const OptionRow* find_option(std::string_view name) {
  const std::string wanted = dashed(name);
  for (const OptionRow& row : kTable) {
    if (row.name == wanted) return &row;
    if (std::find(row.aliases.begin(), row.aliases.end(), wanted) != row.aliases.end()) return &row;
  }
  return nullptr;
}

std::string nearest_option(std::string_view name) {
  std::vector<std::string_view> known;
  for (const OptionRow& row : kTable) {
    known.push_back(row.name);
    known.insert(known.end(), row.aliases.begin(), row.aliases.end());
  }
  return nearest(dashed(name), known);
}

std::string environment_name(const OptionRow& row) {
  std::string out = "PLIMSOLL_";
  for (const char c : row.name) {
    out += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  }
  return out;
}

bool takes_auto(const OptionRow& row) {
  return row.zero_is_auto ||
         std::holds_alternative<std::optional<std::int64_t> Options::*>(row.field);
}

}  // namespace plimsoll
