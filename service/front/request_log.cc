#include "service/front/request_log.h"

#include <cstddef>
#include <deque>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/utf8.h"

namespace tidepool::service {
namespace {

constexpr size_t kMaxPromptBytes = 4096;

std::string PromptOf(const v1::GenerateRequest& request) {
  std::string prompt = request.text();
  if (request.has_token_ids()) prompt = absl::StrJoin(request.token_ids().ids(), ",");
  for (const v1::ChatMessage& message : request.chat().messages()) {
    absl::StrAppend(&prompt, prompt.empty() ? "" : "\n", message.role(), ": ", message.content());
  }
  if (prompt.size() <= kMaxPromptBytes) return prompt;
  prompt.resize(base::ValidUtf8Prefix(absl::string_view(prompt).substr(0, kMaxPromptBytes)));
  return absl::StrCat(prompt, "...");
}

absl::string_view FinishName(v1::FinishReason finish) {
  switch (finish) {
    case v1::FINISH_REASON_UNSPECIFIED:
      return "";
    case v1::LENGTH:
      return "length";
    case v1::STOP_STRING:
      return "stop_string";
    case v1::CANCELLED:
      return "cancelled";
    default:  // STOP, and reasons that only newer workers know
      return "stop";
  }
}

}  // namespace

// Collects the fields of a line. Fields without a value are left out.
class RequestLog::Line {
 public:
  void Add(absl::string_view name, absl::string_view text) {
    if (!text.empty()) fields_.push_back({name, Keep(std::string(text))});
  }
  void Add(absl::string_view name, int64_t number) { fields_.push_back({name, number}); }
  void Add(absl::string_view name, absl::Duration time) {
    fields_.push_back({name, absl::ToDoubleSeconds(absl::Trunc(time, absl::Microseconds(1)))});
  }

  void AddAsker(const GenerationInput& input) {
    const v1::GenerateRequest& request = input.request;
    Add("request_id", request.request_id().empty() ? input.own_id : request.request_id());
    Add("principal", input.principal);
    Add("session_id", request.session_id());
  }

  void AddEnd(const GenerationInput& input, const absl::Status& status, PromptLogging prompts) {
    Add("code", absl::StatusCodeToString(status.code()));
    // An INVALID_ARGUMENT message may quote the request.
    if (prompts == PromptLogging::kAlways || !absl::IsInvalidArgument(status)) {
      Add("error", status.message());
    }
    Add("trace_id", input.span.context.trace_id);
    Add("span_id", input.span.context.span_id);
    Add("parent_span_id", input.span.parent_span);
    if (prompts == PromptLogging::kAlways) Add("prompt", PromptOf(input.request));
  }

  LogFields fields() const { return fields_; }

 private:
  absl::string_view Keep(std::string text) { return texts_.emplace_back(std::move(text)); }

  std::deque<std::string> texts_;  // a deque, because its elements are not moved when it grows
  std::vector<LogField> fields_;
};

void RequestLog::Ended(const Generation& generation, const std::string& model,
                       const RequestSummary& summary, const absl::Status& status) const {
  Line line;
  line.AddAsker(generation.input());
  line.Add("model", model);
  line.Add("worker", generation.worker());
  if (generation.attempts() > 1) line.Add("attempts", int64_t{generation.attempts()});
  if (generation.prompt_tokens() > 0) line.Add("prompt_tokens", generation.prompt_tokens());
  if (summary.usage.has_value()) line.Add("cached_tokens", summary.usage->cached_tokens());
  line.Add("output_tokens", summary.output_tokens);
  if (summary.time_to_first_token.has_value()) {
    line.Add("time_to_first_token_seconds", *summary.time_to_first_token);
  }
  line.Add("duration_seconds", summary.duration);
  line.Add("finish", FinishName(summary.finish));
  line.AddEnd(generation.input(), status, prompts_);
  log_(LogLevel::kInfo, "request ended", line.fields());
}

void RequestLog::Refused(const GenerationInput& input, const absl::Status& status) const {
  Line line;
  line.AddAsker(input);
  line.AddEnd(input, status, prompts_);
  log_(LogLevel::kInfo, "request ended", line.fields());
}

}  // namespace tidepool::service
