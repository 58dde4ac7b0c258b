// Fibre: a stack of its own that one OS thread can switch to and from; the CUDA threads of
// Executor.
//
// Switches cost 10 ns. AddressSanitizer and ThreadSanitizer are told of each one; to the latter a
// fibre is a thread, and a switch is no synchronisation. Its .cc is the only file with
// Boost.Context, and is compiled without sanitizers.
#pragma once

#include <cstddef>

#include "shared/base/result.h"

namespace plimsoll::host_cuda {

class Fibre {
 public:
  using Entry = void (*)();  // must not return

  // Stands for the stack that runs already: the one that switches to fibres first.
  Fibre();
  // `number` staggers the stacks' tops, which would share cache sets otherwise.
  static Result<Fibre> create(std::size_t number, Entry entry);
  Fibre(Fibre&& other) noexcept;
  Fibre& operator=(Fibre&& other) noexcept;
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;
  ~Fibre();

  // Forgets what ran on it: the next switch enters anew. REQUIRES: it does not run.
  void restart();

  // Leaves `from`, which runs, for `to`; returns when somebody switches to `from`.
  static void switch_over(Fibre& from, Fibre& to);

 private:
  struct Switch;
  static void land(Switch& arrived, void* context_left);
  static void begin(void* transfer_context, void* transfer_data);
  friend struct FibreStart;

  Entry entry_ = nullptr;
  void* context_ = nullptr;   // where it was left
  std::byte* map_ = nullptr;  // guard page and stack; null: not ours
  const void* bottom_ = nullptr;
  std::size_t size_ = 0;
  void* fake_stack_ = nullptr;   // AddressSanitizer's
  void* race_thread_ = nullptr;  // ThreadSanitizer's
};

}  // namespace plimsoll::host_cuda
