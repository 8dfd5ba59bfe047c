#include "service/cli/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <string_view>

namespace tidepool::service {
namespace {

spdlog::level::level_enum LevelOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

spdlog::string_view_t View(absl::string_view line) { return {line.data(), line.size()}; }

}  // namespace

Log::Log(LogLevel least)
    : logger_(std::make_unique<spdlog::logger>("tidepool",
                                               std::make_shared<spdlog::sinks::stderr_sink_mt>())) {
  logger_->set_level(LevelOf(least));
  logger_->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  logger_->flush_on(spdlog::level::debug);
}

Log::~Log() = default;

void Log::Write(LogLevel level, absl::string_view line) {
  logger_->log(LevelOf(level), View(line));
}

}  // namespace tidepool::service
