// Random schedules of a supervisor's life, with the invariants that must hold in each.

#include <random>

#include <gtest/gtest.h>

#include "tests/daemon/supervisor_harness.h"

namespace plimsoll {
namespace {

using Harness = SupervisorHarness;

class Simulation {
 public:
  explicit Simulation(std::uint64_t seed)
      : random_(seed),
        h_(1 + static_cast<std::int64_t>(below(3)), 1 + static_cast<std::int64_t>(below(3))) {
    if (below(2) == 0) h_.use_devices(4 + static_cast<std::int64_t>(below(8)));
    h_.is_slow = below(2) == 0;
  }

  void run(int steps) {
    h_.handle(Begin{});
    for (int i = 0; i < steps && !h_.exit_code; ++i) {
      step();
      check();
    }
    converge();
    settle_down();
  }

 private:
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }

  // One thing that the world may do next; what makes progress is likelier.
  void step() {
    switch (below(20)) {
      case 0:
        return die();
      case 1:
        return command();
      case 2:
        if (below(10) == 0) h_.handle(StopSignal{});
        return;
      case 3:
        h_.plan_error.reset();
        if (below(6) == 0) h_.plan_error = does_not_fit("no");
        return;
      case 4:
        return stray();
      case 10:
        return break_something();
      case 5:
      case 6:
      case 7:
        h_.pass(milliseconds(static_cast<std::int64_t>(below(1500))));
        return;
      case 8:
      case 9:
        return h_.let_leave();
      case 11:
      case 12:
        if (!h_.answers.empty()) return h_.answer();
        return progress();
      default:
        return progress();
    }
  }

  ChildId any_child() {
    auto found = h_.alive.begin();
    std::advance(found, static_cast<std::ptrdiff_t>(below(h_.alive.size())));
    return found->first;
  }

  void die() {
    if (h_.alive.empty()) return;
    const ChildId child = any_child();
    constexpr int kCodes[] = {0, 1, 75, 78, 3};
    if (below(8) == 0) return h_.end(child, {false, kCodes[below(5)]});
    h_.end(child, {true, SIGKILL});
  }

  // A device fails, or a process on one is stuck in its driver.
  void break_something() {
    if (h_.devices.empty() || below(2) != 0) return;
    h_.process_letter = below(3) == 0 ? 'R' : 'D';
    if (below(2) == 0) return h_.break_device(static_cast<std::int64_t>(below(12)));
    if (h_.alive.empty()) return;
    const ChildId child = any_child();
    if (child.kind == ChildId::Kind::worker) h_.alive[child].is_stuck = true;
  }

  void command() {
    constexpr const char* kPaths[] = {"auto", "beside", "rolling", "hold", "restart"};
    h_.memory_available = below(2) == 0 ? 0 : static_cast<Bytes>(below(8)) * kGiB;
    switch (below(10)) {
      case 0:
        return h_.command("stop");
      case 1:
        return h_.restart(kPaths[below(5)]);
      case 8:
        return h_.reconfigure("dp", std::to_string(1 + below(3)), kPaths[below(5)]);
      case 9:
        return h_.reconfigure("threads", std::to_string(1 + below(9)), kPaths[below(5)]);
      case 2:
        return h_.reconfigure("tp", std::to_string(1 + below(3)));
      case 3:
        return h_.reconfigure("log-level", below(2) == 0 ? "debug" : "info");
      case 4:
        return h_.reconfigure("port", std::to_string(9000 + below(3)));
      case 5:
        return h_.command("status");
      default:
        return h_.command("start", Json::object({{"options", Json::object()}}));
    }
  }

  // What a child says although it makes no sense now.
  void stray() {
    if (h_.alive.empty()) return;
    const ChildId child = any_child();
    switch (below(5)) {
      case 0:
        return h_.say(child, Ready{});
      case 1:
        return h_.say(child, Loaded{});
      case 2:
        return h_.say(child, ProbeResult{static_cast<std::int64_t>(below(3)), true, ""});
      case 3:
        return h_.say(child, Listening{"x"});
      default:
        return h_.say(child, Fault{"unavailable", "a peer left"});
    }
  }

  // What a child that works would say next; all of it, since it is harmless out of turn.
  void progress() {
    if (h_.alive.empty()) return;
    const ChildId child = any_child();
    h_.hello(child);
    if (!h_.find(child)) return;
    if (child.kind == ChildId::Kind::router) {
      h_.say(child, Listening{"http://127.0.0.1:8000"});
      if (h_.last_probe != 0) h_.say(child, ProbeResult{h_.last_probe, below(6) != 0, "no"});
    } else {
      open(child, below(4) == 0);
      if (!h_.find(child)) return;
      h_.say(child, below(2) == 0 ? Message(Loaded{}) : Message(Progress{"loading", 1, 2}));
      h_.say(child, Ready{"cpu", nullptr});
      h_.say(child, Pong{});
    }
  }

  // Its context is up, as a rank on a device says where it was asked.
  void open(const ChildId& child, bool is_short) {
    const std::vector<Load> loads = h_.sent<Load>(h_.peer_of(child));
    if (loads.empty() || !loads.back().is_tentative) return;
    const Bytes free = h_.devices.front().memory_free;
    h_.say(child, Opened{0, is_short ? free / 2 : free});
  }

  void check() {
    const Supervisor& supervisor = h_.supervisor();
    const DeploymentState state = supervisor.state();
    if (state == DeploymentState::stopped || state == DeploymentState::failed) {
      EXPECT_TRUE(h_.alive.empty()) << deployment_state_name(state);
      EXPECT_TRUE(h_.segments.empty());
    }
    EXPECT_TRUE(!h_.was_ready || h_.last_probe != 0) << "ready before a probe";
    if (state == DeploymentState::serving) {
      EXPECT_GT(supervisor.deployment()->router().pid(), 0);
    }
    EXPECT_TRUE(h_.alive.empty() || h_.is_listening);
    check_devices();
    // A deadline in the past that no tick removes would be a loop without end.
    for (int i = 0; supervisor.next_deadline() && *supervisor.next_deadline() <= h_.now; ++i) {
      ASSERT_LT(i, 50) << deployment_state_name(state);
      h_.handle(Tick{});
      if (h_.exit_code) return;
    }
  }

  // Nothing lives on a device that is in quarantine, but for those that were killed for that.
  void check_devices() {
    const Deployment* deployment = h_.supervisor().deployment();
    if (deployment == nullptr) return;
    for (const Cohort& cohort : deployment->cohorts()) {
      const bool may_live =
          cohort.state() == CohortState::dying || cohort.state() == CohortState::draining;
      for (std::int64_t rank = 0; rank < cohort.plan().tp; ++rank) {
        const std::string device = cohort.device_of(rank);
        check_place(cohort, rank, device);
        if (find_quarantined(h_.supervisor().quarantined(), device) == nullptr) continue;
        EXPECT_TRUE(may_live || !cohort.has_processes()) << device;
      }
    }
  }

  // Whatever is planned again, it is where it was started.
  void check_place(const Cohort& cohort, std::int64_t rank, const std::string& device) {
    const ChildId child{
        .replica = cohort.replica(), .rank = rank, .incarnation = cohort.incarnation()};
    if (!h_.alive.contains(child)) return;
    EXPECT_EQ(places_.emplace(child, device).first->second, device) << child_name(child);
  }

  // Once nothing fails any more, whatever was asked for is done or refused.
  void converge() {
    h_.plan_error.reset();
    h_.process_letter = 'D';
    const auto is_busy = [this] { return *h_.supervisor().operation_name() != '\0'; };
    for (int i = 0; i < 2000 && !h_.exit_code && is_busy(); ++i) {
      h_.answer();
      std::vector<ChildId> children;
      for (const auto& [id, fake] : h_.alive) children.push_back(id);
      for (const ChildId& child : children) {
        const auto says = [&](const Message& message) {
          if (h_.alive.contains(child)) h_.say(child, message);
        };
        if (h_.alive.contains(child)) h_.hello(child);
        if (child.kind == ChildId::Kind::router) {
          says(Listening{"http://127.0.0.1:8000"});
          says(ProbeResult{h_.last_probe, true, ""});
        } else {
          if (h_.alive.contains(child)) open(child, false);
          says(Loaded{});
          says(Ready{"cpu", nullptr});
          says(Pong{});
        }
      }
      h_.let_leave();
      if (!h_.exit_code) h_.pass(milliseconds(500));
      if (!h_.exit_code) check();
    }
    EXPECT_TRUE(h_.exit_code || !is_busy()) << h_.supervisor().operation_name() << " never ends\n"
                                            << h_.all_lines() << present();
  }

  std::string present() {
    std::string text = "as the router was told: " + h_.table() + "\n";
    for (const auto& [id, fake] : h_.alive) {
      text += child_name(id) + (fake.is_leaving ? " is leaving" : " lives") +
              (fake.is_stuck ? ", stuck" : "") + ", signal " + std::to_string(fake.signal) + "\n";
    }
    const Deployment* deployment = h_.supervisor().deployment();
    if (deployment == nullptr) return text;
    for (const Cohort& cohort : deployment->cohorts()) {
      text += std::to_string(cohort.replica()) + " " + cohort_state_name(cohort.state()) + "\n";
    }
    return text + "router: " + router_state_name(deployment->router().state()) + "\n";
  }

  // Whatever happened, a signal, and another one later, end everything.
  void settle_down() {
    if (!h_.exit_code) h_.handle(StopSignal{});
    if (!h_.exit_code) h_.pass_for(seconds(1));
    if (!h_.exit_code) h_.handle(StopSignal{});
    h_.process_letter = 'D';
    for (int i = 0; i < 400 && !h_.exit_code; ++i) {
      h_.let_leave();
      if (!h_.exit_code) h_.pass(seconds(5));
    }
    ASSERT_TRUE(h_.exit_code) << h_.all_lines();
    EXPECT_TRUE(h_.alive.empty());
    EXPECT_TRUE(h_.segments.empty());
    EXPECT_FALSE(h_.is_listening);
    EXPECT_EQ(*h_.supervisor().operation_name(), '\0') << "somebody waits for a reply";
  }

  std::mt19937_64 random_;
  Harness h_;
  std::map<ChildId, std::string> places_;  // the device of each that lives
};

TEST(Simulation, InvariantsHoldOnRandomSchedules) {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation(seed).run(120);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace plimsoll
