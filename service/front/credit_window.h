// CreditWindow: limits how many tokens a worker may generate beyond what the client has taken. This
// bounds the memory for unread responses (flow control by credit).
#ifndef TIDEPOOL_SERVICE_FRONT_CREDIT_WINDOW_H_
#define TIDEPOOL_SERVICE_FRONT_CREDIT_WINDOW_H_

#include <algorithm>
#include <cstdint>

namespace tidepool::service {

// Plain data. Tokens include the prompt tokens of a prompt report.
class CreditWindow {
 public:
  static constexpr int64_t kTokens = 256;
  static constexpr int64_t kBytes = 256 << 10;

  // `expected_token_bytes` is a guess of a token's size in a message, used until the first message
  // arrives.
  explicit CreditWindow(int64_t expected_token_bytes) : token_bytes_(expected_token_bytes) {}

  // A message with this number of tokens came from the worker.
  void OnReceived(int64_t tokens, int64_t bytes) {
    untaken_ += tokens;
    if (tokens == 0) return;
    token_bytes_ = measured_ ? std::max(token_bytes_, bytes / tokens) : bytes / tokens;
    measured_ = true;
  }
  // The client took these tokens, or already has them.
  void OnTaken(int64_t tokens) { untaken_ -= tokens; }
  // This number of earlier tokens still waits for the client.
  void SetUntaken(int64_t tokens) { untaken_ = tokens; }

  // Returns the total number of tokens that the worker may report. It has reported `told` so far.
  int64_t Limit(int64_t told) const {
    const int64_t each = std::max<int64_t>(1, token_bytes_);
    return told - untaken_ + std::clamp(kBytes / each, int64_t{1}, kTokens);
  }

 private:
  int64_t untaken_ = 0;      // received, but not yet taken by the client
  int64_t token_bytes_ = 0;  // bytes per token of the message with the longest tokens
  bool measured_ = false;    // token_bytes_ comes from a message
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_CREDIT_WINDOW_H_
