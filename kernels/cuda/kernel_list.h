// KernelList: every CUDA kernel, a row each: name and argument struct.
//
// X(name, Arguments). Runtimes look kernels up by Kernel; names are the symbols in the modules.
#pragma once

#include <cstddef>

// clang-format off
#define PLIMSOLL_QUANTISED_FORMATS(X, stem, Arguments)                          \
  X(stem##_q4_0, Arguments)                                                     \
  X(stem##_q4_1, Arguments)                                                     \
  X(stem##_q5_0, Arguments)                                                     \
  X(stem##_q5_1, Arguments)                                                     \
  X(stem##_q8_0, Arguments)                                                     \
  X(stem##_q4_k, Arguments)                                                     \
  X(stem##_q5_k, Arguments)                                                     \
  X(stem##_q6_k, Arguments)

#define PLIMSOLL_CUDA_KERNELS(X)                              \
  X(embed_rows, EmbedArguments)                               \
  X(copy_rows, CopyRowsArguments)                             \
  X(rms_norm, NormArguments)                                  \
  X(linear_f32, LinearArguments)                              \
  X(linear_f16, LinearArguments)                              \
  X(linear_bf16, LinearArguments)                             \
  X(linear_f32_one, LinearArguments)                          \
  X(linear_f16_one, LinearArguments)                          \
  X(linear_bf16_one, LinearArguments)                         \
  PLIMSOLL_QUANTISED_FORMATS(X, linear_one, LinearArguments)  \
  PLIMSOLL_QUANTISED_FORMATS(X, linear_few, LinearArguments)  \
  PLIMSOLL_QUANTISED_FORMATS(X, linear_many, LinearArguments) \
  X(rope_store, RopeArguments)                                \
  X(attention_64, AttentionArguments)                         \
  X(attention_128, AttentionArguments)                        \
  X(attention_256, AttentionArguments)                        \
  X(attention_merge, MergeArguments)                          \
  X(all_reduce_one_shot, AllReduceArguments)                  \
  X(all_reduce_two_shot, AllReduceArguments)                  \
  X(all_reduce_staged, AllReduceArguments)                    \
  X(all_reduce_norm, AllReduceNormArguments)                  \
  X(add_sums, AddSumsArguments)                               \
  X(sample_rows, SampleArguments)
// clang-format on

namespace plimsoll::cuda {

enum class Kernel {
#define PLIMSOLL_ROW(name, Arguments) name,
  PLIMSOLL_CUDA_KERNELS(PLIMSOLL_ROW)
#undef PLIMSOLL_ROW
};

inline constexpr const char* kKernelNames[] = {
#define PLIMSOLL_ROW(name, Arguments) #name,
    PLIMSOLL_CUDA_KERNELS(PLIMSOLL_ROW)
#undef PLIMSOLL_ROW
};
inline constexpr std::size_t kKernelCount = sizeof(kKernelNames) / sizeof(kKernelNames[0]);

// Whose blocks wait for those of other devices: all of a launch must run at once.
constexpr bool waits_for_peers(Kernel kernel) {
  return kernel >= Kernel::all_reduce_one_shot && kernel <= Kernel::all_reduce_norm;
}

inline const char* kernel_name(Kernel kernel) {
  return kKernelNames[static_cast<std::size_t>(kernel)];
}

}  // namespace plimsoll::cuda
