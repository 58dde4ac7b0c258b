// Render: a daemon's answers as text for people.
#pragma once

#include <string>

#include "shared/base/clock.h"
#include "shared/base/json.h"
#include "tools/cli/verb.h"

namespace plimsoll {

std::string render_status(const Json& status);  // one screen
// {"replicas": [{"replica", "collectives"}]}, and the same for people.
Json collectives_of(const Json& status);
std::string render_collectives(const Json& status);
std::string render_last_known(const Json& status);     // of a daemon that is dead
std::string render_changes(const Json& reply_result);  // of reconfigure
// "loading 45 %, 36.1 MiB of 80.3 MiB": one line without its end.
std::string render_progress(const Json& status);
// `curl` of one question to the deployment.
std::string render_curl(const std::string& url);

// Shows progress while something is under way: a bar that is redrawn on a terminal, else a line for
// each new state and each quarter of the way. Cleans up behind itself.
class ProgressView {
 public:
  explicit ProgressView(Console& console) : console_(console) {}
  ~ProgressView();
  ProgressView(const ProgressView&) = delete;
  ProgressView& operator=(const ProgressView&) = delete;
  void show(const Json& status);
  void clear();

 private:
  Console& console_;
  std::string last_;
  bool is_drawn_ = false;
};

}  // namespace plimsoll
