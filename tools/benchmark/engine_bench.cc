// engine_bench: decode and prefill tokens/s of the engine alone: one rank, no other processes.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/cpu/cpu_backend.h"
#include "shared/base/clock.h"
#include "shared/base/json.h"
#include "shared/machine/device_query.h"
#include "shared/memory/memory_plan.h"
#include "shared/model/gguf.h"
#include "shared/options/option_parse.h"
#include "worker/rank.h"

namespace plimsoll {
namespace {

constexpr const char* kUsage =
    "usage: engine_bench --model FILE [--threads N] [--test decode|prefill|prompt] [--tokens N] "
    "[--batch N] [--cpu-path PATH] [--activations int8|f32] [--json]\n";
constexpr Tokens kDecodeWarmUp = 4;
constexpr Tokens kPromptChunk = 512;  // of `prompt`, which has a rate of its last chunk, too

struct Arguments {
  std::vector<std::pair<std::string, std::string>> options;  // for change_options
  std::string test = "decode";
  Tokens tokens = 128;
  std::int64_t batch = 1;  // sequences that decode side by side
  bool json = false;
};

std::optional<Arguments> parse(std::span<char*> words) {
  Arguments result;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string name = words[i];
    if (name == "--json") {
      result.json = true;
      continue;
    }
    if (i + 1 == words.size()) return std::nullopt;
    const std::string value = words[++i];
    if (name == "--test" && (value == "decode" || value == "prefill" || value == "prompt")) {
      result.test = value;
    } else if (name == "--tokens") {
      result.tokens = std::atoll(value.c_str());
    } else if (name == "--batch") {
      result.batch = std::atoll(value.c_str());
    } else if (name == "--model" || name == "--threads" || name == "--cpu-path" ||
               name == "--activations") {
      result.options.emplace_back(name.substr(2), value);
    } else {
      return std::nullopt;
    }
  }
  if (result.tokens < 1 || result.batch < 1) return std::nullopt;
  return result;
}

Result<std::unique_ptr<Rank>> load(const Arguments& arguments) {
  OptionSet set = TRY(change_options({}, arguments.options));
  const Tokens rows = std::max<Tokens>(arguments.tokens, arguments.batch);
  set.values.chunked_prefill_size =
      arguments.test == "prompt" ? std::min(rows, kPromptChunk) : rows;
  const GgufFile file = TRY(GgufFile::open(set.values.model));
  const ModelSpec spec = TRY(read_model_spec(file));
  const Machine machine = TRY(query_machine());
  const MemoryPlan plan = TRY(plan_memory(machine, spec, set));
  if (plan.refusal) return *plan.refusal;
  CpuBackendOptions backend;
  backend.threads = static_cast<int>(plan.ranks[0].threads);
  backend.cpus = plan.ranks[0].cpus;
  backend.path = parse_cpu_path(set.values.cpu_path);
  backend.activations = set.values.activations == "f32" ? Activations::f32 : Activations::int8;
  Rank::Setup setup{.model_path = set.values.model,
                    .shards = {.ranks = {plan.ranks[0].shard}},
                    .plan = plan.ranks[0],
                    .limits = {.rows_max = plan.decisions.step_tokens_max,
                               .logit_rows_max = plan.decisions.logit_rows_max,
                               .context_length = plan.decisions.context_length},
                    .backend = TRY(make_cpu_backend(backend)),
                    .collective = make_single_collective()};
  auto rank = TRY(Rank::load(std::move(setup), [](const LoadProgress&) {}));
  const Blocks blocks = ceil_div(arguments.tokens + kDecodeWarmUp, kKvBlockTokens);
  TRY(rank->engine().allocate_kv(
      {.blocks = blocks * arguments.batch, .sequences_max = arguments.batch}));
  return rank;
}

// One step: each sequence of the batch has `rows` tokens more, from `position`.
StepPlan step_of(const StepRunner& engine, std::int64_t batch, Tokens rows, Tokens position) {
  StepPlan plan;
  const auto blocks = static_cast<std::int32_t>(engine.step_limits().kv_blocks / batch);
  for (std::int64_t i = 0; i < batch; ++i) {
    plan.sequences.push_back({.row = static_cast<std::int32_t>(plan.ids.size()),
                              .tokens = static_cast<std::int32_t>(rows),
                              .position = static_cast<std::int32_t>(position),
                              .blocks_begin = static_cast<std::int32_t>(plan.blocks.size()),
                              .blocks_count = blocks});
    for (std::int32_t block = 0; block < blocks; ++block) {
      plan.blocks.push_back(static_cast<std::int32_t>(i) * blocks + block);
    }
    for (Tokens row = 0; row < rows; ++row) {
      plan.ids.push_back(static_cast<std::int32_t>((17 + 7 * (position + row)) % 250));
    }
    plan.logit_rows.push_back(static_cast<std::int32_t>(plan.ids.size()) - 1);
  }
  return plan;
}

// Tokens per second.
struct Speed {
  double all = 0;
  double last = 0;  // of the last chunk of a prompt
};

// A whole prompt, chunk after chunk: the last ones attend to all before them.
Result<Speed> prompt_speed(StepRunner& engine, Tokens tokens) {
  TRY(engine.run(step_of(engine, 1, std::min(tokens, kPromptChunk), 0)));
  const TimePoint begin = now();
  TimePoint chunk_begin = begin;
  Tokens chunk = 0;
  for (Tokens position = 0; position < tokens; position += chunk) {
    chunk_begin = now();
    chunk = std::min(kPromptChunk, tokens - position);
    const StepPlan plan = step_of(engine, 1, chunk, position);
    TRY(check_step(plan, engine.step_limits()));
    TRY(engine.run(plan));
  }
  const TimePoint end = now();
  return Speed{.all = static_cast<double>(tokens) / to_seconds(end - begin),
               .last = static_cast<double>(chunk) / to_seconds(end - chunk_begin)};
}

Result<Speed> tokens_per_second(Rank& rank, const Arguments& arguments) {
  StepRunner& engine = rank.engine();
  if (arguments.test == "prompt") return prompt_speed(engine, arguments.tokens);
  if (arguments.test == "prefill") {
    const StepPlan plan = step_of(engine, 1, arguments.tokens, 0);
    TRY(check_step(plan, engine.step_limits()));
    TRY(engine.run(plan));
    const TimePoint begin = now();
    TRY(engine.run(plan));
    return Speed{.all = static_cast<double>(arguments.tokens) / to_seconds(now() - begin)};
  }
  TimePoint begin = now();
  for (Tokens position = 0; position < kDecodeWarmUp + arguments.tokens; ++position) {
    if (position == kDecodeWarmUp) begin = now();
    const StepPlan plan = step_of(engine, arguments.batch, 1, position);
    TRY(check_step(plan, engine.step_limits()));
    TRY(engine.run(plan));
  }
  return Speed{.all = static_cast<double>(arguments.tokens * arguments.batch) /
                      to_seconds(now() - begin)};
}

// What a token costs: bytes of matrices that are read for it, and multiply-adds.
struct Work {
  Bytes bytes = 0;            // with the head
  std::int64_t products = 0;  // of the layers' matrices
  std::int64_t head_products = 0;
  std::int64_t attention = 0;  // products for each token that it attends to
};

Work work_of(const ModelSpec& spec) {
  Work work{.attention = 2 * spec.layers * spec.heads * spec.head_dim};
  for (const auto& [name, weight] : spec.weights.all()) {
    if (weight.shape.size() != 2) continue;
    const std::int64_t count = weight.rows() * weight.cols();
    const bool is_head = name == (spec.tied_head ? "token_embd.weight" : "output.weight");
    if (name == "token_embd.weight" && !is_head) continue;
    work.bytes += weight.bytes;  // packed ones are as large
    (is_head ? work.head_products : work.products) += count;
  }
  return work;
}

Status run(const Arguments& arguments) {
  const TimePoint begin = now();
  const std::unique_ptr<Rank> rank = TRY(load(arguments));
  const double load_seconds = to_seconds(now() - begin);
  const Speed speed = TRY(tokens_per_second(*rank, arguments));
  if (arguments.json) {
    Json result = Json::object();
    result.set("test", arguments.test);
    result.set("tokens", arguments.tokens);
    result.set("batch", arguments.batch);
    result.set("backend", rank->description());
    result.set("load_seconds", load_seconds);
    result.set("tokens_per_second", speed.all);
    if (speed.last > 0) result.set("last_tokens_per_second", speed.last);
    const Work work = work_of(rank->spec());
    result.set("bytes_per_token", work.bytes);
    result.set("products_per_token", work.products);
    result.set("head_products", work.head_products);
    result.set("attention_products", work.attention);
    std::printf("%s\n", dump_json(result).c_str());
  } else {
    std::printf("%s\nload %.3f s\n%s %.1f tokens/s\n", rank->description().c_str(), load_seconds,
                arguments.test.c_str(), speed.all);
  }
  return {};
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  const auto arguments = plimsoll::parse(std::span<char*>(argv, static_cast<std::size_t>(argc)));
  if (!arguments) {
    std::fputs(plimsoll::kUsage, stderr);
    return 2;
  }
  const plimsoll::Status status = plimsoll::run(*arguments);
  if (status) return 0;
  std::fprintf(stderr, "engine_bench: %s\n", status.error().message.c_str());
  return plimsoll::exit_code(status.error().code);
}
