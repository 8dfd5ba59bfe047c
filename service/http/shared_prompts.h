// SharedPrompts: delays the messages of choices that share a prompt's log-probabilities.
#ifndef TIDEPOOL_SERVICE_HTTP_SHARED_PROMPTS_H_
#define TIDEPOOL_SERVICE_HTTP_SHARED_PROMPTS_H_

#include <cstdint>
#include <vector>

#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Thread-compatible. The first choice of a prompt reports the prompt's log-probabilities, and its
// other choices repeat them. So the others' tokens wait until all of the log-probabilities have
// arrived.
class SharedPrompts {
 public:
  // The `n` choices of a prompt are adjacent. If `shares` is false, nothing waits. Requires: n > 0,
  // and choices is a multiple of n.
  SharedPrompts(int64_t choices, int64_t n, bool shares)
      : n_(n), shares_(shares), prompts_(choices / n) {}

  bool IsFirst(int64_t choice) const { return choice % n_ == 0; }

  // If the message must wait, takes it and returns true.
  bool Hold(int64_t choice, v1::GenerateResponse* message);
  // Call it after a message was processed. Returns the messages that need not wait any longer, in
  // the order of arrival, each with its choice as its index.
  std::vector<v1::GenerateResponse> Release(int64_t choice, const v1::GenerateResponse& message);

 private:
  struct Prompt {
    bool complete = false;  // all log-probabilities of the prompt have arrived
    std::vector<v1::GenerateResponse> held;
  };

  const int64_t n_;
  const bool shares_;
  std::vector<Prompt> prompts_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_SHARED_PROMPTS_H_
