#include "router/api/metrics.h"

#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace plimsoll {
namespace {

std::string label_value(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

// Name pairs: ours and vLLM's for the same number.
class Writer {
 public:
  explicit Writer(const std::string& model)
      : model_(fmt::format("model_name=\"{}\"", label_value(model))) {}

  void family(std::string_view name, std::string_view type, std::string_view help) {
    out_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }

  template <typename Value>
  void number(std::string_view name, std::string_view type, std::string_view help, Value value) {
    family(name, type, help);
    out_ += fmt::format("{}{{{}}} {}\n", name, model_, value);
  }

  template <typename Value>
  void sample(std::string_view name, std::string_view label, std::string_view label_text,
              Value value) {
    out_ +=
        fmt::format("{}{{{},{}=\"{}\"}} {}\n", name, model_, label, label_value(label_text), value);
  }

  void histogram(std::string_view name, std::string_view help, const Histogram& histogram) {
    family(name, "histogram", help);
    std::int64_t below = 0;
    for (std::size_t i = 0; i < kSecondsBounds.size(); ++i) {
      below += histogram.counts[i];
      sample(fmt::format("{}_bucket", name), "le", fmt::format("{}", kSecondsBounds[i]), below);
    }
    sample(fmt::format("{}_bucket", name), "le", "+Inf", histogram.count);
    out_ += fmt::format("{}_sum{{{}}} {}\n", name, model_, histogram.sum);
    out_ += fmt::format("{}_count{{{}}} {}\n", name, model_, histogram.count);
  }

  std::string take() { return std::move(out_); }

 private:
  std::string model_;
  std::string out_;
};

void write_gauges(Writer& writer, const Gauges& gauges) {
  for (std::string_view name : {"plimsoll_requests_running", "vllm:num_requests_running"}) {
    writer.number(name, "gauge", "Requests that the replicas are computing.", gauges.running);
  }
  for (std::string_view name : {"plimsoll_requests_waiting", "vllm:num_requests_waiting"}) {
    writer.number(name, "gauge", "Requests that wait for a place.", gauges.waiting);
  }
  for (std::string_view name : {"plimsoll_kv_cache_usage", "vllm:kv_cache_usage_perc"}) {
    writer.number(name, "gauge", "Used share of the KV blocks; 1 is full.", gauges.kv_usage);
  }
  writer.number("plimsoll_replicas", "gauge", "Replicas of the deployment.", gauges.replicas);
  writer.number("plimsoll_replicas_ready", "gauge", "Replicas that take requests.",
                gauges.replicas_ready);
}

void write_counters(Writer& writer, const Metrics& metrics) {
  for (std::string_view name : {"plimsoll_prompt_tokens_total", "vllm:prompt_tokens_total"}) {
    writer.number(name, "counter", "Prompt tokens of accepted requests.", metrics.prompt_tokens);
  }
  for (std::string_view name :
       {"plimsoll_cached_prompt_tokens_total", "vllm:prefix_cache_hits_total"}) {
    writer.number(name, "counter", "Prompt tokens that were found in a prefix cache.",
                  metrics.cached_tokens);
  }
  for (std::string_view name :
       {"plimsoll_generation_tokens_total", "vllm:generation_tokens_total"}) {
    writer.number(name, "counter", "Generated tokens.", metrics.generation_tokens);
  }
  for (std::string_view name : {"plimsoll_requests_finished_total", "vllm:request_success_total"}) {
    writer.family(name, "counter", "Choices that ended, by reason.");
    for (const auto& [reason, count] : metrics.finished) {
      writer.sample(name, "finished_reason", reason, count);
    }
  }
  writer.number("plimsoll_requests_failed_total", "counter",
                "Completion requests that ended with an error.", metrics.failed);
  writer.number("plimsoll_requests_resumed_total", "counter",
                "Times that a choice went on after its replica was lost.", metrics.resumed);
  writer.number("plimsoll_requests_abandoned_total", "counter",
                "Completion requests whose client went away.", metrics.abandoned);
  writer.family("plimsoll_http_responses_total", "counter", "HTTP responses, by status.");
  for (const auto& [status, count] : metrics.responses) {
    writer.sample("plimsoll_http_responses_total", "status", std::to_string(status), count);
  }
}

}  // namespace

void Histogram::observe(double seconds) {
  ++count;
  sum += seconds;
  for (std::size_t i = 0; i < kSecondsBounds.size(); ++i) {
    if (seconds <= kSecondsBounds[i]) {
      ++counts[i];
      return;
    }
  }
}

std::string metrics_text(const Metrics& metrics, const Gauges& gauges, const std::string& model) {
  Writer writer(model);
  write_gauges(writer, gauges);
  write_counters(writer, metrics);
  for (std::string_view name :
       {"plimsoll_time_to_first_token_seconds", "vllm:time_to_first_token_seconds"}) {
    writer.histogram(name, "From a request's arrival to its first token.", metrics.first_token_s);
  }
  for (std::string_view name : {"plimsoll_request_seconds", "vllm:e2e_request_latency_seconds"}) {
    writer.histogram(name, "From a request's arrival to its end.", metrics.request_s);
  }
  return writer.take();
}

}  // namespace plimsoll
