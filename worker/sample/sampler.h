// Sampler: from a row of logits to a token, and to log-probabilities.
//
// Order: frequency and presence penalties; temperature (below 1e-5: the largest logit, ties to the
// lowest id); min_p; top_k; top_p over what is left, renormalised; a draw by Philox keyed by the
// request's seed and the token's position. Log-probabilities are of the raw logits, before all of
// that. Deterministic: sums are in double in one fixed order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/kernel_arguments.h"
#include "shared/base/result.h"
#include "shared/base/units.h"
#include "shared/control/messages.h"
#include "worker/sample/penalties.h"

namespace plimsoll {

constexpr std::int64_t kLogprobsMax = 32;

// Errors: Code::invalid; an option out of its range.
Status check_sampling(const Sampling& sampling);

// How a token at that position is drawn, once penalties have been taken off; by kernels too, to the
// bit.
cuda::RowSample row_sample(const Sampling& sampling, Tokens position, std::int64_t vocab);
// Whether they change anything after that output.
bool is_penalised(const Sampling& sampling, std::span<const std::int32_t> output);

class Sampler {
 public:
  explicit Sampler(std::int64_t vocab);

  struct Request {
    const Sampling& sampling;
    std::span<const std::int32_t> output;  // generated so far
    Tokens position = 0;                   // of the token to sample, in its sequence
  };
  // Errors: Code::corrupt where the logits hold a NaN or nothing finite.
  Result<std::int32_t> sample(std::span<const float> logits, const Request& request);

  // Of the token, and of the `alternatives` most likely ones. Errors: as above.
  Result<TokenLogprob> logprob(std::span<const float> logits, std::int32_t token,
                               std::int64_t alternatives);

 private:
  struct Candidate {
    float logit = 0;
    std::int32_t id = 0;
  };
  // Larger logits first, then lower ids.
  static bool before(const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  }

  // What is left to draw from: the row's largest logit, the options, and a uniform number.
  struct Draw {
    std::span<const float> logits;
    const Sampling& sampling;
    float max = 0;
    float scale = 1;  // one over the temperature
    double uniform = 0;
  };
  std::int32_t draw_from_all(const Draw& draw);
  std::int32_t draw_from_some(const Draw& draw);
  // Both fill candidates_ with what min_p and top_k leave (of that, at least what top_p will keep),
  // weights_ at their ids, and return the mass of what they leave.
  double choose_top_k(const Draw& draw, std::size_t count);
  double choose_by_weight(const Draw& draw);
  // The best `count` logits, best first.
  void collect_best(std::span<const float> logits, std::size_t count);
  // Given that the first `sorted` candidates are the best in order, makes it the first `count`.
  void sort_front(std::size_t sorted, std::size_t count);

  std::int64_t vocab_;
  Penalties penalties_;
  std::vector<float> adjusted_;        // [vocab]
  std::vector<float> weights_;         // [vocab]
  std::vector<Candidate> candidates_;  // at most vocab
};

}  // namespace plimsoll
