// Abandoned: generations that their daemon left as running ones, since it was killed.
#pragma once

#include <filesystem>

#include "shared/generation/generation_record.h"

namespace plimsoll {

// The file in the folder of records that a daemon keeps locked (flock) as long as it lives.
std::filesystem::path state_lock_file(const std::filesystem::path& state);
// Whether a daemon has these records; true where that cannot be told.
bool has_daemon(const std::filesystem::path& state);

// With its daemon gone: a generation that served has stopped, one that was being started has
// failed. False: it had ended before. When it ended nobody knows.
bool end_abandoned(GenerationRecord& record);

}  // namespace plimsoll
