// PromptReport: which reports about its prompt a client requested, and how many have arrived. So a
// response that moves to another worker reports each prompt token exactly once.
#ifndef TIDEPOOL_SERVICE_FRONT_PROMPT_REPORT_H_
#define TIDEPOOL_SERVICE_FRONT_PROMPT_REPORT_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tidepool/v1/inference.pb.h"
#include "tidepool/worker/v1/worker.pb.h"

namespace tidepool::service {

// Plain data.
class PromptReport {
 public:
  // Keeps only the relevant fields of the request.
  explicit PromptReport(const v1::GenerateRequest& request);

  // Returns the first message of a response with echo.
  std::optional<v1::GenerateResponse> Echo(const worker::v1::PrepareResponse& prepared) const;

  // Prompt tokens whose log-probabilities have arrived. Each used one credit.
  int64_t received() const { return received_; }
  // Number of prompt tokens that will be reported, of a prompt with `prompt_tokens` tokens.
  int64_t Expected(int64_t prompt_tokens) const { return top_.has_value() ? prompt_tokens : 0; }

  // Asks the run for the reports that have not arrived yet.
  void Fill(worker::v1::Start* start) const;
  // Records what arrived. INTERNAL if it is not the next expected part. UNIMPLEMENTED if the worker
  // generates output tokens without a prompt report.
  absl::Status Take(const worker::v1::RunResponse& response, int64_t prompt_tokens,
                    absl::string_view worker);

 private:
  const bool echo_;
  const bool progress_;
  const std::optional<int32_t> top_;  // value of prompt_logprobs
  int64_t received_ = 0;
};

// Returns true if a message only reports the prompt's progress.
bool IsProgressOnly(const v1::GenerateResponse& response);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_PROMPT_REPORT_H_
