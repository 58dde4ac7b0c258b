// Log: one line an event, to stderr. For the processes only: libraries return errors instead.
//
// The only global of the project. `log_start` is called once, first thing in main; the level may be
// changed at any time. The daemon reads its children's stderr line by line and keeps it.
#pragma once

#include <string>
#include <string_view>

#include <fmt/core.h>

namespace plimsoll {

enum class LogLevel { debug, info, warning, error };

// `who` stands in every line: "plimsolld", "router", "worker 0.1" (replica.rank).
void log_start(std::string who, LogLevel level);
void log_level(LogLevel level);
bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view message);

template <typename... Args>
void log_message(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace plimsoll

#define LOG_DEBUG(...) ::plimsoll::log_message(::plimsoll::LogLevel::debug, __VA_ARGS__)
#define LOG_INFO(...) ::plimsoll::log_message(::plimsoll::LogLevel::info, __VA_ARGS__)
#define LOG_WARNING(...) ::plimsoll::log_message(::plimsoll::LogLevel::warning, __VA_ARGS__)
#define LOG_ERROR(...) ::plimsoll::log_message(::plimsoll::LogLevel::error, __VA_ARGS__)
