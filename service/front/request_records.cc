#include "service/front/request_records.h"

namespace tidepool::service {

void RequestRecords::OnRefused(const GenerationInput& input, const std::string& model,
                               const absl::Status& status) {
  ++failed_;
  if (!model.empty()) ++metrics_[model].ends[static_cast<int>(RequestEnd::kError)];
  log_.Refused(input, status);
}

void RequestRecords::OnEnded(const Generation& generation, const MeasuredSink& measured,
                             const absl::Status& end) {
  if (!end.ok()) ++failed_;
  const RequestSummary summary = measured.Summary();
  log_.Ended(generation, measured.model(), summary, end);
  AddUsage(generation.input().principal,
           {.requests = 1,
            .prompt_tokens = generation.prompt_tokens(),
            .cached_tokens = summary.usage.has_value() ? summary.usage->cached_tokens() : 0,
            .generation_tokens = summary.output_tokens},
           &principal_usage_);
}

}  // namespace tidepool::service
