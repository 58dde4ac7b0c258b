// Metrics: the router's counters, and their Prometheus text: plimsoll_* with vllm: aliases for
// what autoscalers and dashboards already read under those names.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

namespace plimsoll {

constexpr std::array<double, 16> kSecondsBounds = {0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                                   1,     2.5,   5,    10,    30,   60,  120,  300};

struct Histogram {
  std::array<std::int64_t, kSecondsBounds.size()> counts{};  // of each bucket alone
  std::int64_t count = 0;
  double sum = 0;
  void observe(double seconds);
};

struct Metrics {
  std::map<int, std::int64_t> responses;         // by status
  std::map<std::string, std::int64_t> finished;  // completion requests by finish reason
  std::int64_t failed = 0;                       // completion requests that ended with an error
  std::int64_t resumed = 0;                      // times that one went on after its replica's loss
  std::int64_t abandoned = 0;                    // whose client went away
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;  // of them: found in a prefix cache
  std::int64_t generation_tokens = 0;
  Histogram first_token_s;
  Histogram request_s;
};

// What is read off at the moment of asking.
struct Gauges {
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  double kv_usage = 0;  // 0 to 1
  std::int64_t replicas = 0;
  std::int64_t replicas_ready = 0;
};

std::string metrics_text(const Metrics& metrics, const Gauges& gauges, const std::string& model);

}  // namespace plimsoll
