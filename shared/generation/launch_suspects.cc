#include "shared/generation/launch_suspects.h"

#include <algorithm>
#include <cstddef>

namespace plimsoll {
namespace {

struct Row {
  std::string_view name;  // the whole name, or its beginning where it ends with '*'
  int weight;
  std::string_view why;
  bool is_graphs = false;
};

// In order: the first row that matches counts.
constexpr Row kOptions[] = {
    {"mem-fraction-static", 80, "decides how much is left for KV"},
    {"gpu-memory-utilization", 80, "decides how much is left for KV"},
    {"kv-cache-bytes", 75, "is the size of KV"},
    {"kv-cache-memory*", 75, "is the size of KV"},
    {"device-memory", 75, "is all that a rank may use"},
    {"max-total-tokens", 75, "is the size of KV"},
    {"num-gpu-blocks-override", 75, "is the size of KV"},
    {"model", 70, "another model: weights and KV differ"},
    {"quantization*", 70, "changes the size of the weights"},
    {"dtype", 65, "changes the size of the weights"},
    {"revision", 50, "may be other weights"},
    {"tp", 70, "changes each rank's share of weights and KV"},
    {"pp", 70, "changes each rank's share of the layers"},
    {"ep", 65, "changes which experts a rank holds, and its exchange buffers"},
    {"enable-expert-parallel", 65, "changes which experts a rank holds, and its exchange buffers"},
    {"dp", 60, "changes how many copies share the devices"},
    {"enable-dp-attention", 60, "changes where KV is kept and what graphs need"},
    {"moe-*", 55, "expert exchange takes buffers of its own, up to tens of GiB"},
    {"deepep*", 55, "expert exchange takes buffers of its own, up to tens of GiB"},
    {"enable-deepep*", 55, "expert exchange takes buffers of its own, up to tens of GiB"},
    {"speculative*", 65, "draft weights and draft KV come out of the same memory"},
    {"spec-*", 65, "draft weights and draft KV come out of the same memory"},
    {"enable-mtp", 65, "draft weights and draft KV come out of the same memory"},
    {"draft*", 65, "draft weights and draft KV come out of the same memory"},
    {"machine", 65, "another machine is planned for"},
    {"assume", 60, "figures that replace what is computed"},
    {"ep-dispatch-tokens", 55, "the size of expert exchange's buffers"},
    {"kv-cache-dtype", 60, "changes the bytes of a token"},
    {"context-length", 60, "is what one request may need of KV"},
    {"page-size", 30, "rounds KV"},
    {"block-size", 30, "rounds KV"},
    {"cuda-graph*", 55, "graph captures take memory after KV", true},
    {"disable-cuda-graph*", 55, "graph captures take memory after KV", true},
    {"enforce-eager", 55, "graph captures take memory after KV", true},
    {"compilation-config", 50, "graph captures take memory after KV", true},
    {"chunked-prefill-size", 50, "is the size of a step: activations grow with it"},
    {"max-prefill-tokens", 45, "is the size of a step: activations grow with it"},
    {"max-running-requests", 45, "request tables, logits and captures grow with it"},
    {"enable-torch-compile", 45, "compiled graphs keep memory"},
    {"cpu-offload*", 50, "moves weights off the device"},
    {"swap-space", 10, "host memory only"},
    {"hicache*", 30, "KV in host memory"},
    {"enable-hierarchical-cache", 30, "KV in host memory"},
    {"enable-lora", 45, "adapters take memory"},
    {"max-lora*", 45, "adapters take memory"},
    {"lora-*", 45, "adapters take memory"},
    {"limit-mm-per-prompt", 45, "the vision encoder's activations are profiled for it"},
    {"enable-multimodal", 45, "the vision encoder is loaded"},
    {"enable-symm-mem", 40, "a pool of up to 4 GiB that nothing subtracts"},
    {"enable-flashinfer-allreduce-fusion", 35, "a workspace of some hundred MiB a device"},
    {"disable-custom-all-reduce", 40, "some 24 MiB a device: speed, not memory"},
    {"enable-mscclpp", 30, "small buffers: speed, not memory"},
    {"*all-reduce*", 40, "buffers of some ten MiB: speed, not memory"},
    {"attention-backend", 35, "workspaces differ by some hundred MiB"},
    {"*-attention-backend", 35, "workspaces differ by some hundred MiB"},
    {"sampling-backend", 20, ""},
    {"num-continuous-decode-steps", 12, "speed, not memory"},
    {"schedule-*", 12, "speed, not memory"},
    {"activations", 30, "changes the workspace"},
    {"threads", 20, "scratch a thread: speed more than memory"},
    {"cpu-path", 20, "speed, not memory"},
    {"step-time-max", 12, "speed, not memory"},
    {"disable-radix-cache", 15, "reuse of KV, not its size"},
    {"enable-prefix-caching", 15, "reuse of KV, not its size"},
    {"load-format", 15, "how weights are read"},
    {"device", 60, "another kind of device"},
    {"base-gpu-id", 40, "other devices, which may have less free"},
    {"nnodes", 50, "changes each rank's share of weights and KV"},
    {"host", 1, ""},
    {"port", 1, ""},
    {"*-port", 1, ""},
    {"*-seed", 1, ""},
    {"seed", 1, ""},
    {"served-model-name", 1, ""},
    {"api-key", 1, ""},
    {"admin-api-key", 1, ""},
    {"trust-remote-code", 20, "the model's own code runs"},
    {"dist-init-addr", 1, ""},
    {"log-*", 1, ""},
    {"uvicorn-log-level", 1, ""},
    {"enable-metrics*", 1, ""},
    {"tool-call-parser", 1, ""},
    {"reasoning-parser", 1, ""},
    {"chat-template", 1, ""},
    {"download-dir", 1, ""},
    {"tokenizer*", 3, ""},
    {"runtime-dir", 1, ""},
    {"state-dir", 1, ""},
};

constexpr Row kSurroundings[] = {
    {"device*", 65, "another device, or another number of them"},
    {"gpu*", 65, "another device, or another number of them"},
    {"memory*", 50, ""},
    {"numa*", 40, ""},
    {"pcie*", 40, ""},
    {"model*", 60, "other weights"},
    {"driver*", 45, "contexts and allocations differ between drivers"},
    {"cuda*", 45, "contexts and workspaces differ between versions"},
    {"nccl*", 45, "buffers of communicators differ between versions"},
    {"CUDA_VISIBLE_DEVICES", 60, "other devices"},
    {"CUDA_*", 45, ""},
    {"NCCL_*", 45, "may change the buffers of communicators"},
    {"PYTORCH_*", 45, "changes how memory is kept and returned"},
    {"SGLANG_*", 40, ""},
    {"VLLM_*", 40, ""},
    {"PLIMSOLL_*", 40, ""},
    {"OMP_*", 15, "threads, not memory"},
    {"version", 50, "another version sizes memory by other rules"},
    {"build", 50, "another build may size memory by other rules"},
    {"kernel", 15, ""},
    {"cgroup*", 60, "the limit of host memory"},
};

// '*' stands at the end, at the beginning or at both.
bool matches(std::string_view pattern, std::string_view name) {
  if (pattern.starts_with('*') && pattern.ends_with('*')) {
    return name.find(pattern.substr(1, pattern.size() - 2)) != std::string_view::npos;
  }
  if (pattern.ends_with('*')) return name.starts_with(pattern.substr(0, pattern.size() - 1));
  if (pattern.starts_with('*')) return name.ends_with(pattern.substr(1));
  return pattern == name;
}

template <std::size_t N>
Suspect suspect_in(const Row (&rows)[N], std::string_view name, int otherwise) {
  const Row* row = std::ranges::find_if(rows, [&](const Row& r) { return matches(r.name, name); });
  if (row == std::end(rows)) return {.weight = otherwise};
  return {row->weight, std::string(row->why), row->is_graphs};
}

}  // namespace

Suspect option_suspect(std::string_view canonical_name) {
  return suspect_in(kOptions, canonical_name, 25);
}

Suspect surrounding_suspect(std::string_view name) { return suspect_in(kSurroundings, name, 20); }

}  // namespace plimsoll
