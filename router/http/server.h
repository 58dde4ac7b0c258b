// HttpServer: accepts connections and carries exchanges between them and whoever answers.
//
// One thread, one io_context. Events never come from inside a call of respond, begin_stream,
// write_stream or end_stream; those for an exchange that is over are ignored.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "router/http/connection.h"
#include "router/http/http_limits.h"
#include "router/http/message.h"
#include "shared/base/result.h"
#include "shared/base/unique_fd.h"

namespace plimsoll {

struct HttpEvents {
  std::function<void(ExchangeId, HttpRequest)> request;
  // The client is gone before its answer was complete.
  std::function<void(ExchangeId)> hang_up;
  // A request was answered with that status before it became an exchange.
  std::function<void(int)> refused;
};

class HttpServer : private ConnectionHost {
 public:
  HttpServer(boost::asio::io_context& io, const HttpLimits& limits, HttpEvents events);
  ~HttpServer() override;
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Takes a listening TCP socket; connections wait in it. Errors: it is none.
  Status listen(UniqueFd listener);
  // Accepts them from here on; once.
  void start() { accept(); }
  const std::string& url() const { return url_; }

  void respond(ExchangeId exchange, const HttpResponse& response);
  void begin_stream(ExchangeId exchange, const HttpResponse& head);
  void write_stream(ExchangeId exchange, std::string_view data);
  void end_stream(ExchangeId exchange, bool keep_alive);

  // From here on each connection ends with its next answer.
  void end_connections() { is_ending_ = true; }
  // New connections wait in the listening socket, which others hold too. Whoever was accepted
  // before is a client like any other: calls `done` once all requests that came are answered and
  // no connection is left that may bring one, because each has been silent for last_request_time.
  void stop_accepting(std::function<void()> done);
  // The same in a hurry, last_answer_time, for somebody who will be refused. In the place of a
  // `done` that was not yet called.
  void finish(std::function<void()> done);
  std::size_t connections() const { return connections_.size(); }

 private:
  ExchangeId begin_exchange(Connection& connection, HttpRequest request) override;
  void end_exchange(ExchangeId exchange, bool abandoned) override;
  bool reserve_body(std::size_t bytes) override;
  void release_body(std::size_t bytes) override;
  const std::string& date() override;
  std::span<char> read_buffer() override { return read_buffer_; }
  const HttpLimits& limits() const override { return limits_; }
  void settled() override;
  void refused(int status) override { events_.refused(status); }
  bool keeps_alive() const override { return !is_ending_; }
  void remove(Connection& connection) override;

  Connection* connection_of(ExchangeId exchange);
  void accept();
  void accepted(boost::asio::ip::tcp::socket socket);
  bool make_room();
  bool evict_idle();
  void wait_for_quiet(Duration grace, std::function<void()> done);
  void sweep();

  boost::asio::io_context& io_;
  HttpLimits limits_;
  HttpEvents events_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer accept_again_;
  boost::asio::steady_timer sweep_timer_;
  std::string url_;
  std::list<std::unique_ptr<Connection>> connections_;
  std::unordered_map<ExchangeId, Connection*> exchanges_;
  ExchangeId next_exchange_ = 1;
  std::size_t body_bytes_ = 0;  // of all requests that are being read
  std::string date_;
  std::int64_t date_seconds_ = 0;
  std::vector<char> read_buffer_;
  bool is_ending_ = false;
  boost::asio::steady_timer quiet_timer_;
  TimePoint quiet_from_;
  Duration quiet_grace_{0};
  std::function<void()> quiet_;  // called once, when nothing is under way and nothing will come
};

}  // namespace plimsoll
