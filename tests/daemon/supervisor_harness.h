// SupervisorHarness: a supervisor in a world of fake processes that is turned by hand.
//
// It keeps what actions said: which children live, what was sent to whom, what was logged. Children
// do nothing by themselves; a test makes them say hello, load, die.
#pragma once

#include <csignal>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/supervisor.h"

namespace plimsoll {

class SupervisorHarness {
 public:
  struct Fake {
    std::int64_t pid = 0;
    std::string peer;
    bool is_leaving = false;  // told to; ends when the world turns
    int signal = 0;           // got it
    bool is_stuck = false;    // and does not end for all that
  };

  explicit SupervisorHarness(std::int64_t tp = 2, std::int64_t dp = 1,
                             const std::string& model = "/models/small.gguf",
                             std::optional<Committed> earlier = {},
                             std::int64_t last_generation = 0, const std::string& config_file = "");

  Supervisor& supervisor() { return *supervisor_; }

  void handle(const Event& event);

  // ---- the world ----

  static ChildId worker(std::int64_t replica, std::int64_t rank);
  static ChildId router() { return {.kind = ChildId::Kind::router}; }

  // The living child of that kind, replica and rank, of whatever incarnation.
  std::optional<ChildId> find(const ChildId& wanted) const;

  void say(const ChildId& child, const Message& message);
  void hello(const ChildId& child);
  void end(const ChildId& child, const Ending& ending);
  void die(const ChildId& child, int signal = SIGKILL) { end(child, {true, signal}); }

  // As many devices as that, known as "GPU-0" ...
  void use_devices(std::int64_t count);
  void break_device(std::int64_t device) {
    handle(DeviceFaulted{{"GPU-" + std::to_string(device), "Xid 79: it has fallen off the bus"}});
  }
  // What the machine was asked is answered, oldest first; where is_slow, only then.
  void answer();
  // All that were killed or asked to leave do so.
  void let_leave();

  // Turns time to the next deadline, at most by `limit`.
  bool pass(Duration limit = seconds(3600));
  void pass_for(Duration duration);

  void load(std::int64_t replica, std::int64_t tp = 2);
  void become_ready(std::int64_t replica, std::int64_t tp = 2);
  // One cohort from its spawn to Ready; the first time, all others have loaded.
  void bring_up(std::int64_t replica, std::int64_t tp = 2);
  void bring_up_router();
  void answer_probe(bool ok = true, const char* code = "");
  void serve(std::int64_t dp = 1, std::int64_t tp = 2);
  // All ranks answer the pings, with these figures of the leader.
  void pong(std::int64_t replica, std::int64_t tp, const Pong& figures);

  void command(const std::string& verb, Json arguments = Json::object());
  void reconfigure(const std::string& name, const std::string& value,
                   const std::string& path = "auto");
  void restart(const std::string& path) { command("restart", Json::object({{"path", path}})); }
  // As the router was told last: "0 ready, 1 draining".
  std::string table() const;

  template <typename M>
  std::vector<M> sent(const std::string& peer) const {
    std::vector<M> found;
    for (const Send& send : sends) {
      if (send.peer == peer && std::holds_alternative<M>(send.message)) {
        found.push_back(std::get<M>(send.message));
      }
    }
    return found;
  }
  template <typename M>
  std::size_t count_sent() const {
    std::size_t count = 0;
    for (const Send& send : sends) count += std::holds_alternative<M>(send.message) ? 1U : 0U;
    return count;
  }
  std::string peer_of(const ChildId& child) const { return alive.at(*find(child)).peer; }
  std::size_t count_logged(const std::string& part) const;
  std::string all_lines() const;

  TimePoint now = TimePoint() + seconds(1000);
  std::map<ChildId, Fake> alive;
  std::vector<Send> sends;
  std::vector<Reply> replies;
  std::vector<std::string> lines;
  std::set<std::int64_t> segments;  // replicas that have one
  std::vector<AbortSegment> aborts;
  std::optional<Error> plan_error;  // what the next plans say
  std::optional<Error> refusal;     // of the next plans, which do not fit
  std::optional<HeldMemory> held;   // and why
  std::optional<Error> bind_error;
  std::optional<Error> spawn_error;
  std::vector<Device> devices;  // that ranks run on; none: the CPU
  char process_letter = 'S';    // of those that are looked at
  std::string wait_channel;
  std::set<ChildId> abandoned;
  bool is_slow = false;  // the machine, to answer
  std::deque<Event> answers;
  Bytes memory_available = 0;  // in the next plans
  Tokens context_length = 0;   // in the next plans
  bool is_listening = false;
  std::int64_t binds = 0;
  std::int64_t kept = 0;        // binds that took the place of another for good
  std::int64_t extensions = 0;  // of the service manager's deadline
  std::string service_status;
  std::int64_t plans = 0;
  std::int64_t last_probe = 0;
  bool was_ready = false;
  Duration stop_extension{0};  // that the service manager was asked for
  std::int64_t saves = 0;
  std::string applied_level;
  std::map<std::int64_t, GenerationRecord> records;  // as they were written last
  std::optional<Committed> committed;
  std::optional<int> exit_code;

 private:
  void act(Action& action, std::vector<Event>& events);

  Planned make_plan(const MakePlan& wanted) const;

  void act_spawn(const ChildId& child, std::vector<Event>& events);

  void act_send(const Send& send);

  std::unique_ptr<Supervisor> supervisor_;
  std::int64_t pids_ = 4000;
};

}  // namespace plimsoll
