#include "service/base/trace_context.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kernels/base/random_hex.h"

namespace tidepool::service {
namespace {

// The format is "00-" trace id "-" span id "-" flags.
constexpr size_t kTraceIdBegin = 3, kTraceIdSize = 32;
constexpr size_t kSpanIdBegin = 36, kSpanIdSize = 16;
constexpr size_t kFlagsBegin = 53, kSize = 55;

constexpr size_t kMaxEntries = 32;
constexpr size_t kMaxKeyBytes = 256;
constexpr size_t kMaxValueBytes = 256;
constexpr size_t kLongEntry = 128;

bool IsHex(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
  });
}

bool IsZero(absl::string_view text) {
  return text.find_first_not_of('0') == absl::string_view::npos;
}

bool IsKey(absl::string_view key) {
  if (key.empty() || key.size() > kMaxKeyBytes) return false;
  const unsigned char first = key[0];
  if (!absl::ascii_islower(first) && !absl::ascii_isdigit(first)) return false;
  if (std::count(key.begin(), key.end(), '@') > 1) return false;
  return key.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-*/@") ==
         absl::string_view::npos;
}

bool IsValue(absl::string_view value) {
  if (value.empty() || value.size() > kMaxValueBytes || value.back() == ' ') return false;
  return std::all_of(value.begin(), value.end(), [](unsigned char c) {
    return absl::ascii_isprint(c) && c != ',' && c != '=';
  });
}

// Returns the entries in their order. Returns none if one of them is invalid.
std::vector<absl::string_view> EntriesOf(absl::string_view state) {
  std::vector<absl::string_view> entries;
  std::set<absl::string_view> keys;
  for (absl::string_view entry : absl::StrSplit(state, ',')) {
    // Blanks and tabs around an entry are ignored, and an entry may be empty.
    const size_t begin = entry.find_first_not_of(" \t");
    if (begin == absl::string_view::npos) continue;
    entry = entry.substr(begin, entry.find_last_not_of(" \t") - begin + 1);
    const size_t equals = entry.find('=');
    if (equals == absl::string_view::npos) return {};
    const absl::string_view key = entry.substr(0, equals);
    if (!IsKey(key) || !IsValue(entry.substr(equals + 1)) || !keys.insert(key).second) return {};
    if (entries.size() == kMaxEntries) return {};
    entries.push_back(entry);
  }
  return entries;
}

std::string BoundedState(absl::string_view state) {
  std::vector<absl::string_view> entries = EntriesOf(state);
  std::string bounded = absl::StrJoin(entries, ",");
  while (bounded.size() > kMaxTraceStateBytes) {
    const auto longest = std::max_element(
        entries.begin(), entries.end(),
        [](absl::string_view a, absl::string_view b) { return a.size() < b.size(); });
    entries.erase(longest->size() > kLongEntry ? longest : entries.end() - 1);
    bounded = absl::StrJoin(entries, ",");
  }
  return bounded;
}

// Returns random hex digits that are not all 0.
std::string DrawHex(size_t digits) {
  std::string drawn = base::RandomHex(digits);
  return IsZero(drawn) ? DrawHex(digits) : drawn;
}

}  // namespace

std::optional<TraceContext> ParseTraceContext(absl::string_view traceparent,
                                              absl::string_view tracestate) {
  if (traceparent.size() < kSize) return std::nullopt;
  const absl::string_view version = traceparent.substr(0, 2);
  if (!IsHex(version) || version == "ff") return std::nullopt;
  // Versions after 00 may append fields.
  if (traceparent.size() > kSize && (version == "00" || traceparent[kSize] != '-')) {
    return std::nullopt;
  }
  for (const size_t dash : {kTraceIdBegin, kSpanIdBegin, kFlagsBegin}) {
    if (traceparent[dash - 1] != '-') return std::nullopt;
  }
  const absl::string_view trace_id = traceparent.substr(kTraceIdBegin, kTraceIdSize);
  const absl::string_view span_id = traceparent.substr(kSpanIdBegin, kSpanIdSize);
  const absl::string_view flags = traceparent.substr(kFlagsBegin, 2);
  if (!IsHex(trace_id) || IsZero(trace_id) || !IsHex(span_id) || IsZero(span_id) || !IsHex(flags)) {
    return std::nullopt;
  }
  // The flag "sampled" is the lowest bit. The other bits are reserved.
  const bool sampled = absl::StrContains("13579bdf", flags.substr(1));
  return TraceContext{.trace_id = std::string(trace_id),
                      .span_id = std::string(span_id),
                      .sampled = sampled,
                      .state = BoundedState(tracestate)};
}

TraceSpan BeginSpan(const std::optional<TraceContext>& parent) {
  TraceSpan span;
  if (parent.has_value()) {
    span.context = *parent;
    span.parent_span = parent->span_id;
  } else {
    span.context.trace_id = DrawHex(kTraceIdSize);
  }
  span.context.span_id = DrawHex(kSpanIdSize);
  return span;
}

std::string Traceparent(const TraceContext& context) {
  if (context.trace_id.empty()) return "";
  return absl::StrCat("00-", context.trace_id, "-", context.span_id,
                      context.sampled ? "-01" : "-00");
}

}  // namespace tidepool::service
