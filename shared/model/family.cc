#include "shared/model/family.h"

#include <algorithm>
#include <array>

namespace plimsoll {
namespace {

using namespace feature;  // NOLINT(google-build-using-namespace): constants of this table

constexpr ConfigDefaults kQwen3 = {.head_dim = 128};
constexpr ConfigDefaults kGemma3 = {.heads = 8,
                                    .kv_heads = 4,
                                    .head_dim = 256,
                                    .vocab = 262'208,
                                    .context_length = 131'072,
                                    .tied_head = true};
constexpr Features kDeepSeek = kLatent | kScoreBias;

constexpr std::array kFamilies = {
    Family{"llama", "llama"},
    Family{"mistral", "llama", 0, WindowRule::all_layers},
    Family{"mixtral", "llama", kMixtralNames, WindowRule::all_layers, "num_local_experts"},
    Family{"qwen2", "qwen2", kQkvBias, WindowRule::where_switched},
    Family{"qwen2_moe", "qwen2moe", kQkvBias | kSharedSingular | kSharedGate | kLinearRouter,
           WindowRule::where_switched, "num_experts"},
    Family{"qwen3", "qwen3", kQkNorm, WindowRule::where_switched, "", kQwen3},
    Family{"qwen3_moe", "qwen3moe", kQkNorm | kLinearRouter, WindowRule::where_switched,
           "num_experts", kQwen3},
    Family{"gemma3_text", "gemma3", kQkNorm | kSandwichNorms, WindowRule::pattern, "", kGemma3},
    Family{"deepseek_v2", "deepseek2", kLatent, WindowRule::never, "n_routed_experts"},
    Family{"deepseek_v3", "deepseek2", kDeepSeek, WindowRule::never, "n_routed_experts"},
    Family{"kimi_k2", "deepseek2", kDeepSeek, WindowRule::never, "n_routed_experts"},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

const Family* find_family(std::string_view model_type) {
  const auto* found = std::ranges::find(kFamilies, model_type, &Family::model_type);
  return found == kFamilies.end() ? nullptr : found;
}

const Family* find_gguf_family(std::string_view architecture) {
  const auto* found = std::ranges::find(kFamilies, architecture, &Family::architecture);
  return found == kFamilies.end() ? nullptr : found;
}

}  // namespace plimsoll
