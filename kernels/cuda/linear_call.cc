#include "kernels/cuda/linear_call.h"

#include "kernels/cuda/launches.h"
#include "kernels/cuda/pack.h"

namespace plimsoll::cuda {
namespace {

std::int32_t narrow(std::int64_t value) { return static_cast<std::int32_t>(value); }

}  // namespace

LinearArguments linear_arguments(const LinearCall& call, std::size_t index, std::int64_t first_row,
                                 const Workspace& space) {
  const PackedPart& part = call.weight->parts[index];
  const WeightFormat format = weight_format(part.dtype);
  const bool has_range = call.row_end != 0;
  LinearArguments arguments{
      .quants = space.quants,
      .scales = space.scales,
      .values = space.values,
      .weight = reinterpret_cast<const unsigned char*>(part.data),
      .up = nullptr,
      .tokens = narrow(call.in.rows),
      .cols = narrow(part.cols),
      .segment_cols = call.weight->segment_cols != 0 ? narrow(call.weight->segment_cols)
                                                     : default_segment_cols(format, part.cols),
      .row_begin = has_range ? narrow(call.row_begin) : 0,
      .row_end = narrow(has_range ? call.row_end : part.rows),
      .end = LinearEnd::store,
      .out = nullptr,
      .sums = nullptr,
      .stride = call.out.stride,
  };
  switch (call.epilogue) {
    case Epilogue::store:
      break;
    case Epilogue::add:
      arguments.end = LinearEnd::add;
      break;
    case Epilogue::partial:
      arguments.end = LinearEnd::partial;
      arguments.sums = call.sums.data + first_row;
      arguments.stride = call.sums.stride;
      break;
    case Epilogue::silu_mul:
      arguments.end = LinearEnd::silu_mul;
      arguments.up = reinterpret_cast<const unsigned char*>(call.weight->parts[1].data);
      break;
    case Epilogue::gelu_mul:
      arguments.end = LinearEnd::gelu_mul;
      arguments.up = reinterpret_cast<const unsigned char*>(call.weight->parts[1].data);
      break;
  }
  if (call.epilogue != Epilogue::partial) arguments.out = call.out.f32() + first_row;
  return arguments;
}

}  // namespace plimsoll::cuda
