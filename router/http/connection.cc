#include "router/http/connection.h"

#include <algorithm>
#include <random>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <fmt/core.h>

namespace plimsoll {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

ApiError too_slow() {
  ApiError error;
  error.status = 408;
  error.message = "the request did not arrive whole in time";
  error.code = "request_timeout";
  return error;
}

ApiError no_room_for_body() {
  ApiError error;
  error.status = 503;
  error.message = "too many large requests are being read at this moment";
  error.code = "unavailable";
  error.retry_after_s = 1;
  return error;
}

}  // namespace

// Counts a handler as pending until it has run, so that the connection outlives all of them.
template <typename F>
auto Connection::handler(F f) {
  ++pending_;
  return [this, f](auto... arguments) {
    f(arguments...);
    if (--pending_ == 0 && closed_) return host_.remove(*this);
    host_.settled();
  };
}

Connection::Connection(ConnectionHost& host, asio::ip::tcp::socket socket)
    : host_(host), socket_(std::move(socket)), reader_(host.limits().request) {
  last_progress_ = now();
}

void Connection::start() { read_more(); }

void Connection::start_refused(const ApiError& error) {
  refuse(error);
  read_more();
}

bool Connection::idle() const {
  return phase_ == Phase::reading && in_.empty() && !has_output() &&
         reader_.state() == RequestReader::State::header;
}

bool Connection::has_unread() const {
  error_code error;
  return socket_.available(error) > 0 && !error;
}

TimePoint Connection::silent_by(TimePoint from, Duration grace) const {
  if (closed_) return TimePoint::min();
  if (exchange_ != 0 || has_output() || !(idle() || leaving()) || has_unread()) {
    return TimePoint::max();
  }
  if (leaving()) return last_progress_ + std::min(grace, host_.limits().last_answer_time);
  return (used_ ? last_progress_ : std::max(last_progress_, from)) + grace;
}

void Connection::read_more() {
  if (reading_ || closed_) return;
  if (phase_ == Phase::answering && in_.size() >= host_.limits().pipelined_bytes_max) return;
  reading_ = true;
  socket_.async_wait(asio::ip::tcp::socket::wait_read,
                     handler([this](const error_code& error) { on_readable(error); }));
}

void Connection::on_readable(const error_code& wait_error) {
  reading_ = false;
  if (closed_) return;
  error_code error = wait_error;
  const std::span<char> buffer = host_.read_buffer();
  std::size_t bytes = 0;
  if (!error) bytes = socket_.read_some(asio::buffer(buffer.data(), buffer.size()), error);
  if (error == asio::error::would_block) return read_more();
  if (error == asio::error::eof) return peer_closed();
  if (error) return drop();
  last_progress_ = now();
  used_ = true;
  if (phase_ == Phase::lingering) {
    lingered_ += bytes;
    if (lingered_ > host_.limits().linger_bytes_max) return close();
    return read_more();
  }
  if (phase_ == Phase::reading && in_.empty() && reader_.state() == RequestReader::State::header) {
    request_began_ = last_progress_;
  }
  in_.append(buffer.data(), bytes);
  if (phase_ == Phase::reading) process_input();
  read_more();
}

void Connection::process_input() {
  in_.erase(0, reader_.feed(in_));
  account_body();
  if (phase_ != Phase::reading) return;
  switch (reader_.state()) {
    case RequestReader::State::failed:
      return refuse(reader_.refusal());
    case RequestReader::State::complete:
      return start_exchange();
    case RequestReader::State::body:
      if (reader_.wants_continue() && !std::exchange(continued_, true)) send(kContinue);
      break;
    case RequestReader::State::header:
      break;
  }
}

void Connection::account_body() {
  const std::size_t bytes = reader_.body_bytes();
  if (bytes <= body_reserved_) return;
  if (!host_.reserve_body(bytes - body_reserved_)) return refuse(no_room_for_body());
  body_reserved_ = bytes;
}

void Connection::release_body() { host_.release_body(std::exchange(body_reserved_, 0)); }

void Connection::start_exchange() {
  framing_ = {.head_only = reader_.is_head(),
              .keep_alive = reader_.keep_alive(),
              .http_1_0 = reader_.http_1_0(),
              .date = {}};
  HttpRequest request = reader_.take();
  release_body();
  phase_ = Phase::answering;
  exchange_ = host_.begin_exchange(*this, std::move(request));
}

// The stream of bytes has lost its meaning (or its sender its right): answer and close.
void Connection::refuse(const ApiError& error) {
  release_body();
  framing_ = {.head_only = false, .keep_alive = false, .http_1_0 = false, .date = host_.date()};
  phase_ = Phase::answering;
  HttpResponse response = error_response(error);
  std::random_device random;
  response.headers.emplace_back("X-Request-Id",
                                fmt::format("req-{:08x}{:08x}", random(), random()));
  send(response_bytes(response, framing_));
  host_.refused(error.status);
}

// The client will send no more. An answer that is complete still goes out.
void Connection::peer_closed() {
  const bool answered = phase_ == Phase::answering && exchange_ == 0 && has_output();
  if (!answered) return drop();
  framing_.keep_alive = false;
}

void Connection::drop() {
  if (exchange_ != 0) host_.end_exchange(std::exchange(exchange_, 0), true);
  close();
}

void Connection::close() {
  if (std::exchange(closed_, true)) return;
  if (exchange_ != 0) host_.end_exchange(std::exchange(exchange_, 0), true);
  release_body();
  error_code ignored;
  socket_.close(ignored);
  out_.clear();
  if (pending_ == 0) asio::post(socket_.get_executor(), handler([] {}));
}

void Connection::send(std::string_view bytes) {
  if (closed_ || bytes.empty()) return;
  if (!has_output()) last_progress_ = now();
  out_ += bytes;
  if (!writing_.empty() || std::exchange(flush_posted_, true)) return;
  // What one event makes is written in one piece, once all of it is there.
  asio::post(socket_.get_executor(), handler([this] {
               flush_posted_ = false;
               flush();
             }));
}

void Connection::flush() {
  if (closed_) return;
  if (writing_.empty()) {
    if (out_.empty()) return;
    writing_.swap(out_);
  }
  socket_.async_write_some(
      asio::buffer(writing_.data() + written_, writing_.size() - written_),
      handler([this](const error_code& error, std::size_t bytes) { on_written(error, bytes); }));
}

void Connection::on_written(const error_code& error, std::size_t bytes) {
  if (closed_) return;
  if (error) return drop();
  last_progress_ = now();
  written_ += bytes;
  if (written_ == writing_.size()) {
    writing_.clear();
    written_ = 0;
  }
  if (has_output()) return flush();
  if (phase_ == Phase::answering && exchange_ == 0) next_request();
}

void Connection::respond(const HttpResponse& response) {
  framing_.date = host_.date();
  framing_.keep_alive = framing_.keep_alive && host_.keeps_alive();
  send(response_bytes(response, framing_));
  finish_exchange(framing_.keep_alive);
}

void Connection::begin_stream(const HttpResponse& head) {
  largest_piece_ = 0;
  framing_.date = host_.date();
  // Without chunks only the end of the connection ends the body.
  if (framing_.http_1_0 || !host_.keeps_alive()) framing_.keep_alive = false;
  send(stream_head_bytes(head, framing_));
}

void Connection::write_stream(std::string_view data) {
  // A client is slow when it leaves more unread than a limit beside the largest piece, which came
  // at once and left it no time.
  const std::size_t backlog = out_.size() + writing_.size() - written_;
  if (backlog > host_.limits().stream_bytes_max + largest_piece_) return drop();
  largest_piece_ = std::max(largest_piece_, data.size());
  send(chunk_bytes(data, framing_));
}

void Connection::end_stream(bool keep_alive) {
  send(end_of_stream_bytes(framing_));
  framing_.keep_alive = framing_.keep_alive && keep_alive;
  finish_exchange(framing_.keep_alive);
}

void Connection::finish_exchange(bool keep_alive) {
  framing_.keep_alive = keep_alive;
  if (exchange_ != 0) host_.end_exchange(std::exchange(exchange_, 0), false);
}

void Connection::next_request() {
  if (!framing_.keep_alive) return linger();
  reader_ = RequestReader(host_.limits().request);
  continued_ = false;
  phase_ = Phase::reading;
  request_began_ = last_progress_;
  if (!in_.empty()) process_input();
  read_more();
}

// Closing with unread bytes would reset the connection, and the client might never see the answer.
void Connection::linger() {
  phase_ = Phase::lingering;
  linger_began_ = now();
  in_.clear();
  error_code error;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, error);
  if (error) return close();
  read_more();
}

void Connection::check_time(TimePoint now_time) {
  if (closed_) return;
  const HttpLimits& limits = host_.limits();
  const Duration silence = now_time - last_progress_;
  if (has_output()) {
    if (silence > limits.write_silence) drop();
    return;
  }
  if (phase_ == Phase::lingering) {
    const bool late =
        silence > limits.linger_time || now_time - linger_began_ > limits.linger_time_max;
    if (late) close();
    return;
  }
  if (phase_ != Phase::reading) return;
  if (reader_.state() == RequestReader::State::body) {
    const bool late = silence > limits.body_silence || now_time - request_began_ > limits.body_time;
    if (late) refuse(too_slow());
  } else if (in_.empty()) {
    if (silence > limits.idle_time && !has_unread()) close();
  } else if (now_time - request_began_ > limits.header_time) {
    refuse(too_slow());
  }
}

}  // namespace plimsoll
