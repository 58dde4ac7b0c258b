// Fingerprint: the machine, the software and the variables that a launch ran with, as name and
// value, so that two launches can be compared without knowing what each value means.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/json.h"
#include "shared/base/result.h"
#include "shared/generation/launch_diff.h"
#include "shared/machine/machine.h"

namespace plimsoll {

struct FingerprintSources {
  const Machine& machine;
  std::filesystem::path model;             // empty: none
  std::span<const std::string> variables;  // "NAME=value"; only those that matter are kept
  std::string build;                       // version and commit
  std::filesystem::path root = "/";        // stands before /proc and /sys
};

// Never fails: what cannot be read is left out.
std::vector<Setting> read_fingerprint(const FingerprintSources& sources);

// NCCL_*, CUDA_*, OMP_*, PLIMSOLL_* and the few others that decide what a launch does. Values of
// names that look like secrets are "(set)".
std::vector<Setting> kept_variables(std::span<const std::string> variables);
std::vector<std::string> own_variables();  // of this process

// "5f0c... (98.4 MiB)": of the file's size, its first megabytes (all headers) and samples of the
// rest. Weights of any size cost the same. Of a folder: of its configuration and safetensors
// headers. Errors: as of reading.
Result<std::string> model_fingerprint(const std::filesystem::path& model);

Json settings_to_json(const std::vector<Setting>& settings);
std::vector<Setting> settings_from_json(const Json& json);

}  // namespace plimsoll
