// explain_log(): the arithmetic of a log, and what follows from it.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "shared/memory/foreign_log/log_report.h"
#include "shared/memory/foreign_log/log_rows.h"
#include "shared/memory/foreign_log/sglang_rules.h"
#include "shared/memory/memory_terms.h"

namespace plimsoll {
namespace {

constexpr double kThousand = 1000;
constexpr Tokens kShortRequest = 4096;   // the least context worth a server
constexpr Bytes kCaptureCushion = kGiB;  // beyond what an allocation lacked

std::string gib(Bytes bytes) { return gib_text(bytes); }
double floor3(double value) { return std::floor(value * kThousand + 1e-9) / kThousand; }
double ceil3(double value) { return std::ceil(value * kThousand - 1e-9) / kThousand; }
double ratio(Bytes part, Bytes whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

// Collects one explanation.
class Explainer {
 public:
  Explainer(const ForeignLog& log, const LogFigures& figures, LogExplanation& out)
      : log_(log),
        out_(out),
        per_token_(figures.kv_bytes_per_token),
        context_(figures.context),
        base_(figures.base),
        left_(figures.left),
        kv_(figures.kv),
        flag_(log.server == ForeignServer::sglang ? "--mem-fraction-static"
                                                  : "--gpu-memory-utilization") {}

  void explain() {
    if (log_.server == ForeignServer::sglang) {
      sglang_window();
    } else {
      vllm_window();
    }
    switch (log_.end) {
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

  std::string tokens_of(Bytes kv) const { return about_tokens(kv, per_token_); }
  std::string fraction_text() const {
    return log_.fraction ? fmt::format("{}", *log_.fraction) : "?";
  }
  std::string value_with_origin() const {
    const ForeignArg* arg = log_.arg(flag_.substr(2));
    const std::string origin = arg == nullptr ? "" : arg_origin_name(arg->origin);
    return origin.empty() ? fraction_text() : fmt::format("{} ({})", fraction_text(), origin);
  }
  std::optional<Bytes> one_request() const {
    if (log_.kv_needed) return log_.kv_needed;
    if (!per_token_ || !context_) return {};
    return static_cast<Bytes>(std::ceil(*per_token_ * static_cast<double>(*context_)));
  }

  void sglang_window() {
    if (!base_ || !left_) return;
    out_.window.any_kv = sglang_fraction_for(*base_, *left_, 1);
    if (const auto needed = one_request()) {
      out_.window.one_request = sglang_fraction_for(*base_, *left_, *needed);
    }
    out_.window.automatic = sglang_auto_fraction(log_);
    const ForeignRank* rank = log_.tightest();
    if (log_.fraction && rank->spare && log_.became_ready) {
      out_.window.most = floor3(std::min(1.0, *log_.fraction + ratio(*rank->spare, *base_)));
    }
  }

  void vllm_window() {
    if (log_.total && log_.free_at_start && *log_.total > 0) {
      out_.window.most = floor3(ratio(*log_.free_at_start, *log_.total));
    }
    if (!log_.total || !log_.fraction || !kv_ || *log_.total <= 0) return;
    out_.window.any_kv = ceil3(*log_.fraction - ratio(*kv_ - 1, *log_.total));
    if (const auto needed = one_request()) {
      out_.window.one_request = ceil3(*log_.fraction + ratio(*needed - *kv_, *log_.total));
    }
  }

  // "0.770 is the smallest that leaves any KV at all (0.09 GiB, about 1,375 tokens)".
  void advise_raise() {
    const FractionWindow& window = out_.window;
    if (log_.server == ForeignServer::vllm && kv_ && !window.any_kv) {
      advise(fmt::format("raise {}", flag_),
             fmt::format("{} GiB more of the device would be the least",
                         gib(-std::min<Bytes>(*kv_, 0))));
      return;
    }
    if (!window.any_kv || *window.any_kv > 1) {
      advise("use more devices (a larger tp), smaller weights, or offload some",
             kv_ ? fmt::format("even with {} 1 nothing is left for KV", flag_)
                 : "the log does not say how much is free");
      return;
    }
    std::string words = "it is the smallest with any KV at all";
    if (log_.server == ForeignServer::sglang) {
      const Bytes kv = sglang_kv(*base_, *left_, *window.any_kv);
      words += fmt::format(" ({} GiB{})", gib(kv), tokens_of(kv));
    }
    advise(fmt::format("raise {} to {:.3f} or more", flag_, *window.any_kv), words);
    if (per_token_ && log_.server == ForeignServer::sglang) {
      const auto kv = static_cast<Bytes>(std::ceil(*per_token_ * kShortRequest));
      if (const auto fraction = sglang_fraction_for(*base_, *left_, kv)) {
        advise(fmt::format("{} {:.3f} or more", flag_, *fraction),
               fmt::format("there one request of {} tokens fits", grouped(kShortRequest)));
      }
    }
    if (window.one_request && *window.one_request <= 1) {
      advise(fmt::format("{} {:.3f} or more", flag_, *window.one_request),
             fmt::format("there one request of the full context{} fits",
                         context_ ? fmt::format(", {} tokens,", grouped(*context_)) : ""));
    }
  }

  void advise_automatic() {
    if (log_.server != ForeignServer::sglang || !out_.window.automatic) return;
    const double fraction = *out_.window.automatic;
    const SglangReserve reserve = sglang_reserve(log_);
    const Bytes kv = sglang_kv(*base_, *left_, fraction);
    std::string words =
        fmt::format("SGLang's own rule keeps back {} ({}), which is about {:.3f}: KV {} GiB{}",
                    format_bytes(reserve.bytes), reserve.formula, fraction, gib(kv), tokens_of(kv));
    if (log_.model_type.ends_with("ForConditionalGeneration")) {
      words += "; of a model with a vision tower it takes 5 to 20 % off";
    }
    if (kv <= 0) {
      why(words + ". So leaving the option out would not do.");
      return;
    }
    const ForeignArg* arg = log_.arg("mem-fraction-static");
    const bool is_given = arg == nullptr || arg->origin != ArgOrigin::automatic;
    if (is_given) advise("or leave --mem-fraction-static out", words);
  }

  void no_kv() {
    if (kv_ && base_ && left_) {
      why(sglang_no_kv_reason(flag_ + " " + value_with_origin(), ratio(*base_ - *left_, *base_),
                              *kv_));
      if (*kv_ > 32 * kMiB) return advise(fmt::format("raise {}", flag_), "the rest then fits too");
    } else if (kv_) {
      why(
          fmt::format("{} {} is how much of the device may be used at all; weights and the trial "
                      "step need {} GiB more than that before there is any KV.",
                      flag_, value_with_origin(), gib(-std::min<Bytes>(*kv_, 0))));
    } else {
      why(fmt::format(
          "Weights fit, and {}{} leaves nothing for KV{}. The log does not say how much "
          "was free, so the smallest value that works cannot be computed from it.",
          flag_, log_.fraction ? " " + value_with_origin() : "",
          log_.kv_tokens ? fmt::format(" ({} tokens by its own account)", grouped(*log_.kv_tokens))
                         : ""));
      advise(fmt::format("raise {}", flag_), "it is what weights and KV may fill together");
      return;
    }
    advise_raise();
    advise_automatic();
    if (log_.server == ForeignServer::vllm) {
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
    why(fmt::format("KV{} holds {} of the {} that one request of the full context needs.",
                    kv_ ? fmt::format(" of {} GiB", gib(*kv_)) : "",
                    log_.kv_needed && kv_
                        ? fmt::format("{:.0f} %", 100 * ratio(*kv_, *log_.kv_needed))
                    : log_.kv_tokens ? fmt::format("{} tokens", grouped(*log_.kv_tokens))
                                     : std::string("less"),
                    log_.kv_needed ? fmt::format("{} GiB", gib(*log_.kv_needed))
                    : log_.context ? fmt::format("{} tokens", grouped(*log_.context))
                                   : std::string("amount")));
    if (log_.context_max) {
      advise(fmt::format("lower --max-model-len to {} or less", grouped(*log_.context_max)),
             "that much fits as it is");
    }
    if (out_.window.one_request) {
      const bool fits = *out_.window.one_request <= out_.window.most.value_or(1.0);
      if (fits) {
        advise(fmt::format("raise {} to {:.3f} or more", flag_, *out_.window.one_request),
               "then one request of the full context fits");
      } else {
        why(fmt::format("Raising {} does not help: it would have to be {:.3f}.", flag_,
                        *out_.window.one_request));
      }
    } else {
      advise(fmt::format("raise {}", flag_),
             log_.kv_needed && kv_
                 ? fmt::format("KV lacks {} GiB of the device", gib(*log_.kv_needed - *kv_))
                 : std::string("more of the device for KV"));
    }
    const ForeignArg* type = log_.arg("kv-cache-dtype");
    const bool is_small = type != nullptr && type->value.find('8') != std::string::npos;
    const bool helps = !log_.kv_needed || !kv_ || *log_.kv_needed / 2 <= *kv_;
    if (helps && !is_small) advise("--kv-cache-dtype fp8", "a token takes half the bytes");
  }

  void say_oom() {
    if (!log_.oom) return;
    const OomLine& oom = *log_.oom;
    if (oom.tried && oom.free) {
      why(fmt::format("{} were asked for and {} were free{}.", format_bytes(*oom.tried),
                      format_bytes(*oom.free),
                      oom.total ? fmt::format(" of {}", format_bytes(*oom.total)) : ""));
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
    const std::optional<Bytes> whole = log_.server == ForeignServer::sglang ? base_ : log_.total;
    const Bytes lacked =
        log_.oom && log_.oom->tried ? *log_.oom->tried + kCaptureCushion : 2 * kCaptureCushion;
    if (!log_.fraction || !whole || *whole <= 0) {
      advise(fmt::format("lower {}", flag_), "it leaves more outside KV");
      return;
    }
    const double lower = floor3(*log_.fraction - ratio(lacked, *whole));
    const bool is_empty = out_.window.any_kv && lower < *out_.window.any_kv;
    if (is_empty) {
      why(fmt::format(
          "Lowering {} to {:.3f} would leave no KV (the least is {:.3f}): the window is "
          "empty as it is.",
          flag_, lower, *out_.window.any_kv));
    } else {
      advise(fmt::format("lower {} from {} to {:.3f}", flag_, value_with_origin(), lower),
             fmt::format("it leaves {} more outside KV", format_bytes(lacked)));
    }
  }

  void no_graphs() {
    say_oom();
    why("Weights and KV were in place; what is left outside KV did not suffice for graph captures "
        "and warm-up. It is the opposite of having too little for KV.");
    advise_lower();
    const bool is_sglang = log_.server == ForeignServer::sglang;
    const ForeignArg* batch = log_.arg("cuda-graph-max-bs");
    advise(is_sglang ? fmt::format("lower --cuda-graph-max-bs{}",
                                   batch != nullptr ? " from " + batch->value : "")
                     : std::string("lower --max-num-seqs or the largest capture size"),
           "fewer and smaller graphs");
    advise(is_sglang ? "--disable-cuda-graph" : "--enforce-eager", "to see that it is the graphs");
  }

  void no_step() {
    say_oom();
    why("It served, and then a step needed more than was left outside KV.");
    advise_lower();
    advise(log_.server == ForeignServer::sglang ? "lower --chunked-prefill-size"
                                                : "lower --max-num-batched-tokens",
           "activations grow with the tokens of a step; log-probabilities of prompts too");
    advise(log_.server == ForeignServer::sglang ? "lower --max-running-requests"
                                                : "lower --max-num-seqs",
           "logits and sampling grow with it");
  }

  void no_weights() {
    say_oom();
    why(fmt::format("Weights did not fit: {} has no part in it yet.", flag_));
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

  void neighbour() {
    say_oom();
    if (log_.oom && log_.oom->held_by_others() > 0) {
      why(fmt::format("Other processes held {} of this device.",
                      format_bytes(log_.oom->held_by_others())));
    } else if (log_.free_at_start && log_.total) {
      why(fmt::format("Of {} only {} were free when it began: {} are held by others.",
                      format_bytes(*log_.total), format_bytes(*log_.free_at_start),
                      format_bytes(*log_.total - *log_.free_at_start)));
    } else {
      why("Free memory changed while it was measured: another process gave some back.");
    }
    advise("end what holds the memory (nvidia-smi names its process), then start again",
           "often a worker of an earlier launch");
    if (log_.server == ForeignServer::vllm && out_.window.most) {
      advise(fmt::format("or lower {} to {:.3f} or less", flag_, *out_.window.most),
             "that much of the device was free");
    }
  }

  void unbalanced() {
    if (base_ && log_.free_at_start) {
      why(
          fmt::format("One device had {} free and another {}; SGLang sizes all by the least and "
                      "refuses below 90 %.",
                      format_bytes(*base_), format_bytes(*log_.free_at_start)));
    }
    advise("end what holds memory on the fuller device, or choose even devices",
           "often a worker of an earlier launch");
  }

  void unfinished() {
    const ForeignRank* rank = log_.tightest();
    why(rank == nullptr || (!rank->weights && !rank->left)
            ? "The log ends before weights were loaded."
            : "The log ends before the server was ready, and names no error.");
    if (!kv_ && log_.kv_tokens) why(fmt::format("KV holds {} tokens.", grouped(*log_.kv_tokens)));
    if (kv_ && *kv_ <= 0) {
      why("By its figures nothing would be left for KV.");
      advise_raise();
      advise_automatic();
    }
  }

  void served() {
    const FractionWindow& window = out_.window;
    if (window.any_kv && *window.any_kv <= 1) {
      why(fmt::format(
          "{} {}: {:.3f} is the smallest with any KV at all{}{}.", flag_, value_with_origin(),
          *window.any_kv,
          window.one_request && *window.one_request <= 1
              ? fmt::format(", {:.3f} the smallest that holds one request of {} tokens",
                            *window.one_request, context_ ? grouped(*context_) : std::string("?"))
              : "",
          !window.most ? ""
          : log_.server == ForeignServer::sglang
              ? fmt::format(", about {:.3f} the largest before nothing is left outside KV",
                            *window.most)
              : fmt::format(", {:.3f} all that was free at the start", *window.most)));
    }
    if (context_ && log_.kv_tokens && *log_.kv_tokens < *context_) {
      why(
          fmt::format("KV holds {} tokens, less than one request of the context length {}: longer "
                      "requests are refused or cut.",
                      grouped(*log_.kv_tokens), grouped(*context_)));
    }
    if (!kv_ && log_.kv_tokens) {
      why(fmt::format("KV holds {} tokens.", grouped(*log_.kv_tokens)));
    }
    const ForeignRank* rank = log_.tightest();
    const ForeignArg* batch = log_.arg("cuda-graph-max-bs");
    if (rank != nullptr && rank->graphs && batch != nullptr) {
      why(fmt::format("Graphs up to batch {} took {} GiB.", batch->value, gib(*rank->graphs)));
    }
  }

  const ForeignLog& log_;
  LogExplanation& out_;
  std::optional<double> per_token_;
  std::optional<Tokens> context_;
  std::optional<Bytes> base_;  // least of all ranks, as SGLang takes it
  std::optional<Bytes> left_;
  std::optional<Bytes> kv_;
  std::string flag_;
};

}  // namespace

LogExplanation explain_log(const ForeignLog& log, const std::string& label, const LogHints& hints) {
  LogExplanation out;
  out.title = fmt::format("{}: {}{}", label, foreign_server_name(log.server),
                          log.version.empty() ? "" : " " + log.version);
  if (log.ranks.size() > 1) out.title += fmt::format(", {} ranks", log.ranks.size());
  if (!log.model_type.empty()) out.title += ", " + log.model_type;
  const bool failed = log.end != ForeignEnd::served && log.end != ForeignEnd::unknown;
  out.outcome = fmt::format("{}{}", failed ? "failed: " : "", foreign_end_text(log.end));
  if (failed && log.end_ranks > 1) out.outcome += fmt::format(", said by {} ranks", log.end_ranks);
  if (log.launches > 1) {
    out.outcome += fmt::format(" (the last of {} launches in this file)", log.launches);
  }
  const LogFigures figures = figures_of(log, hints);
  out.rows = rows_of(log, figures);
  Explainer(log, figures, out).explain();
  return out;
}

}  // namespace plimsoll
