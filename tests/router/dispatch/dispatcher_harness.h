// DispatcherHarness: a dispatcher with a clock turned by hand, and what its actions said, by kind.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "router/dispatch/dispatcher.h"

namespace plimsoll {

using Ids = std::vector<std::uint64_t>;

// A Generate, by the id of its request.
struct Sent {
  std::int64_t replica = 0;
  std::uint64_t id = 0;
  bool operator==(const Sent&) const = default;
};

class DispatcherTest : public ::testing::Test {
 protected:
  explicit DispatcherTest(DispatchLimits limits = {}) : dispatcher_(limits) {}

  void table(std::vector<ReplicaInfo> infos, std::string state = "serving") {
    dispatcher_.replicas({std::move(state), "", std::move(infos)}, time_);
  }
  // As the daemon tells it: the replica died, of that cause, and is back as its next incarnation.
  void die_and_return(std::int64_t id, std::int64_t incarnation, bool by_fault) {
    table({{id, "restarting", "", incarnation, incarnation - 1}});
    table({{id, "restarting", "", incarnation, incarnation, by_fault}});
    table({{id, "ready", "ipc://x", incarnation + 1, incarnation, by_fault}});
  }
  static ReplicaInfo replica(std::int64_t id, std::string state = "ready",
                             std::int64_t incarnation = 1) {
    return {id, std::move(state), "ipc://x", incarnation};
  }
  void submit(std::uint64_t id, std::size_t prompt_tokens = 1) {
    Generate generate;
    generate.id = id;
    generate.prompt.assign(prompt_tokens, 5);
    dispatcher_.submit(std::move(generate), time_);
  }
  void token(std::int64_t replica, std::uint64_t id, std::string finish = "") {
    TokenEvent event;
    take_sent();
    event.id = wire_.contains(id) ? wire_.at(id) : id;
    event.tokens = {9};
    event.finish = std::move(finish);
    step(replica, std::move(event));
  }
  void error(std::int64_t replica, std::uint64_t id, Code code) {
    TokenEvent event;
    take_sent();
    event.id = wire_.contains(id) ? wire_.at(id) : id;
    event.finish = "error";
    event.error_code = code_name(code);
    event.error = "why";
    step(replica, std::move(event));
  }
  void step(std::int64_t replica, TokenEvent event) {
    StepTokens step;
    step.events.push_back(std::move(event));
    dispatcher_.tokens(replica, std::move(step), time_);
  }
  // Takes all actions since the last call; each of the lists has those of its kind.
  void take() {
    sent_.clear(), cancelled_.clear(), delivered_.clear(), failed_.clear(), errors_.clear();
    connected_.clear();
    resumed_ = 0;
    take_sent();
    for (DispatchAction& action : std::exchange(actions_, {})) {
      if (auto* one = std::get_if<SendGenerate>(&action)) {
        sent_.push_back({one->replica, request_id(one->generate.id)});
        generates_.insert_or_assign(request_id(one->generate.id), one->generate);
      } else if (auto* cancel = std::get_if<SendCancel>(&action)) {
        cancelled_.push_back({cancel->replica, request_id(cancel->id)});
      } else if (auto* delivery = std::get_if<Deliver>(&action)) {
        delivered_.push_back(delivery->event.id);
      } else if (auto* failure = std::get_if<Fail>(&action)) {
        failed_.push_back(failure->id);
        errors_.push_back(failure->error);
      } else if (auto* connect = std::get_if<ConnectLeader>(&action)) {
        connected_.push_back(connect->replica);
      } else if (auto* resume = std::get_if<Resume>(&action)) {
        resumed_ += resume->requests;
      }
    }
  }
  // What a leader answers has the id of the last Generate.
  void take_sent() {
    for (DispatchAction& action : dispatcher_.take_actions()) {
      if (auto* one = std::get_if<SendGenerate>(&action)) {
        wire_[request_id(one->generate.id)] = one->generate.id;
      }
      actions_.push_back(std::move(action));
    }
  }

  TimePoint time_ = TimePoint() + seconds(1000);
  Dispatcher dispatcher_;
  std::vector<Sent> sent_;
  std::vector<Sent> cancelled_;
  Ids delivered_;
  Ids failed_;
  std::vector<std::int64_t> connected_;
  std::vector<Error> errors_;
  std::int64_t resumed_ = 0;
  std::map<std::uint64_t, Generate> generates_;  // as last sent
  std::map<std::uint64_t, std::uint64_t> wire_;
  std::vector<DispatchAction> actions_;
};

}  // namespace plimsoll
