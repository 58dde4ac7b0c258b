#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "shared/collective/collective_forecast.h"
#include "shared/memory/memory_terms.h"

namespace plimsoll {
namespace {

std::string time_text(double us) {
  if (us < 1000) return fmt::format("{:.1f} µs", us);
  return fmt::format("{:.1f} ms", us / 1000);
}

std::string speed_text(const std::optional<double>& speed) {
  return speed ? fmt::format("{:.0f}", *speed) : "?";
}

// `µ` takes two bytes, and columns are of characters.
std::string right(const std::string& text, std::size_t width) {
  const auto continued = std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; });
  const std::size_t length = text.size() - static_cast<std::size_t>(continued);
  return std::string(length < width ? width - length : 0, ' ') + text;
}

Json time_json(const ReduceTime& time, Bytes bytes) {
  return Json::object({{"bytes", bytes},
                       {"us", time.us},
                       {"algorithm", time.algorithm},
                       {"formula", time.formula}});
}

Json step_json(const std::optional<StepForecast>& step) {
  if (!step) return {};
  return Json::object({{"requests", step->requests},
                       {"weights", step->weights},
                       {"kv", step->kv},
                       {"read_us", step->read_us},
                       {"launch_us", step->launch_us},
                       {"formula", step->formula}});
}

Json speed_json(const std::optional<double>& speed) { return speed ? Json(*speed) : Json(); }

}  // namespace

std::string forecast_report(const CollectiveForecast& forecast) {
  std::string out = fmt::format("collective {}\n", forecast.choice);
  out += fmt::format("  predicted for {} ranks over {}; {} all-reduces a step, {} B a value\n",
                     forecast.ranks, forecast.link, forecast.reductions, forecast.value_bytes);
  out += fmt::format("  {:<16}{:>12}{:>13}{:>12}{:>13}{:>8}\n", "", "1 request",
                     fmt::format("{} requests", kForecastRequests), "prefill", "tok/s at 1",
                     fmt::format("at {}", kForecastRequests));
  for (const BackendForecast& backend : forecast.backends) {
    if (!backend.is_there) {
      out += fmt::format("  {:<16}not there: {}\n", backend.name, backend.why_not);
      continue;
    }
    out += fmt::format("  {:<16}{}{}{}{:>13}{:>8}\n", backend.name,
                       right(time_text(backend.one.us), 12), right(time_text(backend.many.us), 13),
                       right(time_text(backend.prefill.us), 12), speed_text(backend.tokens_per_s),
                       speed_text(backend.tokens_per_s_many));
  }
  if (!forecast.step) {
    out += "  tokens a second are not known without the devices' memory_gb_per_s\n";
  }
  return out;
}

std::string explain_forecast(const CollectiveForecast& forecast) {
  std::string out = fmt::format("collective {}\n", forecast.choice);
  out += fmt::format("links: {}\n", forecast.link);
  out += "step = reading + launching + all-reduces; tokens/s = requests / step\n";
  for (const auto& step : {forecast.step, forecast.step_many}) {
    if (!step) continue;
    out += fmt::format("{}: {}\n", counted(step->requests, "request"), step->formula);
  }
  for (const BackendForecast& backend : forecast.backends) {
    out += fmt::format("{}: {}{}\n", backend.name, backend.about,
                       backend.is_there ? "" : "; not there: " + backend.why_not);
    const auto line = [&](std::string_view what, const ReduceTime& time,
                          const std::optional<double>& speed) {
      out +=
          fmt::format("  {}: {} = {} ({})", what, time.formula, time_text(time.us), time.algorithm);
      if (speed) out += fmt::format("; x {} -> {:.1f} tokens/s", forecast.reductions, *speed);
      out += "\n";
    };
    line("1 request", backend.one, backend.tokens_per_s);
    line(counted(kForecastRequests, "request"), backend.many, backend.tokens_per_s_many);
    line(counted(forecast.prefill_tokens, "token") + " of prompts", backend.prefill, std::nullopt);
    out += fmt::format("  numbers: {}\n", backend.source);
  }
  return out;
}

Json forecast_to_json(const CollectiveForecast& forecast) {
  Json backends = Json::array();
  for (const BackendForecast& backend : forecast.backends) {
    Json one = Json::object(
        {{"name", backend.name},
         {"about", backend.about},
         {"is_there", backend.is_there},
         {"why_not", backend.why_not},
         {"decode", time_json(backend.one, backend.row_bytes)},
         {"decode_many", time_json(backend.many, kForecastRequests * backend.row_bytes)},
         {"prefill", time_json(backend.prefill, forecast.prefill_tokens * backend.row_bytes)},
         {"source", backend.source}});
    one.set("tokens_per_s", speed_json(backend.tokens_per_s));
    one.set("tokens_per_s_many", speed_json(backend.tokens_per_s_many));
    backends.push(std::move(one));
  }
  return Json::object({{"choice", forecast.choice},
                       {"ranks", forecast.ranks},
                       {"reductions", forecast.reductions},
                       {"link", forecast.link},
                       {"requests_many", kForecastRequests},
                       {"step", step_json(forecast.step)},
                       {"step_many", step_json(forecast.step_many)},
                       {"backends", std::move(backends)}});
}

}  // namespace plimsoll
