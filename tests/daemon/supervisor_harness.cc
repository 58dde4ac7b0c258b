#include "tests/daemon/supervisor_harness.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <gtest/gtest.h>

namespace plimsoll {

SupervisorHarness::SupervisorHarness(std::int64_t tp, std::int64_t dp, const std::string& model,
                                     std::optional<Committed> earlier, std::int64_t last_generation,
                                     const std::string& config_file) {
  Supervisor::Setup setup;
  setup.options.values.model = model;
  setup.options.values.tp = tp;
  setup.options.values.dp = dp;
  setup.instance = "instance";
  setup.version = "0.1.0";
  setup.runtime = "/run/plimsoll";
  setup.seed = 1;
  setup.started = now;
  setup.started_unix = 1'700'000'000;
  setup.last_generation = last_generation;
  setup.committed = std::move(earlier);
  setup.config_file = config_file;
  supervisor_ = std::make_unique<Supervisor>(setup);
}

void SupervisorHarness::handle(const Event& event) {
  std::vector<Event> events = {event};
  for (std::size_t i = 0; i < events.size(); ++i) {
    const bool had_exited = exit_code.has_value();
    for (Action& action : supervisor_->handle(events[i], now)) {
      EXPECT_FALSE(had_exited) << "an action after the exit";
      act(action, events);
    }
    while (!is_slow && !answers.empty()) {
      events.push_back(std::move(answers.front()));
      answers.pop_front();
    }
  }
}

void SupervisorHarness::answer() {
  if (answers.empty()) return;
  const Event next = std::move(answers.front());
  answers.pop_front();
  handle(next);
}

ChildId SupervisorHarness::worker(std::int64_t replica, std::int64_t rank) {
  return {.replica = replica, .rank = rank};
}

std::optional<ChildId> SupervisorHarness::find(const ChildId& wanted) const {
  for (const auto& [id, fake] : alive) {
    if (id.kind == wanted.kind && id.replica == wanted.replica && id.rank == wanted.rank) {
      return id;
    }
  }
  return std::nullopt;
}

void SupervisorHarness::say(const ChildId& child, const Message& message) {
  const std::optional<ChildId> id = find(child);
  ASSERT_TRUE(id) << child_name(child) << " is not alive";
  handle(Received{alive[*id].peer, message});
}

void SupervisorHarness::hello(const ChildId& child) {
  const std::optional<ChildId> id = find(child);
  ASSERT_TRUE(id) << child_name(child) << " is not alive";
  Hello words;
  words.role = id->kind == ChildId::Kind::router ? "router" : "worker";
  words.instance = "instance";
  words.pid = alive[*id].pid;
  words.replica = id->replica;
  words.rank = id->rank;
  handle(Received{alive[*id].peer, words});
}

void SupervisorHarness::end(const ChildId& child, const Ending& ending) {
  const std::optional<ChildId> id = find(child);
  ASSERT_TRUE(id) << child_name(child) << " is not alive";
  alive.erase(*id);
  handle(ChildExited{*id, ending});
}

void SupervisorHarness::let_leave() {
  for (bool is_moving = true; is_moving;) {
    is_moving = false;
    for (const auto& [id, fake] : alive) {
      if ((!fake.is_leaving && fake.signal == 0) || fake.is_stuck) continue;
      const Ending ending = fake.signal != 0 ? Ending{true, fake.signal} : Ending{false, 0};
      const ChildId gone = id;
      alive.erase(gone);
      handle(ChildExited{gone, ending});
      is_moving = true;
      break;
    }
  }
}

bool SupervisorHarness::pass(Duration limit) {
  const std::optional<TimePoint> deadline = supervisor_->next_deadline();
  if (!deadline || *deadline > now + limit) {
    now += limit;
    return false;
  }
  now = std::max(now, *deadline);
  handle(Tick{});
  return true;
}

void SupervisorHarness::pass_for(Duration duration) {
  const TimePoint end = now + duration;
  for (int i = 0; i < 100'000 && now < end; ++i) pass(end - now);
}

void SupervisorHarness::load(std::int64_t replica, std::int64_t tp) {
  for (std::int64_t rank = 0; rank < tp; ++rank) hello(worker(replica, rank));
  // As ranks on devices do before they load.
  for (std::int64_t rank = 0; rank < tp; ++rank) {
    const std::vector<Load> loads = sent<Load>(peer_of(worker(replica, rank)));
    if (loads.empty() || !loads.back().is_tentative) continue;
    say(worker(replica, rank), Opened{0, devices.front().memory_free});
  }
  for (std::int64_t rank = 0; rank < tp; ++rank) say(worker(replica, rank), Loaded{});
}

void SupervisorHarness::become_ready(std::int64_t replica, std::int64_t tp) {
  for (std::int64_t rank = 0; rank < tp; ++rank) {
    say(worker(replica, rank), Ready{"cpu", nullptr});
  }
}

void SupervisorHarness::bring_up(std::int64_t replica, std::int64_t tp) {
  load(replica, tp);
  become_ready(replica, tp);
}

void SupervisorHarness::bring_up_router() {
  hello(router());
  say(router(), Listening{"http://127.0.0.1:8000"});
}

void SupervisorHarness::answer_probe(bool ok, const char* code) {
  ASSERT_NE(last_probe, 0);
  say(router(), ProbeResult{last_probe, ok, ok ? "" : "it does not work", code});
}

void SupervisorHarness::serve(std::int64_t dp, std::int64_t tp) {
  handle(Begin{});
  bring_up_router();
  for (std::int64_t replica = 0; replica < dp; ++replica) load(replica, tp);
  for (std::int64_t replica = 0; replica < dp; ++replica) become_ready(replica, tp);
  answer_probe();
  ASSERT_EQ(supervisor_->state(), DeploymentState::serving);
}

void SupervisorHarness::pong(std::int64_t replica, std::int64_t tp, const Pong& figures) {
  for (std::int64_t rank = 0; rank < tp; ++rank) say(worker(replica, rank), figures);
}

void SupervisorHarness::command(const std::string& verb, Json arguments) {
  handle(Received{"cli", Command{verb, std::move(arguments)}});
}

void SupervisorHarness::reconfigure(const std::string& name, const std::string& value,
                                    const std::string& path) {
  const Json pair = Json::array({name, value});
  command("reconfigure", Json::object({{"assignments", Json::array({pair})}, {"path", path}}));
}

std::string SupervisorHarness::table() const {
  std::string text;
  for (const Send& send : sends) {
    const auto* replicas = std::get_if<Replicas>(&send.message);
    if (replicas == nullptr) continue;
    text.clear();
    for (const ReplicaInfo& info : replicas->replicas) {
      text += (text.empty() ? "" : ", ") + std::to_string(info.replica) + " " + info.state;
    }
  }
  return text;
}

std::size_t SupervisorHarness::count_logged(const std::string& part) const {
  std::size_t count = 0;
  for (const std::string& line : lines) count += line.find(part) != std::string::npos ? 1U : 0U;
  return count;
}

std::string SupervisorHarness::all_lines() const {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

void SupervisorHarness::act(Action& action, std::vector<Event>& events) {
  if (auto* plan = std::get_if<MakePlan>(&action)) {
    ++plans;
    Planned planned = make_plan(*plan);
    planned.question = plan->question;
    answers.emplace_back(std::move(planned));
  } else if (auto* asked = std::get_if<FindDevices>(&action)) {
    answers.emplace_back(DevicesFound{devices, asked->question});
  } else if (auto* look = std::get_if<LookAtProcess>(&action)) {
    EXPECT_TRUE(alive.contains(look->child));
    events.emplace_back(
        ProcessSeen{look->child, {.letter = process_letter, .wait_channel = wait_channel}});
  } else if (auto* abandon = std::get_if<Abandon>(&action)) {
    EXPECT_EQ(alive.erase(abandon->child), 1U);
    abandoned.insert(abandon->child);
  } else if (std::holds_alternative<BindListener>(action)) {
    ++binds;
    is_listening = is_listening || !bind_error;
    if (bind_error) {
      events.emplace_back(ListenerBound{*bind_error});
    } else {
      events.emplace_back(ListenerBound{std::string("http://127.0.0.1:8000")});
    }
  } else if (std::holds_alternative<KeepListener>(action)) {
    ++kept;
  } else if (std::holds_alternative<CloseListener>(action)) {
    is_listening = false;
  } else if (auto* create = std::get_if<CreateSegment>(&action)) {
    EXPECT_TRUE(segments.insert(create->replica).second) << "two segments of one replica";
  } else if (auto* abort = std::get_if<AbortSegment>(&action)) {
    aborts.push_back(*abort);
  } else if (auto* drop = std::get_if<DropSegment>(&action)) {
    EXPECT_EQ(segments.erase(drop->replica), 1U);
  } else if (auto* spawn = std::get_if<Spawn>(&action)) {
    act_spawn(spawn->child, events);
  } else if (auto* kill = std::get_if<Kill>(&action)) {
    const auto found = alive.find(kill->child);
    const bool is_alive = found != alive.end();
    EXPECT_TRUE(is_alive || spawn_error) << "a signal to " << child_name(kill->child);
    if (is_alive) found->second.signal = kill->signal;
  } else if (auto* send = std::get_if<Send>(&action)) {
    act_send(*send);
  } else if (auto* notify = std::get_if<Notify>(&action)) {
    was_ready = was_ready || notify->is_ready;
    if (notify->extend > Duration(0)) ++extensions;
    if (!notify->status.empty()) service_status = notify->status;
    if (notify->is_stopping && notify->extend > Duration(0)) stop_extension = notify->extend;
  } else if (auto* log = std::get_if<Log>(&action)) {
    lines.push_back(log->line);
  } else if (auto* level = std::get_if<ApplyLogLevel>(&action)) {
    applied_level = level->level;
  } else if (std::holds_alternative<SaveState>(action)) {
    ++saves;
  } else if (auto* write = std::get_if<WriteRecord>(&action)) {
    EXPECT_GT(write->record.number, 0);
    records[write->record.number] = write->record;
  } else if (auto* keep = std::get_if<KeepCommitted>(&action)) {
    committed = keep->committed;
  } else if (auto* exit = std::get_if<Exit>(&action)) {
    exit_code = exit->code;
  }
}

void SupervisorHarness::use_devices(std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    Device& device = devices.emplace_back();
    device.name = "small GPU";
    device.uuid = "GPU-" + std::to_string(i);
    device.memory_total = 8 * kGiB;
    device.memory_free = 8 * kGiB;
  }
}

Planned SupervisorHarness::make_plan(const MakePlan& wanted) const {
  const OptionSet& options = wanted.options;
  if (plan_error) return {*plan_error, options, held};
  Machine machine;
  machine.devices = devices;
  const Result<std::int64_t> dp = leave_out(wanted.without, options.values, machine);
  if (!dp) return {dp.error(), options};
  LaunchPlan plan;
  plan.options = options;
  plan.options_json = option_set_to_json(options);
  plan.tp = options.values.tp;
  plan.dp = *dp;
  const std::int64_t ranks = plan.tp * plan.dp;
  if (!devices.empty()) plan.memory.devices = "cuda";
  if (!devices.empty() && ranks > std::ssize(machine.devices)) {
    return {invalid("more ranks than devices"), options};
  }
  for (std::int64_t i = 0; i < ranks && !devices.empty(); ++i) {
    RankPlan& rank = plan.memory.ranks.emplace_back();
    rank.replica = i / plan.tp;
    rank.rank = i % plan.tp;
    rank.budget = machine.devices[static_cast<std::size_t>(i)].memory_free;
    rank.device = i;
    rank.device_uuid = machine.devices[static_cast<std::size_t>(i)].uuid;
    rank.device_name = machine.devices[static_cast<std::size_t>(i)].name;
  }
  plan.kv_blocks = 77;
  plan.served_model_name = "small";
  plan.plan_json = Json::object({{"ranks", Json::array()}});
  plan.refusal = refusal;
  plan.memory_available = memory_available;
  plan.context_length = context_length;
  plan.rank_bytes.assign(static_cast<std::size_t>(plan.tp * plan.dp), kGiB);
  if (refusal) return {plan, options, held};
  return {plan, options};
}

void SupervisorHarness::act_spawn(const ChildId& child, std::vector<Event>& events) {
  for (const auto& [id, fake] : alive) {
    const bool is_same =
        id.kind == child.kind && id.replica == child.replica && id.rank == child.rank;
    EXPECT_FALSE(is_same) << "two lives of " << child_name(child);
    if (id.kind == child.kind && id.replica == child.replica) {
      EXPECT_EQ(id.incarnation, child.incarnation) << "two live cohorts of one replica";
    }
  }
  EXPECT_TRUE(is_listening);
  if (spawn_error) {
    events.emplace_back(SpawnFailed{child, *spawn_error});
    return;
  }
  Fake fake;
  fake.pid = ++pids_;
  fake.peer = "peer " + std::to_string(fake.pid);
  alive[child] = fake;
  events.emplace_back(ChildStarted{child, fake.pid});
}

void SupervisorHarness::act_send(const Send& send) {
  sends.push_back(send);
  if (const auto* reply = std::get_if<Reply>(&send.message)) replies.push_back(*reply);
  if (const auto* probe = std::get_if<Probe>(&send.message)) last_probe = probe->sequence;
  if (!std::holds_alternative<Drain>(send.message)) return;
  for (auto& [id, fake] : alive) fake.is_leaving = fake.is_leaving || fake.peer == send.peer;
}

}  // namespace plimsoll
