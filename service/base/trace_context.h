// TraceContext: the trace that a request belongs to, as in W3C's headers traceparent and tracestate
// (w3.org/TR/trace-context-1). Clients send these headers, so their values are untrusted.
#ifndef TIDEPOOL_SERVICE_BASE_TRACE_CONTEXT_H_
#define TIDEPOOL_SERVICE_BASE_TRACE_CONTEXT_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tidepool::service {

// The span of a caller in a trace. Plain data.
struct TraceContext {
  std::string trace_id;  // 32 hex digits in lower case, not all 0
  std::string span_id;   // 16 hex digits; the caller's span
  bool sampled = false;
  std::string state;  // the value of tracestate, at most kMaxTraceStateBytes; empty: none
};

// A longer state is shortened by removing whole entries. Entries of more than 128 bytes are removed
// first, beginning with the longest. Then entries are removed from the end.
inline constexpr size_t kMaxTraceStateBytes = 512;

// Returns nullopt if `traceparent` is invalid according to the specification. If only `tracestate`
// is invalid, it is left out.
std::optional<TraceContext> ParseTraceContext(absl::string_view traceparent,
                                              absl::string_view tracestate);

// The span of this server in a trace. Plain data.
struct TraceSpan {
  // what this server sends to the servers that it calls; an empty trace_id: the request is not
  // traced
  TraceContext context;
  std::string parent_span;  // the caller's span; empty if this is the root span
};

// Returns a child span of `parent`. Without a parent, returns the root span of a new trace that is
// not sampled. Thread-safe.
TraceSpan BeginSpan(const std::optional<TraceContext>& parent);

// Returns the value of the header traceparent, in version 00. Empty if the context is not traced.
std::string Traceparent(const TraceContext& context);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_TRACE_CONTEXT_H_
