// Journal: generations on disk, and which of them is committed. Written by replacing whole files,
// so that a kill, a torn write or a full disk leaves the last state that was written whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/result.h"
#include "shared/generation/generation_record.h"

namespace plimsoll {

class Journal {
 public:
  // Makes the folder, removes what an interrupted write left, and ends the records of generations
  // that were in operation when their daemon was killed. REQUIRES: the instance's lock.
  static Result<Journal> open(const std::filesystem::path& state);

  // Errors: unavailable, with the disk's reason. What was there stays.
  Status write(const GenerationRecord& record);
  Status commit(const std::optional<Committed>& committed);

  std::int64_t last_number() const { return last_number_; }
  const std::optional<Committed>& committed() const { return committed_; }
  // The generation that was being brought up when the last daemon ended; 0: none.
  std::int64_t interrupted() const { return interrupted_; }
  // What was found damaged at the start, a line each.
  const std::vector<std::string>& damaged() const { return damaged_; }

 private:
  explicit Journal(std::filesystem::path state) : state_(std::move(state)) {}
  void prune();

  std::filesystem::path state_;
  std::int64_t last_number_ = 0;
  std::int64_t interrupted_ = 0;
  std::optional<Committed> committed_;
  std::vector<std::string> damaged_;
  // What is on disk: number, and whether it has served.
  struct Kept {
    std::int64_t number = 0;
    bool known_good = false;
  };
  std::vector<Kept> kept_;  // by number
};

}  // namespace plimsoll
