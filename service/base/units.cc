#include "service/base/units.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/base/status_macros.h"

namespace tidepool::service {
namespace {

struct SizeUnit {
  absl::string_view name;
  double bytes;
};
constexpr SizeUnit kSizeUnits[] = {
    {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0},
    {"KB", 1e3},     {"MB", 1e6},        {"GB", 1e9},           {"TB", 1e12},
    {"B", 1.0},
};

// Names of flags and commands are shorter than this. The limit is needed because the time to
// compare two names is proportional to the product of their lengths.
constexpr size_t kLongestName = 64;

absl::Status BadValue(absl::string_view found, absl::string_view accepted) {
  return absl::InvalidArgumentError(absl::StrCat("\"", found, "\" is not ", accepted));
}

// Returns how many edits (insert, delete or replace a character) turn `a` into `b`.
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace

absl::StatusOr<size_t> ParseSize(absl::string_view text) {
  constexpr absl::string_view kAccepted = "a size with a unit, such as 512MiB or 1.5GiB";
  for (const SizeUnit& unit : kSizeUnits) {
    absl::string_view digits = text;
    if (!absl::ConsumeSuffix(&digits, unit.name)) continue;
    digits = absl::StripTrailingAsciiWhitespace(digits);
    double value = 0;
    if (digits.empty() || !absl::ascii_isdigit(digits[0]) || !absl::SimpleAtod(digits, &value)) {
      break;
    }
    const double bytes = value * unit.bytes;
    if (!(bytes < 9e18)) break;
    return static_cast<size_t>(bytes);
  }
  return BadValue(text, kAccepted);
}

absl::StatusOr<absl::Duration> ParseTime(absl::string_view text) {
  absl::Duration duration;
  if (!absl::ParseDuration(std::string(text), &duration) || duration < absl::ZeroDuration() ||
      duration == absl::InfiniteDuration()) {
    return BadValue(text, "a time with a unit, such as 500ms, 30s or 2m");
  }
  return duration;
}

absl::StatusOr<int64_t> ParseInteger(absl::string_view text, int64_t least, int64_t most) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < least || value > most) {
    if (most == std::numeric_limits<int64_t>::max()) {
      return BadValue(text, absl::StrCat("a whole number of at least ", least));
    }
    return BadValue(text, absl::StrCat("a whole number from ", least, " to ", most));
  }
  return value;
}

absl::StatusOr<std::vector<int64_t>> ParseIntegers(absl::string_view text, int64_t least,
                                                   int64_t most) {
  std::vector<int64_t> values;
  for (absl::string_view item : absl::StrSplit(text, ',')) {
    ASSIGN_OR_RETURN(values.emplace_back(), ParseInteger(item, least, most));
  }
  return values;
}

absl::StatusOr<float> ParseNumber(absl::string_view text, float least, float most) {
  float value = 0;
  if (!absl::SimpleAtof(text, &value) || !std::isfinite(value) || value < least || value > most) {
    return BadValue(text, absl::StrCat("a number from ", least, " to ", most));
  }
  return value;
}

absl::StatusOr<std::vector<int32_t>> ParseTokenIds(absl::string_view text) {
  absl::string_view list = absl::StripAsciiWhitespace(text);
  if (absl::ConsumePrefix(&list, "[")) {
    if (!absl::ConsumeSuffix(&list, "]")) {
      return BadValue(text, "a list of token ids: the closing ] is missing");
    }
  }
  std::vector<int32_t> ids;
  for (absl::string_view item : absl::StrSplit(list, ',')) {
    int32_t id = 0;
    if (!absl::SimpleAtoi(item, &id) || id < 0) {
      return BadValue(item, "a token id; a list must look like 1,2,3");
    }
    ids.push_back(id);
  }
  return ids;
}

absl::StatusOr<std::pair<int32_t, float>> ParseLogitBias(absl::string_view text) {
  const size_t split = text.find_first_of("=:");
  int32_t id = 0;
  if (split == absl::string_view::npos || !absl::SimpleAtoi(text.substr(0, split), &id) || id < 0) {
    return BadValue(text, "TOKEN_ID=BIAS");
  }
  ASSIGN_OR_RETURN(const float bias, ParseNumber(text.substr(split + 1), -100, 100));
  return std::make_pair(id, bias);
}

absl::StatusOr<HostPort> ParseHostPort(absl::string_view text) {
  constexpr absl::string_view kAccepted =
      "HOST:PORT, such as 127.0.0.1:50051 or [::1]:50051 (port 0: a free one)";
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos || colon == 0) return BadValue(text, kAccepted);
  absl::string_view host = text.substr(0, colon);
  const absl::string_view digits = text.substr(colon + 1);
  if (absl::ConsumePrefix(&host, "[")) {
    if (!absl::ConsumeSuffix(&host, "]")) return BadValue(text, kAccepted);
  } else if (host.find(':') != absl::string_view::npos) {
    return BadValue(text, kAccepted);
  }
  int port = 0;
  const bool is_number =
      !digits.empty() && std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit);
  if (host.empty() || !is_number || !absl::SimpleAtoi(digits, &port) || port > 65535) {
    return BadValue(text, kAccepted);
  }
  return HostPort{std::string(host), port};
}

bool IsLoopback(absl::string_view host) {
  if (host == "localhost" || host == "::1") return true;
  // Only a literal address is accepted. A name such as 127.example.org may resolve to any address.
  const std::vector<absl::string_view> bytes = absl::StrSplit(host, '.');
  if (bytes.size() != 4 || bytes[0] != "127") return false;
  return std::all_of(bytes.begin(), bytes.end(), [](absl::string_view byte) {
    int value = 0;
    return absl::SimpleAtoi(byte, &value) && value >= 0 && value <= 255;
  });
}

std::string ShownName(absl::string_view name) {
  if (name.size() <= kLongestName) return std::string(name);
  size_t shown = kLongestName;
  // Do not cut the name inside a UTF-8 character.
  while (shown > 0 && (static_cast<unsigned char>(name[shown]) & 0xC0) == 0x80) --shown;
  return absl::StrCat(name.substr(0, shown), "...");
}

std::string NearestNameHint(absl::string_view name, absl::Span<const std::string> candidates,
                            absl::string_view prefix) {
  if (name.size() > kLongestName) return "";
  for (const std::string& candidate : candidates) {
    if (absl::EqualsIgnoreCase(name, candidate)) {
      return absl::StrCat(" (did you mean ", prefix, candidate, "?)");
    }
  }
  // A candidate that needs more edits than this would be a useless suggestion.
  size_t best = std::max<size_t>(2, name.size() / 2) + 1;
  const std::string* nearest = nullptr;
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(name, candidate);
    if (distance < best) {
      best = distance;
      nearest = &candidate;
    }
  }
  return nearest == nullptr ? "" : absl::StrCat(" (did you mean ", prefix, *nearest, "?)");
}

std::string FormatBytes(double bytes) {
  for (const SizeUnit& unit : {kSizeUnits[3], kSizeUnits[2], kSizeUnits[1], kSizeUnits[0]}) {
    if (bytes >= unit.bytes) return absl::StrFormat("%.2f %s", bytes / unit.bytes, unit.name);
  }
  return absl::StrFormat("%.0f B", bytes);
}

}  // namespace tidepool::service
