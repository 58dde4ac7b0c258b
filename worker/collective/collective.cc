#include "worker/collective/collective.h"

#include <cstring>
#include <string>

#include "shared/base/check.h"
#include "worker/collective/rank_sum.h"

namespace plimsoll {
namespace {

class SingleCollective : public Collective {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string_view name() const override { return "none"; }

  Status all_reduce_add(SumsView partial, TensorView accumulate) override {
    if (aborted_) return unavailable("all_reduce_add: " + reason_);
    CHECK(partial.rows == accumulate.rows && partial.cols == accumulate.cols);
    for (std::int64_t row = 0; row < partial.rows; ++row) {
      const double* const part[] = {partial.row(row)};
      add_in_rank_order(part, accumulate.row(row), partial.cols);
    }
    return {};
  }

  Status gather(TensorView mine, std::span<const std::int64_t> cols_of_rank,
                TensorView all) override {
    if (aborted_) return unavailable("gather: " + reason_);
    CHECK(cols_of_rank.size() == 1 && mine.cols == cols_of_rank[0] && all.cols == mine.cols);
    CHECK(mine.rows == all.rows);
    for (std::int64_t row = 0; row < mine.rows; ++row) {
      std::memcpy(all.row(row), mine.row(row), static_cast<std::size_t>(mine.cols) * sizeof(float));
    }
    return {};
  }

  Status barrier() override {
    if (aborted_) return unavailable("barrier: " + reason_);
    return {};
  }

  Status await_peers(Duration) override { return barrier(); }

  void abort(std::string_view reason) override {
    if (!aborted_) reason_ = reason;
    aborted_ = true;
  }

 private:
  bool aborted_ = false;
  std::string reason_;
};

}  // namespace

std::unique_ptr<Collective> make_single_collective() {
  return std::make_unique<SingleCollective>();
}

}  // namespace plimsoll
