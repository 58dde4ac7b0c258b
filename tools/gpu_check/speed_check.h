// SpeedCheck: how fast a backend's operations are where memory decides: weights at batch 1, keys
// and values of many requests; and prompts, where arithmetic does.
//
// Matrices are many enough to lie in no cache, and launches go on while others run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "shared/base/result.h"

namespace plimsoll {

struct SpeedSize {
  std::int64_t hidden = 0, ffn = 0;  // of a matrix
  std::int64_t matrices = 0;
  std::int64_t prompt = 0;                 // tokens
  std::int64_t requests = 0, context = 0;  // of attention
  int repeats = 1;
};
// The shapes of an 8B model; a few tokens of a tiny one, for machines without a GPU.
SpeedSize large_size();
SpeedSize small_size();

struct Speed {
  std::string name;     // "linear Q4_1, 1 token"
  double seconds = 0;   // of one run of it, median
  double bytes = 0;     // read from memory
  double products = 0;  // multiplications with an addition each
};

// Errors: the backend's, of whatever it was measuring.
Result<std::vector<Speed>> measure_speeds(Backend& backend, const SpeedSize& size);

}  // namespace plimsoll
