// ScriptedServer: a TCP server on loopback that answers connections with given bytes, for tests.
#pragma once

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "shared/base/unique_fd.h"

namespace plimsoll {

class ScriptedServer {
 public:
  struct Script {
    std::vector<std::string> pieces;  // each sent by itself
    bool stays_open = false;          // until the client closes; else closed after the last piece
  };
  // One script a connection, in order.
  explicit ScriptedServer(std::vector<Script> scripts);
  ~ScriptedServer();
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  std::string url(const std::string& target = "/") const;
  // What was received, one a connection. Call after the client's exchanges are over.
  const std::vector<std::string>& requests();

 private:
  void serve(const std::vector<Script>& scripts);

  UniqueFd listener_;
  std::uint16_t port_ = 0;
  std::vector<std::string> requests_;
  std::thread thread_;
};

}  // namespace plimsoll
