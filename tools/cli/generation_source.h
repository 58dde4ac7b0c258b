// GenerationSource: the records of an instance's generations, whether its daemon runs or not.
#pragma once

#include <filesystem>

#include "shared/generation/generation_record.h"
#include "tools/cli/verb.h"

namespace plimsoll {

// A running daemon's own, else what the options of this call say.
std::filesystem::path state_folder_of(const Invocation& call);

// Those whose daemon is gone have ended, whatever it wrote last. Errors: unavailable.
Result<Generations> settled_generations(const Invocation& call);
// Damaged files are said on stderr and left out. Errors: unavailable; not_found where there is no
// record at all.
Result<Generations> generations_of(const Invocation& call);
// The exit code of an error of these functions: a wrong word is a mistake of usage (2), no record
// at all as if nothing had run (4), one that is not kept a failure (1).
int report_no_generation(const Invocation& call, const Error& error, bool has_some);

// "12" -> that generation. Errors: not_found, with the numbers that there are; invalid.
Result<const GenerationRecord*> named_generation(const Generations& all, const std::string& word);

}  // namespace plimsoll
