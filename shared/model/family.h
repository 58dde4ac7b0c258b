// Family: what differs between the model families that can be described: a row each.
//
// A row says how a family's config.json is read and which weights it has. Which families the
// worker's graph can run is model_spec.h's to say.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "shared/model/weight_table.h"

namespace plimsoll {

// Which layers of a family attend to a window only.
enum class WindowRule : std::uint8_t {
  never,
  all_layers,      // where the config has a sliding_window (Mistral)
  where_switched,  // where use_sliding_window is true (Qwen)
  pattern,         // every n-th layer is full (Gemma 3)
};

// What a config.json may leave out, since the model's code has it. 0: it must be there.
struct ConfigDefaults {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t head_dim = 0;  // 0: hidden / heads
  std::int64_t vocab = 0;
  std::int64_t context_length = 0;
  bool tied_head = false;
};

struct Family {
  std::string_view model_type;    // config.json's
  std::string_view architecture;  // GGUF's
  Features features = 0;          // whatever the config says
  WindowRule window = WindowRule::never;
  std::string_view expert_count = {};  // config.json's key for it; "" is a dense family
  ConfigDefaults defaults = {};
};

std::span<const Family> families();
const Family* find_family(std::string_view model_type);
const Family* find_gguf_family(std::string_view architecture);

}  // namespace plimsoll
