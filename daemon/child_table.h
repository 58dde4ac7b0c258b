// ChildTable: the running children of a daemon by what they are, and what they still have to say.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/child_groups.h"
#include "daemon/child_process.h"
#include "daemon/events.h"
#include "daemon/log_file.h"

namespace plimsoll {

class ChildTable {
 public:
  explicit ChildTable(ChildGroups groups = {}) : groups_(std::move(groups)) {}

  struct Child {
    ChildProcess process;
    LineSplitter lines;
    bool is_silent = false;  // its outputs are closed
    bool is_abandoned = false;
  };

  struct Given {
    std::string tag;
    int fd = -1;
  };
  // Starts it with descriptors that it finds first on its socket pair, in this order. Programs lie
  // in `folder`.
  struct Start {
    ChildId child;
    std::filesystem::path folder;
    std::string control_endpoint;
    std::string instance;
    std::vector<Given> descriptors;
  };
  Result<std::int64_t> start(const Start& start);  // its pid

  // SIGKILL is for all that it has started, too.
  void signal(const ChildId& child, int number) const;
  // Whole lines of its output so far, each with its name where it has no time of its own.
  std::vector<std::string> read_output(const ChildId& child);
  // How it ended, and what it still said before; then it is no longer in the table.
  struct Ended {
    Ending ending;
    std::vector<std::string> lines;
  };
  std::optional<Ended> reap(const ChildId& child);

  // Removes control groups whose last processes have gone meanwhile. Without groups, ends what
  // children that have been reaped have left: a line about each.
  std::vector<std::string> tidy();
  // The first part of it, which is nothing but quick.
  void drop_empty_groups() { groups_.remove_empty(); }

  std::optional<std::int64_t> pid_of(const ChildId& child) const;
  // One that no signal ends, and that the end of this table is not to wait for.
  void abandon(const ChildId& child);

  const std::map<ChildId, Child>& children() const { return children_; }
  // Of those that will end: what an abandoned one holds does not come back.
  std::vector<std::int64_t> pids() const;

 private:
  ChildGroups groups_;
  std::string instance_;
  std::vector<std::string> ended_;  // names of children since the last tidy()
  std::map<ChildId, Child> children_;
};

std::vector<std::string> child_arguments(const ChildTable::Start& start);

}  // namespace plimsoll
