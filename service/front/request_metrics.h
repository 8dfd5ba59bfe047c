// RequestMetrics: statistics about a front's requests: the latencies that clients see, token
// counts, and how requests ended. Histograms have the same names and buckets as in vLLM.
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

// Counts values in buckets. Plain data.
class Histogram {
 public:
  // `bounds` must be in ascending order. They must outlive this object, so constants are best.
  explicit Histogram(absl::Span<const double> bounds)
      : bounds_(bounds), counts_(bounds.size() + 1) {}

  void Observe(double value, int64_t times = 1);

  absl::Span<const double> bounds() const { return bounds_; }
  // Element i is the number of values in (bounds()[i - 1], bounds()[i]]. The last element is the
  // number of values above all bounds.
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

// The metrics of all requests for one model. Plain data.
struct RequestMetrics {
  RequestMetrics();

  // These are in seconds.
  Histogram time_to_first_token;
  Histogram inter_token_latency;
  Histogram e2e_latency;
  Histogram queue_time;
  Histogram prefill_time;
  Histogram decode_time;
  // These are in tokens per request.
  Histogram prompt_tokens;
  Histogram generation_tokens;
  std::array<int64_t, kRequestEnds> ends = {};  // number of requests by RequestEnd
};

// How one request ended, as its client saw it. Plain data.
struct RequestSummary {
  int64_t output_tokens = 0;  // number of output tokens that were sent
  std::optional<absl::Duration> time_to_first_token;
  absl::Duration duration;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  std::optional<v1::Usage> usage;  // set if the response is complete
};

// The key is the model's name.
using RequestMetricsMap = std::map<std::string, RequestMetrics>;

// What the requests of one principal have used, including requests that are not complete. Plain
// data.
struct PrincipalUsage {
  int64_t requests = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // prompt tokens found in the cache, of complete responses only
  int64_t generation_tokens = 0;
};

// The key is the principal's name.
using PrincipalUsageMap = std::map<std::string, PrincipalUsage>;

// Maximum number of principals that are counted separately. All others are counted together under a
// name that no principal can have.
inline constexpr size_t kMaxPrincipals = 1000;
inline constexpr char kOtherPrincipals[] = "(others)";

void AddUsage(const std::string& principal, const PrincipalUsage& usage, PrincipalUsageMap* all);

// Measures a generation and passes its messages on to `sink`. Use it on the loop only.
class MeasuredSink final : public GenerationSink {
 public:
  // Returns the model's name. Returns "" if the model is unknown. Then the request is not measured.
  using ModelName = std::function<std::string()>;

  // All arguments must outlive the generation.
  MeasuredSink(GenerationSink* sink, const base::Clock* clock, RequestMetricsMap* metrics,
               ModelName model_name);

  void Write(v1::GenerateResponse response) override;
  void Finish(absl::Status status) override;

  std::string model() const { return model_name_(); }
  // Returns the summary of what has been sent until now.
  RequestSummary Summary() const;

 private:
  void Record(const absl::Status& status);

  GenerationSink* sink_;
  const base::Clock* clock_;
  RequestMetricsMap* metrics_;
  const ModelName model_name_;
  const absl::Duration started_;
  absl::Duration first_, last_;  // when the first and the last token arrived
  int64_t tokens_ = 0;
  v1::FinishReason finish_ = v1::FINISH_REASON_UNSPECIFIED;
  v1::Usage usage_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_REQUEST_METRICS_H_
