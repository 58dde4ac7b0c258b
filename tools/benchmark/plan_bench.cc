// How long a plan takes: the median of many, by device count, with its window and its refusal.
//
// Usage: plan_bench [MODEL]. Without a model: the shape of Kimi-K2.5 with assumed weights.

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "shared/memory/memory_plan.h"
#include "shared/model/model_source.h"
#include "shared/options/option_parse.h"

namespace plimsoll {
namespace {

ModelSpec kimi_shape() {
  ModelSpec model;
  model.architecture = "deepseek2";
  model.layers = 61;
  model.hidden = 7168;
  model.ffn = 18'432;
  model.heads = 64;
  model.kv_heads = 1;
  model.head_dim = 192;
  model.rope_dim = 64;
  model.vocab = 163'840;
  model.context_length = 262'144;
  model.latent = {
      .q_rank = 1536, .kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128};
  model.experts = {.layers = 60, .count = 384, .used = 8, .ffn = 2048, .shared_ffn = 2048};
  return model;
}

// No two devices have the same size, free memory or context, so that nothing can be counted once
// for several.
Machine machine_of(std::int64_t devices) {
  Machine machine;
  machine.cpus = {0};
  machine.nodes = {{.id = 0, .cpus = {0}}};
  machine.memory_total = machine.memory_available = 1024 * kGiB;
  for (std::int64_t i = 0; i < devices; ++i) {
    Device device;
    device.name = "GPU";
    device.memory_total = 96 * kGiB - i * kMiB;
    device.memory_free = 95 * kGiB - 3 * i * kMiB;
    device.context = (500 + i % 97) * kMiB;
    device.compute_major = 12;
    device.multiprocessors = 188;
    machine.devices.push_back(device);
  }
  return machine;
}

struct Layout {
  std::int64_t tp = 8;
  std::int64_t dp = 1;
};

void measure(const ModelSpec& model, Layout layout, const std::vector<std::string>& extra,
             const char* what) {
  std::vector<std::string> flags = {fmt::format("--tp={}", layout.tp),
                                    fmt::format("--dp={}", layout.dp)};
  flags.insert(flags.end(), extra.begin(), extra.end());
  const Result<OptionSet> options =
      parse_options({.flags = flags, .environment = {}, .file = "/dev/null"});
  const Machine machine = machine_of(layout.tp * layout.dp);
  std::vector<double> milliseconds_each;
  std::string verdict;
  const int rounds = layout.dp > 1 ? 5 : 25;
  for (int round = 0; round < rounds && options; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    const Result<MemoryPlan> plan = plan_memory(machine, model, *options);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    milliseconds_each.push_back(took.count());
    verdict = !plan ? plan.error().message : plan->refusal ? "refused" : "fits";
  }
  if (milliseconds_each.empty()) return;
  std::sort(milliseconds_each.begin(), milliseconds_each.end());
  fmt::print(
      "{:>5} devices, tp {:>2} x dp {:>3}, {:<12} {:>9.3f} ms median, {:>9.3f} ms least ({})\n",
      layout.tp * layout.dp, layout.tp, layout.dp, what,
      milliseconds_each[milliseconds_each.size() / 2], milliseconds_each.front(), verdict);
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  using namespace plimsoll;
  ModelSpec model = kimi_shape();
  std::vector<std::string> assumed = {"--assume=weights=72GiB"};
  if (argc > 1) {
    Result<ModelSpec> read = read_model(argv[1]);
    if (!read) {
      fmt::print(stderr, "plan_bench: {}\n", read.error().message);
      return 1;
    }
    model = std::move(*read);
    assumed.clear();
  }
  std::vector<std::string> refused = assumed;
  refused.push_back("--mem-fraction-static=0.55");
  measure(model, {.tp = 8, .dp = 1}, assumed, "auto");
  measure(model, {.tp = 8, .dp = 1}, refused, "refused");
  measure(model, {.tp = 8, .dp = 64}, assumed, "auto");
  measure(model, {.tp = 16, .dp = 64}, assumed, "auto");
  measure(model, {.tp = 16, .dp = 64}, refused, "refused");
  return 0;
}
