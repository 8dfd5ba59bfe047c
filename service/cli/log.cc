#include "service/cli/log.h"

#include <spdlog/async_logger.h>
#include <spdlog/details/thread_pool.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "service/cli/console.h"

namespace tidepool::service {
namespace {

// RFC 3339, with the offset from UTC.
constexpr char kTextPattern[] = "%Y-%m-%dT%H:%M:%S.%e%z %l %v";
constexpr char kJsonPattern[] = R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",%v})";

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

std::string Quoted(absl::string_view text) { return ToLine(Json(std::string(text))); }

bool IsPlain(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isgraph(c) && c != '"' && c != '=';
  });
}

std::string TextOf(const LogField& field) {
  if (const auto* text = std::get_if<absl::string_view>(&field.value)) {
    return IsPlain(*text) ? std::string(*text) : Quoted(*text);
  }
  if (const auto* number = std::get_if<int64_t>(&field.value)) return absl::StrCat(*number);
  return absl::StrCat(std::get<double>(field.value));
}

std::string JsonOf(const LogField& field) {
  if (const auto* text = std::get_if<absl::string_view>(&field.value)) return Quoted(*text);
  if (const auto* number = std::get_if<int64_t>(&field.value)) return absl::StrCat(*number);
  return ToLine(Json(std::get<double>(field.value)));
}

}  // namespace

std::string LogText(absl::string_view line, LogFields fields) {
  std::string text = OneLine(line);
  for (const LogField& field : fields) absl::StrAppend(&text, " ", field.name, "=", TextOf(field));
  return text;
}

std::string LogMembers(absl::string_view line, LogFields fields) {
  std::string members = absl::StrCat("\"message\":", Quoted(line));
  for (const LogField& field : fields) {
    absl::StrAppend(&members, ",\"", field.name, "\":", JsonOf(field));
  }
  return members;
}

Log::Log(LogLevel least, LogFormat format)
    : format_(format),
      pool_(std::make_shared<spdlog::details::thread_pool>(kMostWaiting, /*threads_n=*/1)),
      logger_(std::make_shared<spdlog::async_logger>(
          "tidepool", std::make_shared<spdlog::sinks::stderr_sink_mt>(), pool_,
          spdlog::async_overflow_policy::overrun_oldest)) {
  SetLevel(least);
  logger_->set_pattern(format == LogFormat::kJson ? kJsonPattern : kTextPattern);
  logger_->flush_on(spdlog::level::debug);
}

Log::~Log() {
  const size_t dropped = pool_->overrun_counter();
  if (dropped == 0) return;
  Write(LogLevel::kWarn,
        absl::StrCat(dropped, " lines of this log were dropped: nobody read them"));
}

void Log::SetLevel(LogLevel least) { logger_->set_level(LevelOf(least)); }

void Log::Write(LogLevel level, absl::string_view line, LogFields fields) {
  const spdlog::level::level_enum severity = LevelOf(level);
  if (!logger_->should_log(severity)) return;
  logger_->log(severity, View(format_ == LogFormat::kJson ? LogMembers(line, fields)
                                                          : LogText(line, fields)));
}

LogSink Log::Sink() {
  return [this](LogLevel level, absl::string_view line, LogFields fields) {
    Write(level, line, fields);
  };
}

}  // namespace tidepool::service
