// SharedPrompts: delays the tokens of some choices until the log-probabilities of their prompt have
// arrived.
#ifndef TIDEPOOL_SERVICE_HTTP_SHARED_PROMPTS_H_
#define TIDEPOOL_SERVICE_HTTP_SHARED_PROMPTS_H_

#include <cstdint>
#include <vector>

#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Thread-compatible. If a request asks for n choices per prompt, only the first choice of each
// prompt reports the prompt's log-probabilities. The other choices repeat them in their responses.
// So the tokens of the other choices must wait until all these log-probabilities have arrived.
class SharedPrompts {
 public:
  // The `n` choices of one prompt are adjacent. If `shares` is false, no message waits. Requires: n
  // > 0, and `choices` is a multiple of `n`.
  SharedPrompts(int64_t choices, int64_t n, bool shares)
      : n_(n), shares_(shares), prompts_(choices / n) {}

  bool IsFirst(int64_t choice) const { return choice % n_ == 0; }

  // If the message must wait, moves it into this object and returns true.
  bool Hold(int64_t choice, v1::GenerateResponse* message);
  // Call it after a message was processed. Returns the messages that no longer have to wait, in the
  // order in which they arrived. The index of each message is set to its choice.
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
