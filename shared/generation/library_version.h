// LibraryVersion: which version of a shared library a process here would load, by its file's name.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace plimsoll {

// Of "libnccl.so": "2.27.3", from libnccl.so.2.27.3 in the first folder that has any: those of
// LD_LIBRARY_PATH in `variables` ("NAME=value"), then the usual ones below `root`. Empty: it is not
// there. Nothing is loaded.
std::string library_version(std::string_view library, std::span<const std::string> variables,
                            const std::filesystem::path& root = "/");

}  // namespace plimsoll
