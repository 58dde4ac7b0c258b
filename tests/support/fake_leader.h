// FakeLeader: a replica's leader played by a test: what a router sends it, and any answer.
//
// One thread. Every wait has a deadline; the test fails and a default value comes back at its end.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/control/channel.h"

namespace plimsoll {

// Of a socket that is bound in this process, with whoever has connected to it; whether there was
// any.
bool break_connections(const std::string& endpoint);

class FakeLeader {
 public:
  // Binds the endpoint; the test fails where it cannot.
  explicit FakeLeader(std::string endpoint);

  const std::string& endpoint() const { return endpoint_; }
  Generate next_generate();
  std::uint64_t next_cancel();
  // Whether nothing but what was already taken has come, by now.
  bool nothing_came();

  // Shuts the router's connection down; both live on.
  bool break_connection() const;

  void answer(TokenEvent event);
  void tokens(std::uint64_t id, std::vector<std::int64_t> tokens, std::string finish = "");
  void error(std::uint64_t id, std::string code, std::string message);

 private:
  bool receive_one(Duration timeout);

  std::string endpoint_;
  std::optional<Channel> channel_;
  std::string router_;  // its peer id
  std::deque<Generate> generates_;
  std::deque<std::uint64_t> cancels_;
};

}  // namespace plimsoll
