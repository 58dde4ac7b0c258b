// Connection: one client's socket: requests in, one after another, and their answers out.
//
// While an answer is made, the socket is still read, so that a client that goes away is noticed at
// once; what a pipelining client has sent by then waits for its turn.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <boost/asio/ip/tcp.hpp>

#include "router/http/http_limits.h"
#include "router/http/message.h"
#include "router/http/request_reader.h"
#include "shared/base/clock.h"

namespace plimsoll {

class Connection;

// What a connection needs of the server that owns it.
class ConnectionHost {
 public:
  virtual ~ConnectionHost() = default;
  virtual ExchangeId begin_exchange(Connection& connection, HttpRequest request) = 0;
  virtual void end_exchange(ExchangeId exchange, bool abandoned) = 0;
  virtual bool reserve_body(std::size_t bytes) = 0;  // false: no room now
  virtual void release_body(std::size_t bytes) = 0;
  virtual const std::string& date() = 0;
  virtual std::span<char> read_buffer() = 0;  // shared: valid within one handler
  virtual const HttpLimits& limits() const = 0;
  virtual void settled() = 0;                       // an event of a connection is over
  virtual void refused(int status) = 0;             // answered without an exchange
  virtual bool keeps_alive() const = 0;             // whether another request may follow
  virtual void remove(Connection& connection) = 0;  // destroys it
};

class Connection {
 public:
  Connection(ConnectionHost& host, boost::asio::ip::tcp::socket socket);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void start();
  // Instead: answers before anything is asked, and ends.
  void start_refused(const ApiError& error);
  void respond(const HttpResponse& response);
  void begin_stream(const HttpResponse& head);
  void write_stream(std::string_view data);
  void end_stream(bool keep_alive);

  // Closes, answers 408 or does nothing, by what it waits for and since when.
  void check_time(TimePoint now);
  bool idle() const;  // between requests
  bool leaving() const { return phase_ == Phase::lingering; }
  bool has_unread() const;  // bytes that have come and that nobody has looked at
  // When it will have been silent for `grace`, and so will not bring another request: one that was
  // never used has been silent since `from` at the earliest. Max: a request or answer is under way.
  TimePoint silent_by(TimePoint from, Duration grace) const;
  bool has_output() const { return !out_.empty() || !writing_.empty(); }
  TimePoint last_progress() const { return last_progress_; }
  void close();

 private:
  enum class Phase { reading, answering, lingering };

  template <typename F>
  auto handler(F f);
  void read_more();
  void on_readable(const boost::system::error_code& error);
  void process_input();
  void account_body();
  void release_body();
  void start_exchange();
  void refuse(const ApiError& error);
  void peer_closed();
  void drop();
  void send(std::string_view bytes);
  void flush();
  void on_written(const boost::system::error_code& error, std::size_t bytes);
  void finish_exchange(bool keep_alive);
  void next_request();
  void linger();

  ConnectionHost& host_;
  boost::asio::ip::tcp::socket socket_;
  RequestReader reader_;
  Phase phase_ = Phase::reading;
  std::string in_;           // read and not yet used
  std::string out_;          // to be written next
  std::string writing_;      // being written
  std::size_t written_ = 0;  // of it
  ResponseFraming framing_;
  ExchangeId exchange_ = 0;        // 0: none is open
  std::size_t largest_piece_ = 0;  // of the stream so far, in bytes
  std::size_t body_reserved_ = 0;
  std::size_t lingered_ = 0;
  TimePoint linger_began_;
  int pending_ = 0;  // handlers that have not run to their end
  bool reading_ = false;
  bool flush_posted_ = false;
  bool continued_ = false;
  bool used_ = false;  // a byte has come
  bool closed_ = false;
  TimePoint last_progress_;
  TimePoint request_began_;
};

}  // namespace plimsoll
