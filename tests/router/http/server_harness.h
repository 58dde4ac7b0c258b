// ServerHarness: the HTTP server in a thread of the test, with an application of three paths:
// /echo answers the body, /silent never answers, /stream sends without end, /held what the test
// says.
#pragma once

#include <condition_variable>
#include <future>
#include <mutex>
#include <string>
#include <thread>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <gtest/gtest.h>

#include "router/http/server.h"
#include "shared/base/clock.h"
#include "tests/support/raw_http.h"

namespace plimsoll {

class ServerHarness {
 public:
  explicit ServerHarness(const HttpLimits& limits = {})
      : server_(io_, limits,
                {.request = [this](ExchangeId id, const HttpRequest& r) { request(id, r); },
                 .hang_up =
                     [this](ExchangeId id) {
                       if (id == streaming_) streaming_ = 0;
                       count(hang_ups_);
                     },
                 .refused = [](int) {}}) {
    LoopbackListener listener = listen_on_loopback();
    port_ = listener.port;
    const Status status = server_.listen(std::move(listener.socket));
    EXPECT_TRUE(status) << status.error().message;
    server_.start();
    thread_ = std::thread([this] { io_.run(); });
  }
  ServerHarness(const ServerHarness&) = delete;
  ServerHarness& operator=(const ServerHarness&) = delete;
  ~ServerHarness() {
    io_.stop();
    thread_.join();
  }

  std::uint16_t port() const { return port_; }
  // Into the answer to /held.
  void end_held() {
    boost::asio::post(io_, [this] { server_.end_stream(streaming_, true); });
  }
  void write(std::string data) {
    boost::asio::post(io_, [this, data] { server_.write_stream(streaming_, data); });
  }
  // Waits until it has accepted so many that are still there.
  void wait_for_connections(std::size_t count) {
    std::size_t got = count + 1;
    for (const TimePoint end = now() + seconds(10); got != count && now() < end;) {
      std::promise<std::size_t> answer;
      boost::asio::post(io_, [&] { answer.set_value(server_.connections()); });
      got = answer.get_future().get();
    }
    EXPECT_EQ(got, count);
  }
  void stop_accepting() {
    boost::asio::post(io_, [this] { server_.stop_accepting([this] { count(quiet_); }); });
  }
  void finish() {
    boost::asio::post(io_, [this] { server_.finish([this] { count(quiet_); }); });
  }
  // Until nothing was to come any more; and whether it is so now.
  void wait_for_quiet() { wait_for(quiet_, 1); }
  bool is_quiet() {
    const std::lock_guard lock(mutex_);
    return quiet_ > 0;
  }
  // Requests of /silent so far, and hang-ups.
  void wait_for_silent(int count) { wait_for(silent_, count); }
  void wait_for_hang_ups(int count) { wait_for(hang_ups_, count); }

 private:
  void request(ExchangeId id, const HttpRequest& request) {
    if (request.path == "/silent") {
      return count(silent_);
    }
    if (request.path == "/stream") {
      streaming_ = id;
      server_.begin_stream(id, {});
      return stream();
    }
    if (request.path == "/held") {
      streaming_ = id;
      return server_.begin_stream(id, {});
    }
    HttpResponse response;
    response.body = request.body;
    server_.respond(id, response);
  }
  void count(int& counter) {
    const std::lock_guard lock(mutex_);
    ++counter;
    changed_.notify_all();
  }
  void wait_for(const int& counter, int value) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, seconds(10), [&] { return counter >= value; });
    EXPECT_EQ(counter, value);
  }
  void stream() {
    if (streaming_ == 0) return;
    server_.write_stream(streaming_, std::string(10'000, 'x'));
    boost::asio::post(io_, [this] { stream(); });
  }

  boost::asio::io_context io_{1};
  HttpServer server_;
  std::uint16_t port_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  int silent_ = 0;
  int hang_ups_ = 0;
  int quiet_ = 0;
  ExchangeId streaming_ = 0;
  std::thread thread_;
};

}  // namespace plimsoll
