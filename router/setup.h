// Setup: from what the daemon says at start to what the router needs: the model's tokenizer and
// chat template, and the limits of dispatch.
#pragma once

#include <string>

#include "router/api/model_context.h"
#include "router/service.h"
#include "shared/base/result.h"
#include "shared/control/messages.h"
#include "shared/options/option_parse.h"

namespace plimsoll {

struct RouterPlan {
  Options options;
  ModelContext model;
  ServiceSetup service;
  std::string template_error;  // why chat is refused, where the model's template cannot be used
};

Result<RouterPlan> plan_router(const RouterSetup& setup);

}  // namespace plimsoll
