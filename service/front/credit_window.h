// CreditWindow: how many tokens a worker may make beyond what the client has taken, so that memory
// for answers nobody reads is bounded (serving.md: flow control by credit).
#ifndef TIDEPOOL_SERVICE_FRONT_CREDIT_WINDOW_H_
#define TIDEPOOL_SERVICE_FRONT_CREDIT_WINDOW_H_

#include <algorithm>
#include <cstdint>

namespace tidepool::service {

// Plain data. Tokens count those of the prompt whose report is told too.
class CreditWindow {
 public:
  static constexpr int64_t kTokens = 256;
  static constexpr int64_t kBytes = 256 << 10;

  // `expected_token_bytes`: of a token in a message, before the first one tells.
  explicit CreditWindow(int64_t expected_token_bytes) : token_bytes_(expected_token_bytes) {}

  // A message of so many tokens came from the worker.
  void OnReceived(int64_t tokens, int64_t bytes) {
    untaken_ += tokens;
    if (tokens == 0) return;
    token_bytes_ = measured_ ? std::max(token_bytes_, bytes / tokens) : bytes / tokens;
    measured_ = true;
  }
  // The client took them, or has them since before.
  void OnTaken(int64_t tokens) { untaken_ -= tokens; }
  // So many that were made before wait for the client.
  void SetUntaken(int64_t tokens) { untaken_ = tokens; }

  // Up to which token the worker may tell, that has told of so many.
  int64_t Limit(int64_t told) const {
    const int64_t each = std::max<int64_t>(1, token_bytes_);
    return told - untaken_ + std::clamp(kBytes / each, int64_t{1}, kTokens);
  }

 private:
  int64_t untaken_ = 0;      // received, and not yet taken by the client
  int64_t token_bytes_ = 0;  // of a token in the message whose tokens were the longest
  bool measured_ = false;    // token_bytes_ is no guess
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_CREDIT_WINDOW_H_
