#include "service/front/request_metrics.h"

#include <algorithm>
#include <utility>

namespace tidepool::service {
namespace {

constexpr double kFirstToken[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                  1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
constexpr double kBetweenTokens[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,
                                     0.3,   0.4,    0.5,   0.75, 1,     2.5,  5,     7.5, 10};
constexpr double kRequest[] = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                               30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
constexpr double kTokens[] = {1,   2,    5,    10,   20,    50,    100,   200,
                              500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

RequestEnd EndOf(const absl::Status& status, v1::FinishReason finish) {
  if (absl::IsCancelled(status)) return RequestEnd::kAbort;
  if (!status.ok()) return RequestEnd::kError;
  if (finish == v1::LENGTH) return RequestEnd::kLength;
  return finish == v1::CANCELLED ? RequestEnd::kAbort : RequestEnd::kStop;
}

}  // namespace

void Histogram::Observe(double value, int64_t times) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[bucket] += times;
  count_ += times;
  sum_ += value * static_cast<double>(times);
}

RequestMetrics::RequestMetrics()
    : time_to_first_token(kFirstToken),
      inter_token_latency(kBetweenTokens),
      e2e_latency(kRequest),
      queue_time(kRequest),
      prefill_time(kRequest),
      decode_time(kRequest),
      prompt_tokens(kTokens),
      generation_tokens(kTokens) {}

void AddUsage(const std::string& principal, const PrincipalUsage& usage, PrincipalUsageMap* all) {
  const bool apart = all->count(principal) > 0 || all->size() < kMaxPrincipals;
  PrincipalUsage& total = (*all)[apart ? principal : kOtherPrincipals];
  total.requests += usage.requests;
  total.prompt_tokens += usage.prompt_tokens;
  total.cached_tokens += usage.cached_tokens;
  total.generation_tokens += usage.generation_tokens;
}

MeasuredSink::MeasuredSink(GenerationSink* sink, const base::Clock* clock,
                           RequestMetricsMap* metrics, ModelName model_name)
    : sink_(sink),
      clock_(clock),
      metrics_(metrics),
      model_name_(std::move(model_name)),
      started_(clock->Monotonic()) {}

void MeasuredSink::Write(v1::GenerateResponse response) {
  const absl::Duration now = clock_->Monotonic();
  int64_t tokens = response.token_ids_size();
  finish_ = response.finish_reason();
  if (response.has_usage()) usage_ = response.usage();
  const std::string model = tokens == 0 ? "" : model_name_();
  if (!model.empty()) {
    RequestMetrics& metrics = (*metrics_)[model];
    if (tokens_ == 0) {
      metrics.time_to_first_token.Observe(absl::ToDoubleSeconds(now - started_));
      first_ = last_ = now;
      --tokens, ++tokens_;
    }
    // The time since the previous message is divided equally among the tokens of this message.
    if (tokens > 0) {
      const double each = absl::ToDoubleSeconds(now - last_) / static_cast<double>(tokens);
      metrics.inter_token_latency.Observe(each, tokens);
      tokens_ += tokens;
      last_ = now;
    }
  }
  sink_->Write(std::move(response));
}

void MeasuredSink::Finish(absl::Status status) {
  Record(status);
  sink_->Finish(std::move(status));
}

RequestSummary MeasuredSink::Summary() const {
  RequestSummary summary = {
      .output_tokens = tokens_, .duration = clock_->Monotonic() - started_, .finish = finish_};
  if (tokens_ > 0) summary.time_to_first_token = first_ - started_;
  if (finish_ != v1::FINISH_REASON_UNSPECIFIED) summary.usage = usage_;
  return summary;
}

void MeasuredSink::Record(const absl::Status& status) {
  const std::string model = model_name_();
  if (model.empty()) return;
  RequestMetrics& metrics = (*metrics_)[model];
  const RequestEnd end = EndOf(status, finish_);
  ++metrics.ends[static_cast<int>(end)];
  if (!status.ok()) return;
  metrics.e2e_latency.Observe(absl::ToDoubleSeconds(clock_->Monotonic() - started_));
  metrics.queue_time.Observe(usage_.queue_seconds());
  metrics.prefill_time.Observe(usage_.prefill_seconds());
  metrics.decode_time.Observe(usage_.decode_seconds());
  metrics.prompt_tokens.Observe(static_cast<double>(usage_.prompt_tokens()));
  metrics.generation_tokens.Observe(static_cast<double>(usage_.completion_tokens()));
}

}  // namespace tidepool::service
