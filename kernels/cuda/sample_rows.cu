// SampleRows: tokens[r] = what the host's sampler (worker/sample) draws from row r of the logits,
// to the bit: the largest (ties: the lowest id), or a draw with weights exp((x - largest) /
// temperature) from all, or from what min_p, top_k and top_p leave.
//
// A block has a row. Sums of weights are f64, in chunks of kSampleChunk columns: 32 lanes each add
// every 32nd, then in halves; chunks one after the other. What is left is sorted in shared memory:
// at most kSampleSorted columns, all that are no further from the largest than the last of them;
// where that is not enough, the host is told to do it (kSampleOnHost).
#include "kernels/cuda/device.h"
#include "kernels/cuda/kernel_arguments.h"

namespace plimsoll::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr float kMost = 3.40282347e38F;  // that is finite
// Distances from the largest by their bits: the exponent and four bits of the fraction.
constexpr int kBins = 4096;
constexpr int kBinShift = 19;
constexpr int kBinsAThread = kBins / kThreads;

// exp of worker/sample/softmax.cc, operation by operation.
DEVICE float weight_of(float logit, float largest, float scale) {
  constexpr float kMagic = 12582912;
  float x = (logit - largest) * scale;
  const bool is_zero = x < -86.0F;
  x = is_zero ? 0.0F : x;
  const float shifted = x * 1.44269504088896F + kMagic;
  const float n = shifted - kMagic;
  const float r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 1.0F / 2;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const unsigned exponent = __float_as_uint(shifted) - __float_as_uint(kMagic);
  return is_zero ? 0.0F : __uint_as_float(__float_as_uint(p) + (exponent << 23U));
}

// Ascending: larger logits first, then lower ids.
DEVICE std::uint64_t sort_key(float logit, int id) {
  const unsigned bits = __float_as_uint(logit + 0.0F);  // -0 is 0
  const unsigned ascending = (bits >> 31U) != 0 ? ~bits : bits | 0x80000000U;
  return static_cast<std::uint64_t>(~ascending) << 32U | static_cast<unsigned>(id);
}

struct Row {
  const float* logits;
  int vocab;
  RowSample how;
  float largest;

  DEVICE float weight(int id) const { return weight_of(logits[id], largest, how.scale); }
  DEVICE int bin(int id) const {
    return static_cast<int>(__float_as_uint(largest - logits[id]) >> kBinShift);
  }
};

struct Best {
  float logit;
  int id;
  DEVICE void take(float other, int other_id) {
    if (other > logit || (other == logit && other_id < id)) {
      logit = other;
      id = other_id;
    }
  }
};

// On all threads; id -1: a logit is NaN or infinite, or none is finite.
DEVICE Best find_best(const float* logits, int vocab, float* of_warp, int* id_of_warp) {
  const int thread = static_cast<int>(threadIdx.x);
  Best best{-2 * kMost, vocab};  // minus infinity
  bool is_sound = true;
  for (int i = thread; i < vocab; i += kThreads) {
    is_sound = is_sound && logits[i] <= kMost;
    best.take(logits[i], i);
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    const float other = __shfl_xor_sync(dev::kAllLanes, best.logit, offset);
    best.take(other, __shfl_xor_sync(dev::kAllLanes, best.id, offset));
  }
  const bool is_warp_sound = __ballot_sync(dev::kAllLanes, !is_sound) == 0;
  if (thread % 32 == 0) {
    of_warp[thread / 32] = best.logit;
    id_of_warp[thread / 32] = is_warp_sound ? best.id : -1;
  }
  __syncthreads();
  for (int warp = 0; warp < kWarps; ++warp) {
    if (id_of_warp[warp] < 0) return {0, -1};
    best.take(of_warp[warp], id_of_warp[warp]);
  }
  return best.logit < -kMost ? Best{0, -1} : best;
}

// Those below min_p weigh nothing.
DEVICE double lane_mass(const Row& row, int chunk) {
  const auto min_p = static_cast<float>(row.how.min_p);
  const int begin = chunk * kSampleChunk;
  const int end = min(begin + kSampleChunk, row.vocab);
  double mass = 0;
  for (int i = begin + static_cast<int>(threadIdx.x) % 32; i < end; i += 32) {
    const float weight = row.weight(i);
    mass += weight >= min_p ? static_cast<double>(weight) : 0.0;
  }
  return mass;
}

// By one thread, over its copy of the weights of the chunk that the draw lies in.
DEVICE int draw_within(const float* weights, int count, double base, double target) {
  double sum = base;
  int last = 0;
  for (int i = 0; i < count; ++i) {
    if (weights[i] <= 0) continue;
    sum += static_cast<double>(weights[i]);
    last = i;
    if (sum > target) break;
  }
  return last;
}

// The walk of the host's sampler over what is sorted. `is_cut`: there is more.
DEVICE int draw_sorted(const Row& row, const std::uint64_t* keys, const float* weights, int count,
                       bool is_cut, double mass) {
  int end = count;
  if (row.how.top_k > 0) {
    if (is_cut && count < row.how.top_k) return kSampleOnHost;
    const int most = min(count, row.how.top_k);
    mass = 0;
    for (end = 0; end < most; ++end) {
      const auto weight = static_cast<double>(weights[end]);
      if (weight < row.how.min_p) break;
      mass += weight;
    }
    end = max(end, 1);
    is_cut = false;
  }
  int kept = 0;
  double kept_mass = 0;
  while (kept < end && (kept == 0 || kept_mass < row.how.top_p * mass)) {
    kept_mass += static_cast<double>(weights[kept++]);
  }
  if (is_cut && kept_mass < row.how.top_p * mass) return kSampleOnHost;
  const double target = row.how.uniform * kept_mass;
  double sum = 0;
  int at = 0;
  for (; at < kept - 1; ++at) {
    sum += static_cast<double>(weights[at]);
    if (sum > target) break;
  }
  return static_cast<int>(keys[at] & 0xffffffffU);
}

}  // namespace

KERNEL(sample_rows, SampleArguments, 256) {
  SHARED(float, of_warp, [kWarps]);
  SHARED(int, id_of_warp, [kWarps]);
  SHARED(double, mass_of_chunk, [kSampleChunksMax]);
  SHARED(unsigned, bins, [kBins]);
  SHARED(unsigned, of_thread, [kThreads]);
  SHARED(std::uint64_t, keys, [kSampleSorted]);
  SHARED(float, weights, [kSampleSorted]);
  SHARED(unsigned, sorted, [1]);
  const int thread = static_cast<int>(threadIdx.x);
  std::int32_t& token = args.tokens[blockIdx.x];
  const float* logits = args.logits + static_cast<std::int64_t>(blockIdx.x) * args.stride;
  const Best best = find_best(logits, args.vocab, of_warp, id_of_warp);
  const Row row{logits, args.vocab, args.rows[blockIdx.x], best.logit};
  if (best.id < 0 || row.how.kind == RowSample::greedy) {
    if (thread == 0) token = best.id < 0 ? kUnsoundLogits : best.id;
    return;
  }

  const int chunks = (row.vocab + kSampleChunk - 1) / kSampleChunk;
  for (int chunk = thread / 32; chunk < chunks; chunk += kWarps) {
    const double mass = dev::warp_sum(lane_mass(row, chunk));
    if (thread % 32 == 0) mass_of_chunk[chunk] = mass;
  }
  for (int i = thread; i < kBins; i += kThreads) bins[i] = 0;
  if (thread == 0) sorted[0] = 0;
  __syncthreads();
  // Every thread adds them all, in the same order.
  double mass = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) mass += mass_of_chunk[chunk];

  if (row.how.kind == RowSample::all) {
    const double target = row.how.uniform * mass;
    double base = 0;
    double base_of_last = 0;
    int last = 0;  // the last with any weight: rounding may leave the sum below the target
    for (int chunk = 0; chunk < chunks; ++chunk) {
      if (mass_of_chunk[chunk] <= 0) continue;
      last = chunk;
      base_of_last = base;
      base += mass_of_chunk[chunk];
      if (base > target) break;
    }
    const int begin = last * kSampleChunk;
    const int count = min(kSampleChunk, row.vocab - begin);
    for (int i = thread; i < count; i += kThreads) weights[i] = row.weight(begin + i);
    __syncthreads();
    if (thread == 0) token = begin + draw_within(weights, count, base_of_last, target);
    return;
  }

  // All that weigh less come to less than half of what top_p leaves out.
  const double left_out = (row.how.top_p < 1 ? 1 - row.how.top_p : 0.0) * mass;
  const float least = fmaxf(static_cast<float>(row.how.min_p),
                            static_cast<float>(0.5 * left_out / static_cast<double>(row.vocab)));
  const auto counts = [&](int id) { return row.how.top_k > 0 || row.weight(id) >= least; };
  for (int i = thread; i < row.vocab; i += kThreads) {
    if (counts(i)) atomicAdd(&bins[row.bin(i)], 1U);
  }
  __syncthreads();
  unsigned own = 0;
  for (int i = 0; i < kBinsAThread; ++i) own += bins[thread * kBinsAThread + i];
  of_thread[thread] = own;
  __syncthreads();
  // The last bin with which there are no more than can be sorted; on every thread the same.
  unsigned below = 0;
  int group = 0;
  while (group < kThreads && below + of_thread[group] <= kSampleSorted) below += of_thread[group++];
  const bool is_cut = group < kThreads;
  int end = group * kBinsAThread;
  while (is_cut && end < kBins && below + bins[end] <= kSampleSorted) below += bins[end++];
  if (below == 0) {
    if (thread == 0) token = kSampleOnHost;
    return;
  }
  const int count = static_cast<int>(below);
  for (int i = thread; i < row.vocab; i += kThreads) {
    if (!counts(i) || row.bin(i) >= end) continue;
    // `below` is how many there are; the bound is for tests, which leave barriers out.
    const unsigned at = atomicAdd(&sorted[0], 1U);
    if (at < kSampleSorted) keys[at] = sort_key(logits[i], i);
  }
  int size = 2;
  while (size < count) size *= 2;
  for (int i = count + thread; i < size; i += kThreads) keys[i] = ~std::uint64_t{0};
  for (int run = 2; run <= size; run *= 2) {
    for (int step = run / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int i = thread; i < size; i += kThreads) {
        const int other = i ^ step;
        const bool is_ascending = (i & run) == 0;
        if (other < i || (keys[i] > keys[other]) != is_ascending) continue;
        const std::uint64_t kept = keys[i];
        keys[i] = keys[other];
        keys[other] = kept;
      }
    }
  }
  __syncthreads();
  for (int i = thread; i < count; i += kThreads) {
    weights[i] = row.weight(static_cast<int>(keys[i] & 0xffffffffU));
  }
  __syncthreads();
  if (thread == 0) token = draw_sorted(row, keys, weights, count, is_cut, mass);
}

}  // namespace plimsoll::cuda
