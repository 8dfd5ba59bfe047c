// PromptReport: records which reports about the prompt a client has requested, and which parts of
// these reports have arrived. With this information, each prompt token is reported exactly once,
// even if the response moves to another worker.
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
  // Keeps only the fields of the request that concern the prompt.
  explicit PromptReport(const v1::GenerateRequest& request);

  // Returns the first message of a response with echo. Returns nullopt without echo.
  std::optional<v1::GenerateResponse> Echo(const worker::v1::PrepareResponse& prepared) const;

  // Returns the number of prompt tokens whose log-probabilities have arrived. Each of them has used
  // one credit.
  int64_t received() const { return received_; }
  // Returns how many prompt tokens will be reported if the prompt has `prompt_tokens` tokens.
  int64_t Expected(int64_t prompt_tokens) const { return top_.has_value() ? prompt_tokens : 0; }

  // Requests, in `start`, the reports that have not arrived yet.
  void Fill(worker::v1::Start* start) const;
  // Records the part of the report in a response. INTERNAL if it is not the next part.
  // UNIMPLEMENTED if the worker sends output tokens although a prompt report was requested and has
  // not arrived.
  absl::Status Take(const worker::v1::RunResponse& response, int64_t prompt_tokens,
                    absl::string_view worker);

 private:
  const bool echo_;
  const bool progress_;
  const std::optional<int32_t> top_;  // the value of prompt_logprobs
  int64_t received_ = 0;
};

// Returns whether a message contains only the prompt's progress.
bool IsProgressOnly(const v1::GenerateResponse& response);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_PROMPT_REPORT_H_
