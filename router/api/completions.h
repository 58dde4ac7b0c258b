// Completions: POST /v1/completions and /v1/chat/completions: a body into a job and what each of
// its choices asks of a leader.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "router/api/model_context.h"
#include "router/stream/job.h"
#include "shared/base/result.h"
#include "shared/control/messages.h"

namespace plimsoll {

struct CompletionPlan {
  JobSetup job;
  std::vector<Generate> generates;  // one a choice; ids are not set
  std::vector<std::string> unknown_fields;
};

// `random_seed` serves where the client sent none; sample i of a prompt has seed + i.
struct CompletionInputs {
  const HttpRequest* request = nullptr;
  bool chat = false;
  std::string id;
  std::int64_t created = 0;
  std::uint64_t random_seed = 0;
  // Whether that many choices can be taken now. It is asked before anything is tokenized, so that
  // what is refused in an overload costs little.
  std::function<Status(std::int64_t choices)> admit;
};
Refusal plan_completion(ModelContext& model, const CompletionInputs& inputs, CompletionPlan& plan);

}  // namespace plimsoll
