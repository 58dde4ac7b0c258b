#include "daemon/child_table.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "daemon/leftovers.h"
#include "shared/control/descriptors.h"

namespace plimsoll {
namespace {

// Of one child in one turn, so that a child that floods cannot hold up the others.
constexpr std::size_t kOutputBytesMax = 256 * 1024;

// Our own processes begin each line with the time; anything else is a library's.
std::string named(const ChildId& child, std::string line) {
  const bool has_time = line.size() > 4 && line[0] == '2' && line[4] == '-';
  return has_time ? line : fmt::format("{}: {}", child_name(child), line);
}

std::string group_name(const ChildId& child) {
  if (child.kind == ChildId::Kind::router) return fmt::format("router-{}", child.incarnation);
  return fmt::format("worker-{}-{}-{}", child.replica, child.rank, child.incarnation);
}

}  // namespace

std::vector<std::string> child_arguments(const ChildTable::Start& start) {
  std::vector<std::string> arguments = {"--control", start.control_endpoint, "--instance",
                                        start.instance};
  if (start.child.kind == ChildId::Kind::worker) {
    arguments.insert(arguments.end(), {"--replica", std::to_string(start.child.replica), "--rank",
                                       std::to_string(start.child.rank)});
  }
  return arguments;
}

Result<std::int64_t> ChildTable::start(const Start& start) {
  const bool is_worker = start.child.kind == ChildId::Kind::worker;
  const std::filesystem::path program =
      start.folder / (is_worker ? "plimsoll-worker" : "plimsoll-router");
  const UniqueFd group = groups_.make(group_name(start.child));
  Result<ChildProcess> spawned =
      ChildProcess::spawn(program, child_arguments(start),
                          {.group = group.get(),
                           .variable = instance_variable(start.instance, group_name(start.child))});
  instance_ = start.instance;
  if (!spawned) {
    groups_.end(group_name(start.child));
    return spawned.error();
  }
  ChildProcess process = std::move(*spawned);
  // A child that has ended already is reported by its pidfd, with the cause.
  for (const Given& given : start.descriptors) {
    const Status sent = send_descriptor(process.pair(), given.tag, given.fd);
    if (!sent && sent.error().code != Code::unavailable) return sent.error();
  }
  const std::int64_t pid = process.pid();
  children_.emplace(start.child, Child{std::move(process), {}});
  return pid;
}

void ChildTable::signal(const ChildId& child, int number) const {
  const auto found = children_.find(child);
  if (found == children_.end()) return;
  found->second.process.signal(number);
  if (number == SIGKILL) groups_.kill(group_name(child));
}

std::vector<std::string> ChildTable::read_output(const ChildId& child) {
  std::vector<std::string> lines;
  const auto found = children_.find(child);
  if (found == children_.end() || found->second.is_silent) return lines;
  std::array<char, 16 * 1024> buffer;
  std::size_t taken = 0;
  while (taken < kOutputBytesMax) {
    const ssize_t got = ::read(found->second.process.error_output(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;
    const std::vector<std::string> more =
        got == 0 ? found->second.lines.finish()
                 : found->second.lines.take({buffer.data(), static_cast<std::size_t>(got)});
    for (const std::string& line : more) lines.push_back(named(child, line));
    if (got == 0) {
      found->second.is_silent = true;
      break;
    }
    taken += static_cast<std::size_t>(got);
  }
  return lines;
}

std::optional<ChildTable::Ended> ChildTable::reap(const ChildId& child) {
  const auto found = children_.find(child);
  if (found == children_.end()) return std::nullopt;
  const std::optional<Ending> ending = found->second.process.reap();
  if (!ending) return std::nullopt;
  // It has written nothing after its end, but maybe after the last look at its pipe.
  Ended ended{*ending, read_output(child)};
  if (!found->second.is_silent) {  // a process of its own holds the pipe
    for (const std::string& line : found->second.lines.finish()) {
      ended.lines.push_back(named(child, line));
    }
  }
  children_.erase(found);
  groups_.end(group_name(child));
  if (!groups_.exist()) ended_.push_back(group_name(child));
  return ended;
}

std::vector<std::string> ChildTable::tidy() {
  groups_.remove_empty();
  if (ended_.empty()) return {};
  return end_processes_of(instance_, std::exchange(ended_, {}));
}

std::optional<std::int64_t> ChildTable::pid_of(const ChildId& child) const {
  const auto found = children_.find(child);
  if (found == children_.end()) return std::nullopt;
  return found->second.process.pid();
}

void ChildTable::abandon(const ChildId& child) {
  const auto found = children_.find(child);
  if (found == children_.end()) return;
  found->second.process.abandon();
  found->second.is_abandoned = true;
}

std::vector<std::int64_t> ChildTable::pids() const {
  std::vector<std::int64_t> pids;
  pids.reserve(children_.size());
  for (const auto& [id, child] : children_) {
    if (!child.is_abandoned) pids.push_back(child.process.pid());
  }
  return pids;
}

}  // namespace plimsoll
