// RequestMetrics: statistics of a front's requests: latencies as clients see them, tokens, and
// outcomes. Names and buckets of the histograms are the same as in vLLM's metrics.
#ifndef TIDEPOOL_SERVICE_FRONT_REQUEST_METRICS_H_
#define TIDEPOOL_SERVICE_FRONT_REQUEST_METRICS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/base/clock.h"
#include "service/front/generation.h"

namespace tidepool::service {

// Counts values per bucket. Plain data.
class Histogram {
 public:
  // `bounds` are ascending and must outlive this object, as constants do.
  explicit Histogram(absl::Span<const double> bounds)
      : bounds_(bounds), counts_(bounds.size() + 1) {}

  void Observe(double value, int64_t times = 1);

  absl::Span<const double> bounds() const { return bounds_; }
  // Element i counts the values in (bounds()[i - 1], bounds()[i]]. The last element counts values
  // above all bounds.
  absl::Span<const int64_t> counts() const { return counts_; }
  int64_t count() const { return count_; }
  double sum() const { return sum_; }

 private:
  absl::Span<const double> bounds_;
  std::vector<int64_t> counts_;
  int64_t count_ = 0;
  double sum_ = 0;
};

enum class RequestEnd : uint8_t { kStop, kLength, kAbort, kError };
inline constexpr int kRequestEnds = 4;

// Metrics of the requests for one model. Plain data.
struct RequestMetrics {
  RequestMetrics();

  // In seconds.
  Histogram time_to_first_token;
  Histogram inter_token_latency;
  Histogram e2e_latency;
  Histogram queue_time;
  Histogram prefill_time;
  Histogram decode_time;
  // In tokens per request.
  Histogram prompt_tokens;
  Histogram generation_tokens;
  std::array<int64_t, kRequestEnds> ends = {};  // indexed by RequestEnd
};

// The outcome of one request, as its client saw it. Plain data.
struct RequestSummary {
  int64_t output_tokens = 0;  // output tokens that were sent
  std::optional<absl::Duration> time_to_first_token;
  absl::Duration duration;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  std::optional<v1::Usage> usage;  // set if the response completed
};

// By model.
using RequestMetricsMap = std::map<std::string, RequestMetrics>;

// Resource usage of one principal's requests, including incomplete ones. Plain data.
struct PrincipalUsage {
  int64_t requests = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // cached prompt tokens of completed responses
  int64_t generation_tokens = 0;
};

// By principal.
using PrincipalUsageMap = std::map<std::string, PrincipalUsage>;

// Maximum number of principals with separate counts. All others share one entry, whose name no
// principal can have.
inline constexpr size_t kMaxPrincipals = 1000;
inline constexpr char kOtherPrincipals[] = "(others)";

void AddUsage(const std::string& principal, const PrincipalUsage& usage, PrincipalUsageMap* all);

// Measures a generation that writes to `sink`. Loop only.
class MeasuredSink final : public GenerationSink {
 public:
  // Returns the model's name, or "" if it is unknown. Requests without a name are not measured.
  using ModelName = std::function<std::string()>;

  // All arguments outlive the generation.
  MeasuredSink(GenerationSink* sink, const base::Clock* clock, RequestMetricsMap* metrics,
               ModelName model_name);

  void Write(v1::GenerateResponse response) override;
  void Finish(absl::Status status) override;

  std::string model() const { return model_name_(); }
  // The outcome up to now.
  RequestSummary Summary() const;

 private:
  void Record(const absl::Status& status);

  GenerationSink* sink_;
  const base::Clock* clock_;
  RequestMetricsMap* metrics_;
  const ModelName model_name_;
  const absl::Duration started_;
  absl::Duration first_, last_;  // arrival times of the first and the last token
  int64_t tokens_ = 0;
  v1::FinishReason finish_ = v1::FINISH_REASON_UNSPECIFIED;
  v1::Usage usage_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_REQUEST_METRICS_H_
