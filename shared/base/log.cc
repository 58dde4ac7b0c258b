#include "shared/base/log.h"

#include <memory>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace plimsoll {
namespace {

spdlog::level::level_enum library_level(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void log_start(std::string who, LogLevel level) {
  auto logger = std::make_shared<spdlog::logger>(std::move(who),
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %L %n: %v");
  logger->set_level(library_level(level));
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
}

void log_level(LogLevel level) { spdlog::default_logger_raw()->set_level(library_level(level)); }

bool log_enabled(LogLevel level) {
  return spdlog::default_logger_raw()->should_log(library_level(level));
}

void log_line(LogLevel level, std::string_view message) {
  spdlog::default_logger_raw()->log(library_level(level), message);
}

}  // namespace plimsoll
