// PromptReport: what a client asked to hear of its prompt, and how much of that has come: so that
// an answer which moves to another worker tells no prompt token twice and leaves none out.
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
  // Of a request's fields; nothing else of it is kept.
  explicit PromptReport(const v1::GenerateRequest& request);

  // The first message of an answer with echo.
  std::optional<v1::GenerateResponse> Echo(const worker::v1::PrepareResponse& prepared) const;

  // Prompt tokens whose log-probabilities have come: each took one credit.
  int64_t received() const { return received_; }
  // All that will come, of a prompt of so many tokens.
  int64_t Expected(int64_t prompt_tokens) const { return top_.has_value() ? prompt_tokens : 0; }

  // Has the run tell what has not come.
  void Fill(worker::v1::Start* start) const;
  // Notes what came. INTERNAL: it is not what comes next. UNIMPLEMENTED: the worker makes output
  // tokens, and does not tell of the prompt.
  absl::Status Take(const worker::v1::RunResponse& response, int64_t prompt_tokens,
                    absl::string_view worker);

 private:
  const bool echo_;
  const bool progress_;
  const std::optional<int32_t> top_;  // of prompt_logprobs
  int64_t received_ = 0;
};

// Whether a message tells of the prompt's progress alone.
bool IsProgressOnly(const v1::GenerateResponse& response);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_PROMPT_REPORT_H_
