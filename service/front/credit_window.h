// CreditWindow: limits how many tokens a worker may generate that the client has not received yet.
// This limits the memory for unread responses (credit-based flow control).
#ifndef TIDEPOOL_SERVICE_FRONT_CREDIT_WINDOW_H_
#define TIDEPOOL_SERVICE_FRONT_CREDIT_WINDOW_H_

#include <algorithm>
#include <cstdint>

namespace tidepool::service {

// Plain data. The prompt tokens in a prompt report (prompt_report.h) are counted like output
// tokens.
class CreditWindow {
 public:
  static constexpr int64_t kTokens = 256;
  static constexpr int64_t kBytes = 256 << 10;

  // `expected_token_bytes` is an estimate of the bytes that one token needs in a message. It is
  // used until the first message arrives.
  explicit CreditWindow(int64_t expected_token_bytes) : token_bytes_(expected_token_bytes) {}

  // Call it when a message with this number of tokens has arrived from the worker.
  void OnReceived(int64_t tokens, int64_t bytes) {
    untaken_ += tokens;
    if (tokens == 0) return;
    token_bytes_ = measured_ ? std::max(token_bytes_, bytes / tokens) : bytes / tokens;
    measured_ = true;
  }
  // Call it when the client has received these tokens, or if it already has them from an earlier
  // call.
  void OnTaken(int64_t tokens) { untaken_ -= tokens; }
  // Sets how many earlier tokens still wait for the client.
  void SetUntaken(int64_t tokens) { untaken_ = tokens; }

  // Returns the total number of tokens that the worker may report. It has reported `reported`
  // tokens until now.
  int64_t Limit(int64_t reported) const {
    const int64_t each = std::max<int64_t>(1, token_bytes_);
    return reported - untaken_ + std::clamp(kBytes / each, int64_t{1}, kTokens);
  }

 private:
  int64_t untaken_ = 0;      // tokens from the worker that the client has not received yet
  int64_t token_bytes_ = 0;  // maximum bytes per token of any message
  bool measured_ = false;    // token_bytes_ was measured in a message
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_CREDIT_WINDOW_H_
