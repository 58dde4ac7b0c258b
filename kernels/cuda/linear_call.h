// LinearCall: what a linear's kernel is given for one part of a weight. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/kernel_arguments.h"
#include "kernels/cuda/workspace.h"

namespace plimsoll::cuda {

// Of part `index`, whose first row is `first_row` of the output; its input is in the workspace.
LinearArguments linear_arguments(const LinearCall& call, std::size_t index, std::int64_t first_row,
                                 const Workspace& space);

}  // namespace plimsoll::cuda
