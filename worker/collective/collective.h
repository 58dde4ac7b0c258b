// Collective: what the ranks of one replica compute together.
//
// All ranks make the same calls in the same order, each from its one step thread. A rank that calls
// something else, with other sizes, aborts the group. After an abort or an error every call fails
// with Code::unavailable and the reason; a group never recovers, its replica is restarted.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "kernels/backend.h"
#include "kernels/tensor.h"
#include "shared/base/clock.h"
#include "shared/base/result.h"

namespace plimsoll {

class Tunable;

// How much longer than another rank one may take before they meet: to load, or to touch its KV.
constexpr Duration kPeersPatience = seconds(1800);

class Collective {
 public:
  virtual ~Collective() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view name() const = 0;  // as --collective has it
  // Whether all_reduce_add takes tensors of the device's memory, and only enqueues, so that it may
  // be recorded; `gather` always takes this process's.
  virtual bool is_on_device() const { return false; }

  // accumulate += partial of rank 0 + partial of rank 1 + …: the sum of the partials first, in rank
  // order, then the residual, all in f64 and rounded once; the same bits on every rank whose
  // `accumulate` was the same. [rows, cols] both, f64 and f32; they may not overlap.
  virtual Status all_reduce_add(SumsView partial, TensorView accumulate) = 0;

  // The linear that takes `accumulate` next, if that is the next call of the backend.
  struct NextLinear {
    Norm norm;
    const PackedMatrix* weight = nullptr;
  };
  // The same, in one with that linear's norm, where the backend can.
  virtual Status all_reduce_add_norm(SumsView partial, TensorView accumulate,
                                     const NextLinear& next) {
    (void)next;
    return all_reduce_add(partial, accumulate);
  }

  // Columns of a matrix to rank 0: mine is [rows, cols_of_rank[rank()]]; on rank 0, `all` is
  // [rows, sum of cols_of_rank] and gets the ranks' columns side by side in rank order; elsewhere
  // it is not looked at. Rows may be 0.
  virtual Status gather(TensorView mine, std::span<const std::int64_t> cols_of_rank,
                        TensorView all) = 0;

  // Returns when every rank has called.
  virtual Status barrier() = 0;
  // The same, where a peer may have much more to do before.
  virtual Status await_peers(Duration patience) = 0;

  // Where there are several algorithms for the sums; else nullptr.
  virtual Tunable* tunable() { return nullptr; }

  // Frees the other ranks from whatever they wait for; they get this reason.
  virtual void abort(std::string_view reason) = 0;
};

// A group of one.
std::unique_ptr<Collective> make_single_collective();

}  // namespace plimsoll
