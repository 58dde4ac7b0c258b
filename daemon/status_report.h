// StatusReport: the JSON that `plimsoll status --json` shows; docs/status.md explains each name.
#pragma once

#include "daemon/supervisor.h"
#include "shared/base/json.h"

namespace plimsoll {

Json status_json(const Supervisor& supervisor, TimePoint now);

}  // namespace plimsoll
