// PlanProblem: machine, model and options brought together: what is then only to be decided.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "shared/base/result.h"
#include "shared/machine/machine.h"
#include "shared/memory/device_budget.h"
#include "shared/memory/memory_budget.h"
#include "shared/memory/memory_fit.h"
#include "shared/memory/rank_placement.h"
#include "shared/model/kv_shape.h"
#include "shared/model/model_spec.h"
#include "shared/model/shard_plan.h"
#include "shared/options/options.h"

namespace plimsoll {

struct PlanProblem {
  std::vector<Device> devices;  // that fit.ranks point to, with what is assumed of them
  FitInputs fit;
  MemoryBudget budget;                // of CPU ranks
  std::vector<RankPlacement> places;  // replica by replica
  ShardPlan shards;
  std::vector<std::size_t> case_of;  // of each rank, in fit.ranks
  KvType kv_type = KvType::f16;
  double kv_copies = 1;
  std::vector<DeviceBudget> device_budgets;  // of each rank on a device; its case has the tightest
};

// Bytes of the packed weights of each rank of a replica, by tp: what takes longest to find out.
using PackedWeights = std::map<std::int64_t, std::vector<Bytes>>;

// Whether ranks on these devices are workers of ours, as those on CPUs are; others are planned as
// servers are in general.
bool runs_our_kernels(const Machine& machine, const ModelSpec& model);

// What workers with CUDA kernels do not do. Errors: invalid, naming the option.
Status check_cuda_options(const Options& options);

// `packed` keeps them for further problems of the same model; nullptr: for none.
// REQUIRES: machine, model and draft outlive the result. Errors: Code::invalid: options that
// contradict each other, the model or the machine.
Result<PlanProblem> make_problem(const Machine& machine, const ModelSpec& model,
                                 const Options& options, const ModelSpec* draft,
                                 PackedWeights* packed = nullptr);

}  // namespace plimsoll
