#include "worker/graph/family.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace plimsoll {
namespace {

float inverse_root(std::int64_t size) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(size)));
}

float one(const ModelSpec&) { return 1; }
float by_head_dim(const ModelSpec& spec) { return inverse_root(spec.head_dim); }
float root_of_hidden(const ModelSpec& spec) { return std::sqrt(static_cast<float>(spec.hidden)); }

// GGUF does not keep query_pre_attn_scalar: it is the head dimension but in the largest model.
float of_gemma3(const ModelSpec& spec) {
  constexpr std::int64_t kLayersOf27B = 62;
  return inverse_root(spec.layers == kLayersOf27B ? spec.hidden / spec.heads : spec.head_dim);
}

constexpr DecoderFamily plain(std::string_view architecture) {
  return {.architecture = architecture, .attention_scale = by_head_dim, .embedding_scale = one};
}

constexpr std::array kFamilies = {
    plain("llama"),
    plain("qwen2"),
    plain("qwen3"),
    DecoderFamily{.architecture = "gemma3",
                  .attention_scale = of_gemma3,
                  .gate = Epilogue::gelu_mul,
                  .embedding_scale = root_of_hidden},
};

}  // namespace

const DecoderFamily* find_decoder_family(std::string_view architecture) {
  const auto* found = std::ranges::find(kFamilies, architecture, &DecoderFamily::architecture);
  return found == kFamilies.end() ? nullptr : found;
}

}  // namespace plimsoll
