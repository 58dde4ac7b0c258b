// ForeignNames: options of SGLang and vLLM by our names.
#pragma once

#include <string>
#include <string_view>

namespace plimsoll {

// "--tp-size", "tensor_parallel_size" -> "tp"; a name that we have no option for: with dashes.
std::string canonical_option(std::string_view name);

}  // namespace plimsoll
