// Rope: the cos and sin tables of rotary embeddings, computed once at load.
#pragma once

#include <span>

#include "kernels/backend.h"
#include "shared/base/units.h"
#include "shared/model/model_spec.h"

namespace plimsoll {

// By kind of layer; the same table where both rotate alike.
struct RopeTables {
  RopeTable full;
  RopeTable window;  // of layers with a window
};

// Bytes of cos and sin for that many positions, of all tables.
Bytes rope_table_bytes(const ModelSpec& spec, Tokens positions);

// Fills `memory` (rope_table_bytes long): angle(position, j) = position / rope_scale *
// rope_base^(-2j / rope_dim) / freqs[j], in double. `freqs` may be null (all 1). Layers with a base
// of their own have neither scale nor freqs.
RopeTables make_rope_tables(const ModelSpec& spec, Tokens positions, const float* freqs,
                            std::span<std::byte> memory);

}  // namespace plimsoll
