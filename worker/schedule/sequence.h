// Sequence: one request inside the leader: its tokens, how many of them are computed, its blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shared/base/units.h"
#include "shared/control/messages.h"
#include "worker/kv/block_table.h"

namespace plimsoll {

struct Sequence {
  std::uint64_t id = 0;              // the leader's own, grows with arrival
  std::vector<std::int32_t> tokens;  // the prompt, then what was generated
  Tokens prompt_tokens = 0;
  Sampling sampling;
  Tokens tokens_max = 0;  // of `tokens`: prompt and max_tokens, cut at the context length

  Tokens computed = 0;       // leading tokens whose K and V are in its blocks
  Tokens cached = 0;         // of the prompt, found computed when it was first admitted
  Tokens rows_reported = 0;  // leading prompt rows whose log-probabilities were given out
  BlockTable blocks;

  Tokens size() const { return static_cast<Tokens>(tokens.size()); }
  Tokens generated() const { return size() - prompt_tokens; }
  std::span<const std::int32_t> output() const {
    return std::span(tokens).subspan(static_cast<std::size_t>(prompt_tokens));
  }

  bool samples() const { return tokens_max > prompt_tokens; }
  // Tokens that must be computed before the next token can be sampled; without sampling, those
  // whose logits say something about a token of the prompt.
  Tokens target() const { return samples() ? size() : prompt_tokens - 1; }
  Tokens remaining() const { return target() - computed; }

  // Leading tokens that may come from other sequences' blocks: all whose logits nobody needs.
  std::span<const std::int32_t> reusable() const {
    const bool rows_missing = sampling.prompt_logprobs && rows_reported < prompt_tokens - 1;
    const Tokens most = rows_missing ? std::min(rows_reported, target() - 1) : target() - 1;
    return std::span(tokens).first(static_cast<std::size_t>(most));
  }

  // Whether the logits of the row at this position are needed: to sample, or for the prompt token
  // after it.
  bool needs_logits(Tokens position) const {
    if (samples() && position == target() - 1) return true;
    return sampling.prompt_logprobs && position >= rows_reported && position < prompt_tokens - 1;
  }
};

// Why a sequence ended, in the words of TokenEvent::finish; empty while it goes on.
enum class Finish { none, stop, length, error };

}  // namespace plimsoll
