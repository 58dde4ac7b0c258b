// CliHarness: `plimsoll` called in this process, with the folders of an instance of its own.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"
#include "tools/cli/cli.h"

namespace plimsoll {

struct Done {
  int code = 0;
  std::string out;
  std::string err;
};

class Cli : public ::testing::Test {
 protected:
  Done run(std::vector<std::string> words, const std::string& input = "") {
    if (!words.empty()) {
      words.insert(words.end(), {"--runtime-dir", runtime().string(), "--state-dir",
                                 state().string(), "--config", "/dev/null"});
    }
    return run_plainly(words, input);
  }
  static Done run_plainly(const std::vector<std::string>& words, const std::string& input = "") {
    std::ostringstream out;
    std::ostringstream err;
    std::istringstream in(input);
    Console console{out, err, in, false};
    const int code = run_cli(words, console);
    return {code, out.str(), err.str()};
  }
  std::filesystem::path runtime() const { return folder_.path() / "run"; }
  std::filesystem::path state() const { return folder_.path() / "state"; }
  void write_state(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(state());
    std::ofstream(state() / name) << text;
  }
  std::string model() const {
    const Result<std::filesystem::path> path = write_tiny_model({}, folder_.path());
    EXPECT_TRUE(path);
    return path ? path->string() : "";
  }

  TempFolder folder_;
};

inline Json serving(const std::string& url) {
  return Json::object({{"version", "0.1.0"},
                       {"state", "serving"},
                       {"url", url},
                       {"generation", 1},
                       {"replicas", Json::array()}});
}

}  // namespace plimsoll
