// TraceContext: the trace that a request belongs to, in W3C's traceparent and tracestate headers
// (w3.org/TR/trace-context-1). Clients send these headers, so they are untrusted.
#ifndef TIDEPOOL_SERVICE_BASE_TRACE_CONTEXT_H_
#define TIDEPOOL_SERVICE_BASE_TRACE_CONTEXT_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tidepool::service {

// The caller's span in a trace. Plain data.
struct TraceContext {
  std::string trace_id;  // 32 digits of lower-case hex, not all 0
  std::string span_id;   // 16 digits; the caller's span
  bool sampled = false;
  std::string state;  // tracestate, at most kMaxTraceStateBytes; empty: none
};

// If the state is longer, whole entries are removed: first the longest above 128 bytes, then the
// last.
inline constexpr size_t kMaxTraceStateBytes = 512;

// Returns nullopt if `traceparent` is invalid by the specification. An invalid `tracestate` is
// dropped.
std::optional<TraceContext> ParseTraceContext(absl::string_view traceparent,
                                              absl::string_view tracestate);

// One server's span in a trace. Plain data.
struct TraceSpan {
  TraceContext context;     // what this server sends to its callees; no trace_id: not traced
  std::string parent_span;  // the caller's span; empty: this is the root span
};

// Creates a child span of `parent`, or the root span of a new trace, which is not sampled.
// Thread-safe.
TraceSpan BeginSpan(const std::optional<TraceContext>& parent);

// The header's value in version 00. Empty if the context is not traced.
std::string Traceparent(const TraceContext& context);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_TRACE_CONTEXT_H_
