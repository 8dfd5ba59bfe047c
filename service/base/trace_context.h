// TraceContext: which trace a request belongs to, as W3C's traceparent and tracestate say it
// (w3.org/TR/trace-context-1). Headers come from whoever calls.
#ifndef TIDEPOOL_SERVICE_BASE_TRACE_CONTEXT_H_
#define TIDEPOOL_SERVICE_BASE_TRACE_CONTEXT_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tidepool::service {

// What a caller says of its own part of a trace. Plain data.
struct TraceContext {
  std::string trace_id;  // 32 digits of lower-case hex, not all 0
  std::string span_id;   // 16; the caller's
  bool sampled = false;
  std::string state;  // tracestate, at most kMaxTraceStateBytes; empty: none
};

// Longer ones lose whole entries, the longest first (above 128 bytes), then the last.
inline constexpr size_t kMaxTraceStateBytes = 512;

// Null where `traceparent` is none by the letter of the specification. A `tracestate` that is none
// is left out.
std::optional<TraceContext> ParseTraceContext(absl::string_view traceparent,
                                              absl::string_view tracestate);

// One server's part of a trace. Plain data.
struct TraceSpan {
  TraceContext context;     // what it says of itself to those that it calls; no trace_id: untraced
  std::string parent_span;  // the caller's; empty: the trace begins here
};

// A span below `parent`, or the first of a trace of its own, which is not sampled. Thread-safe.
TraceSpan BeginSpan(const std::optional<TraceContext>& parent);

// The header's value, in version 00; empty for an untraced span's context.
std::string Traceparent(const TraceContext& context);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_TRACE_CONTEXT_H_
