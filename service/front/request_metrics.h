// RequestMetrics: what became of a front's requests: latencies as their clients saw them, tokens,
// ends. Names and buckets of the histograms are those of vLLM's metrics.
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

// Counts of values up to each bound. Plain data.
class Histogram {
 public:
  // `bounds` ascend and outlive this: constants.
  explicit Histogram(absl::Span<const double> bounds)
      : bounds_(bounds), counts_(bounds.size() + 1) {}

  void Observe(double value, int64_t times = 1);

  absl::Span<const double> bounds() const { return bounds_; }
  // Of values up to bounds()[i] and above the bound before it; the last one is of those past all.
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

// Of the requests for one model. Plain data.
struct RequestMetrics {
  RequestMetrics();

  // Seconds.
  Histogram time_to_first_token;
  Histogram inter_token_latency;
  Histogram e2e_latency;
  Histogram queue_time;
  Histogram prefill_time;
  Histogram decode_time;
  // Tokens of a request.
  Histogram prompt_tokens;
  Histogram generation_tokens;
  std::array<int64_t, kRequestEnds> ends = {};  // by RequestEnd
};

// What one request came to, as its client saw it. Plain data.
struct RequestSummary {
  int64_t output_tokens = 0;  // that were sent
  std::optional<absl::Duration> time_to_first_token;
  absl::Duration duration;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  std::optional<v1::Usage> usage;  // of an answer that came to its end
};

// By model.
using RequestMetricsMap = std::map<std::string, RequestMetrics>;

// What the requests of one principal took, those that did not come to their end included. Plain
// data.
struct PrincipalUsage {
  int64_t requests = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompts whose answers came to their end
  int64_t generation_tokens = 0;
};

// By principal.
using PrincipalUsageMap = std::map<std::string, PrincipalUsage>;

// So many are told apart. The rest is one, under a name that no principal has.
inline constexpr size_t kMaxPrincipals = 1000;
inline constexpr char kOtherPrincipals[] = "(others)";

void AddUsage(const std::string& principal, const PrincipalUsage& usage, PrincipalUsageMap* all);

// Measures a generation on its way to `sink`. Loop only.
class MeasuredSink final : public GenerationSink {
 public:
  // Gives the model's name, or "" when it is not known (which is not measured then).
  using ModelName = std::function<std::string()>;

  // All outlive the generation.
  MeasuredSink(GenerationSink* sink, const base::Clock* clock, RequestMetricsMap* metrics,
               ModelName model_name);

  void Write(v1::GenerateResponse response) override;
  void Finish(absl::Status status) override;

  std::string model() const { return model_name_(); }
  // Up to now.
  RequestSummary Summary() const;

 private:
  void Record(const absl::Status& status);

  GenerationSink* sink_;
  const base::Clock* clock_;
  RequestMetricsMap* metrics_;
  const ModelName model_name_;
  const absl::Duration started_;
  absl::Duration first_, last_;  // token
  int64_t tokens_ = 0;
  v1::FinishReason finish_ = v1::FINISH_REASON_UNSPECIFIED;
  v1::Usage usage_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_REQUEST_METRICS_H_
