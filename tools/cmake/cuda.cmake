# CUDA kernels for GPUs: one fatbin a .cu by nvcc, all of them in the library `kernels_cuda` as data.
# The driver that loads them is looked for at run time, so nothing of CUDA is linked.
#
# PLIMSOLL_CUDA: AUTO (where nvcc is found), ON, OFF. The presets release, asan and tsan have it OFF: what
# they build runs kernels on the host executor, which needs no nvcc.
# CMAKE_CUDA_ARCHITECTURES: machine code for these; "80-virtual" is PTX, which the driver of any newer
# GPU compiles when it first loads it. The preset cuda-all has machine code for all of them.

set(PLIMSOLL_CUDA AUTO CACHE STRING "GPU kernels: AUTO (where nvcc is found), ON, OFF")
set(CMAKE_CUDA_ARCHITECTURES "90a;80-virtual" CACHE STRING "GPUs to compile for")

set(PLIMSOLL_CUDA_ARCHITECTURES "")
set(cuda_modules_assembly "")
set(cuda_modules_rows "")
set(cuda_modules_declarations "")
set(cuda_fatbins "")
if(NOT PLIMSOLL_CUDA STREQUAL "OFF")
  find_program(PLIMSOLL_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
  if(PLIMSOLL_CUDA STREQUAL "ON" AND NOT PLIMSOLL_NVCC)
    message(FATAL_ERROR "PLIMSOLL_CUDA is ON and there is no nvcc; install CUDA 13 (docs/gpu.md) or set it AUTO")
  endif()
  if(PLIMSOLL_NVCC)
    set(PLIMSOLL_CUDA_ARCHITECTURES ${CMAKE_CUDA_ARCHITECTURES})
  endif()
endif()

if(PLIMSOLL_CUDA_ARCHITECTURES)
  set(cuda_flags -std=c++20 -fmad=false --Werror=all-warnings -I${PROJECT_SOURCE_DIR})
  foreach(architecture ${PLIMSOLL_CUDA_ARCHITECTURES})
    if(architecture MATCHES "^(.*)-virtual$")
      list(APPEND cuda_flags -gencode arch=compute_${CMAKE_MATCH_1},code=compute_${CMAKE_MATCH_1})
    else()
      string(REPLACE "-real" "" number ${architecture})
      list(APPEND cuda_flags -gencode arch=compute_${number},code=sm_${number})
    endif()
  endforeach()
  file(GLOB cuda_headers CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/kernels/cuda/*.cuh ${PROJECT_SOURCE_DIR}/kernels/cuda/device.h
    ${PROJECT_SOURCE_DIR}/kernels/cuda/kernel_arguments.h)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/generated/cuda)
  foreach(source ${cuda_kernels})
    get_filename_component(name ${source} NAME_WE)
    set(fatbin ${PROJECT_BINARY_DIR}/generated/cuda/${name}.fatbin)
    add_custom_command(OUTPUT ${fatbin}
      COMMAND ${PLIMSOLL_NVCC} -fatbin ${cuda_flags} ${source} -o ${fatbin}
      DEPENDS ${source} ${cuda_headers} COMMENT "nvcc ${name}.cu" VERBATIM)
    list(APPEND cuda_fatbins ${fatbin})
    string(APPEND cuda_modules_assembly
      "    \".balign 16\\nplimsoll_cuda_${name}_begin:\\n.incbin \\\"${fatbin}\\\"\\n\"\n"
      "    \"plimsoll_cuda_${name}_end:\\n\"\n")
    string(APPEND cuda_modules_declarations
      "extern const std::byte plimsoll_cuda_${name}_begin[];\nextern const std::byte plimsoll_cuda_${name}_end[];\n")
    string(APPEND cuda_modules_rows
      "      {\"${name}\", {plimsoll_cuda_${name}_begin, plimsoll_cuda_${name}_end}},\n")
  endforeach()
endif()

list(JOIN PLIMSOLL_CUDA_ARCHITECTURES " " cuda_architectures)
set(cuda_has_kernels false)
if(PLIMSOLL_CUDA_ARCHITECTURES)
  set(cuda_has_kernels true)
endif()
configure_file(${PROJECT_SOURCE_DIR}/shared/machine/build_features.h.in
  ${PROJECT_BINARY_DIR}/generated/shared/machine/build_features.h @ONLY)
configure_file(${PROJECT_SOURCE_DIR}/kernels/cuda/modules.cc.in
  ${PROJECT_BINARY_DIR}/generated/cuda/modules.cc @ONLY)
set_source_files_properties(${PROJECT_BINARY_DIR}/generated/cuda/modules.cc PROPERTIES
  OBJECT_DEPENDS "${cuda_fatbins}")
add_library(kernels_cuda STATIC ${PROJECT_BINARY_DIR}/generated/cuda/modules.cc)
target_link_libraries(kernels_cuda PUBLIC plimsoll_flags)
