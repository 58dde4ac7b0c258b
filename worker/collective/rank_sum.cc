#include "worker/collective/rank_sum.h"

#include <algorithm>
#include <cstring>

#include <immintrin.h>

namespace plimsoll {
namespace {

// Below this, ordinary stores win: measured between two cores, 2 KB.
constexpr Bytes kStreamBytes = 2 * kKiB;
// What other ranks gave is in no cache of this core, and too short for it to be guessed: so much is
// asked for ahead. Measured, 2 ranks: 4 KiB of results 1.5 times as fast, 64 KiB 1.2 times.
constexpr std::int64_t kLinesAhead = 24;
constexpr std::int64_t kLineValues = 8;

}  // namespace

void add_in_rank_order(std::span<const double* const> parts, float* accumulate,
                       std::int64_t count) {
  const std::int64_t first = std::min(kLinesAhead * kLineValues, count);
  for (std::int64_t at = 0; at < first; at += kLineValues) {
    for (const double* part : parts) __builtin_prefetch(part + at);
  }
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    if (i % kLineValues == 0) {
      for (const double* part : parts) __builtin_prefetch(part + i + kLinesAhead * kLineValues);
    }
    __m128d low = _mm_loadu_pd(parts[0] + i);
    __m128d high = _mm_loadu_pd(parts[0] + i + 2);
    for (const double* part : parts.subspan(1)) {
      low = _mm_add_pd(low, _mm_loadu_pd(part + i));
      high = _mm_add_pd(high, _mm_loadu_pd(part + i + 2));
    }
    const __m128 before = _mm_loadu_ps(accumulate + i);
    low = _mm_add_pd(_mm_cvtps_pd(before), low);
    high = _mm_add_pd(_mm_cvtps_pd(_mm_movehl_ps(before, before)), high);
    _mm_storeu_ps(accumulate + i, _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high)));
  }
  for (; i < count; ++i) {
    double sum = parts[0][i];
    for (const double* part : parts.subspan(1)) sum += part[i];
    accumulate[i] = static_cast<float>(static_cast<double>(accumulate[i]) + sum);
  }
}

void copy_to_slot(const void* from, Bytes count, void* slot) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(slot) % sizeof(__m128i) == 0;
  if (count < kStreamBytes || !aligned) {
    std::memcpy(slot, from, static_cast<std::size_t>(count));
    return;
  }
  const auto* source = static_cast<const std::byte*>(from);
  auto* to = static_cast<std::byte*>(slot);
  Bytes i = 0;
  for (; i + 16 <= count; i += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i)));
  }
  std::memcpy(to + i, source + i, static_cast<std::size_t>(count - i));
  _mm_sfence();
}

}  // namespace plimsoll
