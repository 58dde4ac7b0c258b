// Half: moved to shared/base/half.h; include that.
#pragma once

#include "shared/base/half.h"
