// ModelIdentity: whether a model on disk is still the one that was planned: by the names, inodes,
// sizes and times of its files, which change for everyone who writes to a file or replaces it; and
// where they have changed, by what is in the files (model_fingerprint: headers and samples).
#pragma once

#include <string>

#include "shared/base/result.h"

namespace plimsoll {

struct ModelIdentity {
  // One line a file: of a file that one, of a folder those that describe the model or hold weights.
  // Empty: there is nothing of that name.
  std::string files;
  std::string content;  // empty: it cannot be read
};
ModelIdentity model_identity(const std::string& model);
// Whether it is one model: the files are the same, or what is in them.
bool is_same_model(const ModelIdentity& one, const ModelIdentity& other);

// Of what is on disk now. Errors: invalid, with the file that has changed.
Status check_model_identity(const std::string& model, const ModelIdentity& planned);

}  // namespace plimsoll
