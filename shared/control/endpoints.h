// Endpoints: socket names under the runtime folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace plimsoll {

std::string control_endpoint(const std::filesystem::path& runtime);  // ipc://.../control
// One a start of a replica's workers, so that a router never talks to a dead incarnation's socket.
std::string request_endpoint(const std::filesystem::path& runtime, std::int64_t replica,
                             std::int64_t incarnation);

}  // namespace plimsoll
