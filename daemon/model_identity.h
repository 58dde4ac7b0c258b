// ModelIdentity: whether a model on disk is still the one that was planned, told by the names,
// inodes, sizes and times of its files. Who writes to a file or replaces it changes them.
#pragma once

#include <string>
#include <vector>

#include "shared/base/result.h"

namespace plimsoll {

// One line a file: of a file that one, of a folder those that describe the model or hold weights.
// Empty: there is nothing of that name.
std::string model_identity(const std::string& model);

// Of what is on disk now. Errors: invalid, with the file that has changed.
Status check_model_identity(const std::string& model, const std::string& planned);

}  // namespace plimsoll
