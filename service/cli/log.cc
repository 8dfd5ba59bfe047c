#include "service/cli/log.h"

#include <spdlog/details/log_msg.h>
#include <spdlog/pattern_formatter.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "service/cli/console.h"

namespace tidepool::service {
namespace {

// RFC 3339 time with the offset from UTC.
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

std::unique_ptr<spdlog::formatter> MakeFormatter(LogFormat format) {
  return std::make_unique<spdlog::pattern_formatter>(format == LogFormat::kJson ? kJsonPattern
                                                                                : kTextPattern);
}

// Returns the formatted line with its newline.
std::string Formatted(LogLevel level, absl::string_view text, spdlog::formatter* formatter) {
  spdlog::memory_buf_t line;
  formatter->format(spdlog::details::log_msg("", LevelOf(level), View(text)), line);
  return std::string(line.data(), line.size());
}

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

std::string DroppedLinesNote(LogFormat format, int64_t count) {
  const std::string line = absl::StrCat(count, count == 1 ? " log line was" : " log lines were",
                                        " dropped: they could not be written in time");
  return Formatted(LogLevel::kWarn,
                   format == LogFormat::kJson ? LogMembers(line, {}) : LogText(line, {}),
                   MakeFormatter(format).get());
}

Log::Log(LogLevel least, LogFormat format, LineWriter* writer)
    : format_(format), writer_(writer), least_(least), formatter_(MakeFormatter(format)) {}

Log::~Log() = default;

void Log::Write(LogLevel level, absl::string_view line, LogFields fields) {
  if (level < least_) return;
  const std::string text =
      format_ == LogFormat::kJson ? LogMembers(line, fields) : LogText(line, fields);
  std::string formatted;
  {
    base::MutexLock lock(&mutex_);
    formatted = Formatted(level, text, formatter_.get());
  }
  writer_->Write(std::move(formatted));
}

LogSink Log::Sink() {
  return LogSink([this](LogLevel level, absl::string_view line,
                        LogFields fields) { Write(level, line, fields); },
                 [this] { return writer_->dropped(); });
}

}  // namespace tidepool::service
