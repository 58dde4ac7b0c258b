#include "shared/memory/foreign_log/log_advice.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "shared/memory/foreign_log/sglang_rules.h"
#include "shared/memory/memory_terms.h"

namespace plimsoll {
namespace {

constexpr Tokens kShortRequest = 4096;   // the least context worth a server
constexpr Bytes kCaptureCushion = kGiB;  // beyond what an allocation lacked

class Adviser {
 public:
  Adviser(const LogCase& c, LogExplanation& out) : c_(c), out_(out) {}

  void advise_all() {
    const bool is_in_words = c_.log.end == ForeignEnd::no_kv || c_.log.end == ForeignEnd::short_kv;
    if (!c_.kv && c_.log.kv_tokens && *c_.log.kv_tokens > 0 && !is_in_words) {
      why(fmt::format("KV holds {} tokens.", grouped(*c_.log.kv_tokens)));
    }
    switch (c_.log.end) {
      case ForeignEnd::unknown:
        unfinished();
        break;
      case ForeignEnd::served:
        served();
        break;
      case ForeignEnd::no_weights:
        no_weights();
        break;
      case ForeignEnd::no_profile:
        no_profile();
        break;
      case ForeignEnd::no_pool:
        no_pool();
        break;
      case ForeignEnd::no_kv:
        no_kv();
        break;
      case ForeignEnd::short_kv:
        short_kv();
        break;
      case ForeignEnd::no_graphs:
        no_graphs();
        break;
      case ForeignEnd::no_step:
        no_step();
        break;
      case ForeignEnd::neighbour:
        neighbour();
        break;
      case ForeignEnd::unbalanced:
        unbalanced();
        break;
      case ForeignEnd::other:
        why("The error is not about memory; the figures above show how far the start had come.");
        break;
    }
  }

 private:
  void why(std::string sentence) { out_.why.push_back(std::move(sentence)); }
  void advise(std::string change, std::string reason) {
    out_.advice.push_back({std::move(change), std::move(reason)});
  }

  // "0.770 is the smallest that leaves any KV at all (0.09 GiB, about 1,375 tokens)".
  void advise_raise() {
    const FractionWindow& window = out_.window;
    if (!c_.is_sglang() && c_.kv && !window.any_kv) {
      advise(fmt::format("raise {}", c_.flag),
             fmt::format("{} GiB more of the device would be the least",
                         gib_text(-std::min<Bytes>(*c_.kv, 0))));
      return;
    }
    if (!window.any_kv || *window.any_kv > 1) {
      advise("use more devices (a larger tp), smaller weights, or offload some",
             c_.kv ? fmt::format("even with {} 1 nothing is left for KV", c_.flag)
                   : "the log does not say how much is free");
      return;
    }
    std::string words = "it is the smallest with any KV at all";
    if (c_.is_sglang()) {
      const Bytes kv = sglang_kv(*c_.base, *c_.left, *window.any_kv);
      words += fmt::format(" ({}{})", format_bytes(kv), c_.tokens_text(kv));
    }
    advise(fmt::format("raise {} to {:.3f} or more", c_.flag, *window.any_kv), words);
    if (c_.kv_bytes_per_token && c_.is_sglang()) {
      const auto kv = static_cast<Bytes>(std::ceil(*c_.kv_bytes_per_token * kShortRequest));
      if (const auto fraction = sglang_fraction_for(*c_.base, *c_.left, kv)) {
        advise(fmt::format("{} {:.3f} or more", c_.flag, *fraction),
               fmt::format("there one request of {} tokens fits", grouped(kShortRequest)));
      }
    }
    if (window.one_request && *window.one_request <= 1) {
      advise(fmt::format("{} {:.3f} or more", c_.flag, *window.one_request),
             fmt::format("there one request of the full context{} fits",
                         c_.context ? fmt::format(", {} tokens,", grouped(*c_.context)) : ""));
    }
  }

  void advise_automatic() {
    if (!c_.is_sglang() || !c_.base || !c_.left) return;
    const auto choice = sglang_choice(c_.log);
    if (!choice) return;
    const Bytes kv = sglang_kv(*c_.base, *c_.left, choice->fraction);
    std::string words = fmt::format("SGLang by itself {}: KV {}{}", choice->words, format_bytes(kv),
                                    c_.tokens_text(kv));
    if (c_.log.model_type.ends_with("ForConditionalGeneration") && !c_.log.has_fraction_table) {
      words += "; of a model with a vision tower it takes 5 to 20 % off";
    }
    if (kv <= 0) {
      // Of the device's total it would be a little more.
      if (sglang_kv(*c_.base, *c_.left, choice->most) <= 0) {
        why(words + ". So leaving the option out would not do.");
      }
      return;
    }
    const ForeignArg* arg = c_.log.arg("mem-fraction-static");
    const bool is_given = arg == nullptr || arg->origin != ArgOrigin::automatic;
    if (is_given) advise("or leave --mem-fraction-static out", words);
  }

  void no_kv() {
    if (c_.kv && c_.base && c_.left) {
      why(sglang_no_kv_reason(c_.flag + " " + c_.value_with_origin(),
                              ratio(*c_.base - *c_.left, *c_.base), *c_.kv));
      if (*c_.kv > 32 * kMiB)
        return advise(fmt::format("raise {}", c_.flag), "the rest then fits too");
    } else if (c_.kv) {
      why(
          fmt::format("{} {} is how much of the device may be used at all; weights and the trial "
                      "step need {} GiB more than that before there is any KV.",
                      c_.flag, c_.value_with_origin(), gib_text(-std::min<Bytes>(*c_.kv, 0))));
    } else {
      why(fmt::format(
          "Weights fit, and {}{} leaves nothing for KV{}. The log does not say how much "
          "was free, so the smallest value that works cannot be computed from it.",
          c_.flag, c_.log.fraction ? " " + c_.value_with_origin() : "",
          c_.log.kv_tokens
              ? fmt::format(" ({} tokens by its own account)", grouped(*c_.log.kv_tokens))
              : ""));
      advise(fmt::format("raise {}", c_.flag), "it is what weights and KV may fill together");
      return;
    }
    advise_raise();
    advise_automatic();
    if (!c_.is_sglang()) {
      const Bytes others = c_.log.total.value_or(0) - c_.log.free_at_start.value_or(0);
      if (c_.log.counts_others && c_.log.total && c_.log.free_at_start &&
          others > *c_.log.total / 8) {
        why(
            fmt::format("{} of the {} were in use before it loaded anything, and count as its own: "
                        "end the processes that hold them (nvidia-smi names them).",
                        format_bytes(others), format_bytes(*c_.log.total)));
      }
      advise("or lower --max-num-batched-tokens and --max-num-seqs", "the trial step shrinks");
      if (out_.window.most && out_.window.any_kv && *out_.window.any_kv > *out_.window.most) {
        why(fmt::format(
            "Only {:.3f} of the device was free at the start: raising it alone does not "
            "help.",
            *out_.window.most));
      }
    }
  }

  void short_kv() {
    why(fmt::format(
        "KV{} holds {} of the {} that one request of the full context needs.",
        c_.kv ? fmt::format(" of {} GiB", gib_text(*c_.kv)) : "",
        c_.log.kv_needed && c_.kv
            ? fmt::format("{:.0f} %", std::floor(100 * ratio(*c_.kv, *c_.log.kv_needed)))
        : c_.log.kv_tokens ? fmt::format("{} tokens", grouped(*c_.log.kv_tokens))
                           : std::string("less"),
        c_.log.kv_needed ? fmt::format("{} GiB", gib_text(*c_.log.kv_needed))
        : c_.log.context ? fmt::format("{} tokens", grouped(*c_.log.context))
                         : std::string("amount")));
    if (c_.log.context_max) {
      advise(fmt::format("lower --max-model-len to {} or less", grouped(*c_.log.context_max)),
             "that much fits as it is");
    }
    if (out_.window.one_request) {
      const bool fits = *out_.window.one_request <= out_.window.most.value_or(1.0);
      if (fits) {
        advise(fmt::format("raise {} to {:.3f} or more", c_.flag, *out_.window.one_request),
               "then one request of the full context fits");
      } else {
        why(fmt::format("Raising {} does not help: it would have to be {:.3f}.", c_.flag,
                        *out_.window.one_request));
      }
    } else if (c_.log.has_kv_in_bytes()) {
      advise("raise --kv-cache-memory-bytes", "KV is what it gives, whatever the share");
    } else {
      advise(fmt::format("raise {}", c_.flag),
             c_.kv && c_.log.kv_needed
                 ? fmt::format(
                       "KV needs {} more of each device; the log does not say how large one is",
                       format_bytes(*c_.log.kv_needed - *c_.kv))
                 : "more of the device for KV");
    }
    advise_half();
  }

  // A token of half the bytes, where that is enough and not so already.
  void advise_half() {
    const ForeignArg* type = c_.log.arg("kv-cache-dtype");
    if (type != nullptr && (type->value.starts_with("fp8") || type->value.starts_with("int8"))) {
      return;
    }
    const auto needed = c_.one_request();
    const bool is_known = needed && c_.kv;
    if (is_known ? *needed / 2 > *c_.kv
                 : c_.log.kv_tokens && c_.context && *c_.log.kv_tokens < *c_.context / 2) {
      return;
    }
    advise("--kv-cache-dtype fp8",
           is_known ? fmt::format("one request then needs {}", format_bytes(*needed / 2))
                    : std::string("a token takes half the bytes"));
  }

  void say_oom() {
    if (!c_.log.oom) return;
    const OomLine& oom = *c_.log.oom;
    if (oom.tried && oom.free) {
      why(fmt::format("{} were asked for and {} were free{}.", format_bytes(*oom.tried),
                      format_bytes(*oom.free),
                      oom.total ? fmt::format(" of {}", format_bytes(*oom.total)) : ""));
    }
    if (oom.tried && oom.free && *oom.tried < *oom.free) {
      why("So the device had enough: a limit on this process refused it (a share of the device "
          "that "
          "PyTorch was given, a virtual GPU, WSL).");
    }
    if (oom.reserved_unallocated && oom.tried && *oom.reserved_unallocated > *oom.tried) {
      why(
          fmt::format("PyTorch held {} that it could not use: fragmentation "
                      "(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True).",
                      format_bytes(*oom.reserved_unallocated)));
    }
  }

  // How far the fraction must go down for what an allocation lacked.
  void advise_lower() {
    const std::optional<Bytes> whole = c_.is_sglang() ? c_.base : c_.log.total;
    const Bytes lacked = c_.log.oom && c_.log.oom->tried ? *c_.log.oom->tried + kCaptureCushion
                                                         : 2 * kCaptureCushion;
    if (!c_.log.fraction || !whole || *whole <= 0) {
      advise(fmt::format("lower {}", c_.flag), "it leaves more outside KV");
      return;
    }
    const double lower = floor3(*c_.log.fraction - ratio(lacked, *whole));
    const bool is_empty = out_.window.any_kv && lower < *out_.window.any_kv;
    if (is_empty) {
      why(fmt::format(
          "Lowering {} to {:.3f} would leave no KV (the least is {:.3f}): the window is "
          "empty as it is.",
          c_.flag, lower, *out_.window.any_kv));
    } else {
      advise(fmt::format("lower {} from {} to {:.3f}", c_.flag, c_.value_with_origin(), lower),
             fmt::format("it leaves {} more outside KV", format_bytes(lacked)));
    }
  }

  // Whether what failed is the second model, whose weights come when KV has been taken.
  bool is_of_draft() const {
    const auto& ranks = c_.log.ranks;
    const auto said = std::ranges::find(ranks, c_.log.end_rank, &ForeignRank::name);
    return said != ranks.end() && said->draft_began;
  }
  void no_draft() {
    why("Weights and KV were in place, and graphs where they come first; the weights of the draft "
        "model, which are loaded after KV, did not fit beside them.");
    advise_lower();
    advise("leave the draft model out (--speculative-algorithm)",
           "its weights and KV are not needed then");
  }

  void no_graphs() {
    say_oom();
    if (is_of_draft()) return no_draft();
    why("Weights and KV were in place; what is left outside KV did not suffice for graph captures "
        "and warm-up. It is the opposite of having too little for KV.");
    advise_lower();
    const ForeignArg* batch = c_.log.arg("cuda-graph-max-bs");
    advise(c_.is_sglang() ? fmt::format("lower --cuda-graph-max-bs{}",
                                        batch != nullptr ? " from " + batch->value : "")
                          : std::string("lower --max-num-seqs or the largest capture size"),
           "fewer and smaller graphs");
    advise(c_.is_sglang() ? "--disable-cuda-graph" : "--enforce-eager",
           "to see that it is the graphs");
  }

  void no_step() {
    say_oom();
    why("It served, and then a step needed more than was left outside KV.");
    advise_lower();
    advise(c_.is_sglang() ? "lower --chunked-prefill-size" : "lower --max-num-batched-tokens",
           "activations grow with the tokens of a step; log-probabilities of prompts too");
    advise(c_.is_sglang() ? "lower --max-running-requests" : "lower --max-num-seqs",
           "logits and sampling grow with it");
  }

  void no_weights() {
    say_oom();
    why(fmt::format("Weights did not fit: {} has no part in it yet.", c_.flag));
    advise("use more devices (a larger tp or pp)", "each rank then holds less");
    advise("use a quantized model, or offload weights to the host",
           "weights are what is too large");
  }

  void no_profile() {
    say_oom();
    why("Weights fit; the trial step that measures activations before KV is sized did not.");
    advise("lower --max-num-batched-tokens or --max-num-seqs", "the trial step has their size");
    advise("use more devices (a larger tp)", "each rank then holds less");
  }

  void no_pool() {
    say_oom();
    why("Weights fit; what the fraction gives KV, and the pools beside it, was more than was "
        "free.");
    advise_lower();
    advise("use a quantized model or more devices (a larger tp)", "each rank then holds less");
  }

  void neighbour() {
    say_oom();
    if (c_.log.held_by_others > 0) {
      why(fmt::format("Other processes held {} of this device.",
                      format_bytes(c_.log.held_by_others)));
    } else if (c_.log.free_at_start && c_.log.total) {
      why(fmt::format("Of {} only {} were free when it began: {} are held by others.",
                      format_bytes(*c_.log.total), format_bytes(*c_.log.free_at_start),
                      format_bytes(*c_.log.total - *c_.log.free_at_start)));
    } else {
      why("Free memory changed while it was measured: another process gave some back.");
      return advise("wait until that process is gone, then start again",
                    "nothing else has to be changed");
    }
    advise("end what holds the memory (nvidia-smi names its process), then start again",
           "often a worker of an earlier launch");
    if (!c_.is_sglang() && out_.window.most) {
      advise(fmt::format("or lower {} to {:.3f} or less", c_.flag, *out_.window.most),
             "that much of the device was free");
    }
  }

  void unbalanced() {
    if (c_.base && c_.log.free_at_start) {
      why(
          fmt::format("One device had {} free and another {}; SGLang sizes all by the least and "
                      "refuses below 90 %.",
                      format_bytes(*c_.base), format_bytes(*c_.log.free_at_start)));
    }
    advise("end what holds memory on the fuller device, or choose even devices",
           "often a worker of an earlier launch");
  }

  void unfinished() {
    const ForeignRank* rank = c_.log.tightest();
    const bool is_loaded = rank != nullptr && (rank->weights || rank->left || c_.log.kv_tokens);
    why(!is_loaded ? "The log ends before weights were loaded."
                   : "The log ends before the server was ready, and names no error.");
    if (c_.kv && *c_.kv <= 0) {
      why("By its figures nothing would be left for KV.");
      advise_raise();
      advise_automatic();
    }
  }

  void served() {
    const FractionWindow& window = out_.window;
    if (window.any_kv && *window.any_kv <= 1) {
      why(fmt::format(
          "{} {}: {:.3f} is the smallest with any KV at all{}{}.", c_.flag, c_.value_with_origin(),
          *window.any_kv,
          window.one_request && *window.one_request <= 1
              ? fmt::format(", {:.3f} the smallest that holds one request of {} tokens",
                            *window.one_request,
                            c_.context ? grouped(*c_.context) : std::string("?"))
              : "",
          !window.most ? ""
          : c_.is_sglang()
              ? fmt::format(", about {:.3f} the largest before nothing is left outside KV",
                            *window.most)
              : fmt::format(", {:.3f} all that was free at the start", *window.most)));
    }
    // Of layers that look back a window only, fewer tokens hold a request.
    const bool holds_one = c_.log.concurrency.value_or(0) >= 1;
    if (c_.context && c_.log.kv_tokens && *c_.log.kv_tokens < *c_.context && !holds_one) {
      why(
          fmt::format("KV holds {} tokens, less than one request of the context length {}: longer "
                      "requests are refused or cut.",
                      grouped(*c_.log.kv_tokens), grouped(*c_.context)));
    }
    const ForeignArg* batch = c_.log.arg("cuda-graph-max-bs");
    if (c_.graphs && batch != nullptr) {
      why(fmt::format("Graphs{} took {} GiB.",
                      batch->value == "None" ? "" : " up to batch " + batch->value,
                      gib_text(*c_.graphs)));
    }
  }

  const LogCase& c_;
  LogExplanation& out_;
};

}  // namespace

void add_log_advice(const LogCase& c, LogExplanation& explanation) {
  Adviser(c, explanation).advise_all();
}

}  // namespace plimsoll
