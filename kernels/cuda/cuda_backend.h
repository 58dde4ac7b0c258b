// CudaBackend: the operations as CUDA kernels, on any DeviceRuntime: a GPU or the host executor.
//
// All tensors lie in device memory; calls enqueue, `read` waits. Numbers: `in` of quantised weights
// becomes int8 per 32 columns, as on the CPU; products of 32 columns are exact, sums of a segment
// f32, of segments f64. A row's bits depend on that row alone, whichever kernel its batch's size
// chooses. KV is as on the CPU.
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/device_runtime.h"
#include "kernels/cuda/norm_sink.h"

namespace plimsoll {

// REQUIRES: a backend that make_cuda_backend() made.
cuda::NormSink& norm_sink(Backend& backend);

std::unique_ptr<Backend> make_cuda_backend(std::unique_ptr<cuda::DeviceRuntime> runtime);

}  // namespace plimsoll
