// RankGroup: the ranks of one replica as threads of a test, on the real CPU backend.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/device_runtime.h"
#include "shared/base/replica_segment.h"
#include "shared/base/shared_block.h"
#include "worker/collective/ipc_exchange.h"
#include "worker/rank.h"

namespace plimsoll {

// A plan whose rows are exactly what the code asks for.
RankPlan exact_plan(const ModelSpec& spec, const ShardPlan& shards, int rank,
                    const DecoderLimits& limits, const Backend& backend);

class RankGroup {
 public:
  struct Options {
    std::filesystem::path model;
    int ranks = 1;
    int threads = 1;
    Activations activations = Activations::int8;
    std::optional<CpuPath> path = {};
    std::function<std::unique_ptr<Backend>()> make_backend = {};  // in place of the CPU's
    // The same, of CUDA kernels on what it makes; ranks add up over each other's memory.
    std::function<std::unique_ptr<cuda::DeviceRuntime>()> make_runtime = {};
    bool fuses_norms = true;  // with the sums
    DecoderLimits limits = {.rows_max = 128, .logit_rows_max = 128, .context_length = 256};
    Blocks kv_blocks = 64;
    std::int64_t sequences_max = 16;
    int kept_weights = -1;  // a SealedBlock's descriptor, where there is one rank
    KvType kv_type = KvType::f16;
    std::int64_t recorded_rows_max = 0;  // of decode batches
  };

  explicit RankGroup(Options options) : options_(std::move(options)) { start(); }
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;
  ~RankGroup();

  Rank& rank(int index) { return *ranks_[static_cast<std::size_t>(index)]; }
  int size() const { return options_.ranks; }
  const ModelSpec& spec() { return rank(0).spec(); }
  ReplicaSegment& segment() { return *segment_; }

  // work(rank index) on a thread each, always the same; index 0 on this one.
  void on_all(const std::function<void(int)>& work);

  // One step on all ranks: the logits of rank 0, row by row.
  std::vector<std::vector<float>> run(const StepPlan& plan);

 private:
  // Runs a rank's work, one piece after the other.
  class Thread {
   public:
    Thread() : thread_([this] { run(); }) {}
    Thread(const Thread&) = delete;
    Thread& operator=(const Thread&) = delete;
    ~Thread();
    void begin(std::function<void()> work);
    void wait();

   private:
    void run();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::function<void()> work_;
    bool ends_ = false;
    std::thread thread_;
  };

  void start();
  void start_rank(int index, const ModelSpec& spec, const ShardPlan& shards);
  std::unique_ptr<Collective> make_collective(int index, cuda::DeviceRuntime* runtime,
                                              Backend& backend);

  Options options_;
  std::optional<SharedBlock> memory_;
  std::optional<ReplicaSegment> segment_;
  std::vector<PeerFds> sockets_;                  // of each rank
  std::vector<std::unique_ptr<Thread>> threads_;  // of ranks 1 and up
  std::vector<std::unique_ptr<Rank>> ranks_;
};

// Rows [begin, end) of a sequence appended to a plan; blocks are [first_block, ...). Logits of the
// last `logit_rows` of them.
struct PlannedRows {
  std::span<const std::int32_t> tokens;
  std::size_t begin = 0, end = 0;
  std::int32_t first_block = 0;
  std::size_t logit_rows = 0;
};

void append_rows(StepPlan& plan, const PlannedRows& rows);

}  // namespace plimsoll
