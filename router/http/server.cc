#include "router/http/server.h"

#include <algorithm>
#include <random>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <fmt/core.h>
#include <sys/socket.h>

namespace plimsoll {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr std::size_t kReadBufferBytes = 64 * 1024;
constexpr Duration kAcceptAgainAfter = std::chrono::milliseconds(100);
// Beyond the limit of connections: those that are only told so, or have been told something else.
constexpr std::size_t kLeavingMax = 256;

std::string url_of(const tcp::endpoint& endpoint) {
  asio::ip::address address = endpoint.address();
  if (address.is_unspecified()) {
    address = address.is_v6() ? asio::ip::address(asio::ip::address_v6::loopback())
                              : asio::ip::address(asio::ip::address_v4::loopback());
  }
  const std::string host = address.is_v6() ? "[" + address.to_string() + "]" : address.to_string();
  return fmt::format("http://{}:{}", host, endpoint.port());
}

std::string new_request_id() {
  std::random_device random;
  return fmt::format("req-{:08x}{:08x}", random(), random());
}

}  // namespace

HttpServer::HttpServer(asio::io_context& io, const HttpLimits& limits, HttpEvents events)
    : io_(io),
      limits_(limits),
      events_(std::move(events)),
      acceptor_(io),
      accept_again_(io),
      sweep_timer_(io),
      read_buffer_(kReadBufferBytes),
      quiet_timer_(io) {}

HttpServer::~HttpServer() = default;

Status HttpServer::listen(UniqueFd listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): the sockets API asks for it.
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      (address.ss_family != AF_INET && address.ss_family != AF_INET6)) {
    return invalid("listen for HTTP: the descriptor that came is no TCP socket");
  }
  error_code error;
  acceptor_.assign(address.ss_family == AF_INET6 ? tcp::v6() : tcp::v4(), listener.release(),
                   error);
  tcp::endpoint endpoint;
  if (!error) endpoint = acceptor_.local_endpoint(error);
  if (!error) acceptor_.non_blocking(true, error);
  if (error) return invalid("listen for HTTP: " + error.message());
  url_ = url_of(endpoint);
  sweep();
  return {};
}

// ---- accepting ----

void HttpServer::accept() {
  acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
    // What was accepted just before the end is a client like any other.
    if (!error) accepted(std::move(socket));
    if (error == asio::error::operation_aborted || !acceptor_.is_open()) return;
    if (!error) return accept();
    // Out of descriptors, as a rule: those that close make room.
    accept_again_.expires_after(kAcceptAgainAfter);
    accept_again_.async_wait([this](const error_code& stopped) {
      if (!stopped && acceptor_.is_open()) accept();
    });
  });
}

void HttpServer::accepted(tcp::socket socket) {
  error_code ignored;
  socket.non_blocking(true, ignored);
  socket.set_option(tcp::no_delay(true), ignored);
  const bool has_room = make_room();
  if (!has_room && connections_.size() >= limits_.connections_max + kLeavingMax) return;
  ConnectionHost& host = *this;
  connections_.push_back(std::make_unique<Connection>(host, std::move(socket)));
  if (has_room) return connections_.back()->start();
  ApiError error;
  error.status = 503;
  error.message =
      fmt::format("{} connections are open, which is the limit", limits_.connections_max);
  error.code = "too_many_connections";
  error.retry_after_s = 1;
  connections_.back()->start_refused(error);
}

bool HttpServer::make_room() {
  if (connections_.size() < limits_.connections_max) return true;
  const auto leaving = static_cast<std::size_t>(
      std::ranges::count_if(connections_, [](const auto& one) { return one->leaving(); }));
  const bool has_room = connections_.size() - leaving < limits_.connections_max;
  return (has_room && leaving < kLeavingMax) || evict_idle();
}

// A client that keeps a connection without using it gives way to one that wants something.
bool HttpServer::evict_idle() {
  Connection* oldest = nullptr;
  for (const auto& connection : connections_) {
    if (!connection->idle()) continue;
    if (oldest != nullptr && connection->last_progress() >= oldest->last_progress()) continue;
    if (!connection->has_unread()) oldest = connection.get();
  }
  if (oldest == nullptr) return false;
  oldest->close();
  return true;
}

void HttpServer::sweep() {
  sweep_timer_.expires_after(limits_.sweep_every);
  sweep_timer_.async_wait([this](const error_code& error) {
    if (error) return;
    const TimePoint time = now();
    for (const auto& connection : connections_) connection->check_time(time);
    sweep();
  });
}

void HttpServer::remove(Connection& connection) {
  connections_.remove_if([&](const auto& owned) { return owned.get() == &connection; });
  settled();
}

// ---- exchanges ----

ExchangeId HttpServer::begin_exchange(Connection& connection, HttpRequest request) {
  const ExchangeId exchange = next_exchange_++;
  exchanges_.emplace(exchange, &connection);
  if (request.request_id.empty()) request.request_id = new_request_id();
  request.received = unix_seconds();
  asio::post(io_, [this, exchange, request = std::move(request)]() mutable {
    if (exchanges_.contains(exchange)) events_.request(exchange, std::move(request));
  });
  return exchange;
}

void HttpServer::end_exchange(ExchangeId exchange, bool abandoned) {
  if (exchanges_.erase(exchange) == 0 || !abandoned) return;
  asio::post(io_, [this, exchange] { events_.hang_up(exchange); });
}

Connection* HttpServer::connection_of(ExchangeId exchange) {
  const auto found = exchanges_.find(exchange);
  return found == exchanges_.end() ? nullptr : found->second;
}

void HttpServer::respond(ExchangeId exchange, const HttpResponse& response) {
  if (Connection* connection = connection_of(exchange)) connection->respond(response);
}

void HttpServer::begin_stream(ExchangeId exchange, const HttpResponse& head) {
  if (Connection* connection = connection_of(exchange)) connection->begin_stream(head);
}

void HttpServer::write_stream(ExchangeId exchange, std::string_view data) {
  if (Connection* connection = connection_of(exchange)) connection->write_stream(data);
}

void HttpServer::end_stream(ExchangeId exchange, bool keep_alive) {
  if (Connection* connection = connection_of(exchange)) connection->end_stream(keep_alive);
}

void HttpServer::stop_accepting(std::function<void()> done) {
  wait_for_quiet(limits_.last_request_time, std::move(done));
}

void HttpServer::finish(std::function<void()> done) {
  wait_for_quiet(limits_.last_answer_time, std::move(done));
}

void HttpServer::wait_for_quiet(Duration grace, std::function<void()> done) {
  is_ending_ = true;
  error_code ignored;
  acceptor_.close(ignored);
  quiet_ = std::move(done);
  quiet_from_ = now();
  quiet_grace_ = grace;
  settled();
}

// A connection that was accepted and not yet read would be reset by closing it, and its client
// would have been refused.
void HttpServer::settled() {
  if (!quiet_) return;
  TimePoint by = exchanges_.empty() ? TimePoint::min() : TimePoint::max();
  for (const auto& connection : connections_) {
    by = std::max(by, connection->silent_by(quiet_from_, quiet_grace_));
  }
  if (by == TimePoint::max()) return;  // what is under way will tell
  if (by > now()) {
    quiet_timer_.expires_at(by);
    quiet_timer_.async_wait([this](const error_code& error) {
      if (!error) settled();
    });
    return;
  }
  for (const auto& connection : connections_) connection->close();
  asio::post(io_, std::exchange(quiet_, nullptr));
}

// ---- what connections share ----

bool HttpServer::reserve_body(std::size_t bytes) {
  if (body_bytes_ + bytes > limits_.bodies_bytes_max) return false;
  body_bytes_ += bytes;
  return true;
}

void HttpServer::release_body(std::size_t bytes) { body_bytes_ -= bytes; }

const std::string& HttpServer::date() {
  const std::int64_t second = unix_seconds();
  if (second != date_seconds_) {
    date_seconds_ = second;
    date_ = http_date(second);
  }
  return date_;
}

}  // namespace plimsoll
