// libFuzzer target: any bytes as traceparent and, after the first line end, as tracestate. An
// accepted value is within its limits. After it was forwarded, it is accepted again.
//
//   CC=clang bazel run --config=fuzz //tests/fuzz:trace_context_fuzz -- -max_total_time=60
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "kernels/base/check.h"
#include "service/base/trace_context.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace service = tidepool::service;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(text.find('\n'), size);
  const absl::string_view state = text.substr(std::min(end + 1, size));
  const auto context = service::ParseTraceContext(text.substr(0, end), state);
  if (!context.has_value()) return 0;
  CHECK(context->trace_id.size() == 32 && context->span_id.size() == 16);
  CHECK(context->state.size() <= service::kMaxTraceStateBytes);
  const service::TraceSpan span = service::BeginSpan(context);
  const auto again =
      service::ParseTraceContext(service::Traceparent(span.context), span.context.state);
  CHECK(again.has_value());
  CHECK(again->trace_id == context->trace_id && again->span_id == span.context.span_id);
  CHECK(again->sampled == context->sampled && again->state == context->state);
  return 0;
}
