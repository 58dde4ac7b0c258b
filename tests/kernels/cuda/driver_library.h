// TestDriver: the library of tests/drivers/cuda_driver.cc, and what makes it fail.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "kernels/cuda/driver_api.h"
#include "kernels/cuda/driver_runtime.h"

namespace plimsoll::cuda {

inline constexpr const char* kTestDriver = PLIMSOLL_TEST_DRIVERS "/libcuda.so.1";

class TestDriver {
 public:
  TestDriver() : handle_(dlopen(kTestDriver, RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(handle_, nullptr) << dlerror();
  }
  TestDriver(const TestDriver&) = delete;
  TestDriver& operator=(const TestDriver&) = delete;
  ~TestDriver() {
    fail("", 0);
    dlclose(handle_);
  }

  // From its `after`-th call on.
  void fail(const char* symbol, CuResult result, int after = 0) const {
    reinterpret_cast<void (*)(const char*, CuResult, int)>(dlsym(handle_, "fake_cuda_fail"))(
        symbol, result, after);
  }
  // Device memory and addresses that nobody gave back.
  std::size_t held() const {
    return reinterpret_cast<std::size_t (*)()>(dlsym(handle_, "fake_cuda_held"))();
  }

  // Any module will do: it knows kernels by their names.
  static DriverRuntimeOptions options() {
    static constexpr std::byte kImage[16] = {};
    return {.library = kTestDriver,
            .uuid = {},
            .modules = {{.name = "all", .fatbin = kImage}},
            .architectures = "host"};
  }

 private:
  void* handle_;
};

// A variable of the environment, for as long as it lives.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;
  ~ScopedVariable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

inline std::vector<const char*> driver_symbols() {
  return {
#define PLIMSOLL_ROW(member, symbol, parameters) #symbol,
      PLIMSOLL_DRIVER_FUNCTIONS(PLIMSOLL_ROW)
#undef PLIMSOLL_ROW
  };
}

}  // namespace plimsoll::cuda
