#include "service/worker/run_log_line.h"

#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tidepool::service {

void RunLogLine::OnStart(const worker::v1::Start& start) {
  started_ = true;
  attempt_ = start.attempt();
  request_id_ = start.request_id();
  const worker::v1::Caller& caller = start.caller();
  principal_ = caller.principal();
  span_ = BeginSpan(ParseTraceContext(caller.traceparent(), caller.tracestate()));
}

void RunLogLine::OnEnd(const absl::Status& status) const {
  if (!started_ || log_ == nullptr) return;
  std::vector<LogField> fields = {{"request_id", request_id_}};
  const auto add = [&fields](absl::string_view name, absl::string_view text) {
    if (!text.empty()) fields.push_back({name, text});
  };
  add("principal", principal_);
  fields.push_back({"attempt", attempt_});
  add("model", model_->name);
  fields.insert(fields.end(), {{"prompt_tokens", usage_.prompt_tokens},
                               {"cached_tokens", usage_.cached_tokens},
                               {"output_tokens", usage_.completion_tokens},
                               {"queue_seconds", absl::ToDoubleSeconds(usage_.queue_time)},
                               {"prefill_seconds", absl::ToDoubleSeconds(usage_.prefill_time)},
                               {"decode_seconds", absl::ToDoubleSeconds(usage_.decode_time)}});
  const std::string code = absl::StatusCodeToString(status.code());
  add("code", code);
  // An INVALID_ARGUMENT message may quote the request, so it is not logged.
  if (!absl::IsInvalidArgument(status)) add("error", status.message());
  add("trace_id", span_.context.trace_id);
  add("span_id", span_.context.span_id);
  add("parent_span_id", span_.parent_span);
  (*log_)(LogLevel::kInfo, "run ended", fields);
}

}  // namespace tidepool::service
