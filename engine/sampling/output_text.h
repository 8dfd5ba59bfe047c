// OutputText: converts a generation's output tokens to text, one by one, and detects the end of the
// generation.
#ifndef TIDEPOOL_ENGINE_SAMPLING_OUTPUT_TEXT_H_
#define TIDEPOOL_ENGINE_SAMPLING_OUTPUT_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "engine/sampling/request.h"
#include "engine/sampling/stop_matcher.h"
#include "engine/tokenizer/tokenizer.h"

namespace tidepool::engine {

// Plain data. The state depends only on the tokens added so far. To resume a generation, add its
// earlier tokens and ignore the results. The state is then the same as without the interruption.
class OutputText {
 public:
  // `room` is the number of output tokens that fit into the context. The tokenizer must outlive
  // this object.
  OutputText(const StoppingParams& stopping, int64_t room, const Tokenizer* tokenizer);

  struct Step {
    std::string text;  // text that became final with this token
    std::optional<FinishReason> finish;
  };
  // Requires: the last step did not finish. The token that finishes the generation also releases
  // the text that was held back, with U+FFFD for an incomplete character. The text after a stop
  // string is not released, nor is the stop string unless include_stop is set.
  Step Add(int32_t token);
  // Ends the generation without a token. Returns the text that was held back.
  std::string End() { return matcher_.TakeHeld() + decoder_.Flush(); }

 private:
  bool IsStopToken(int32_t token) const;
  // Returns the text that becomes complete with this token.
  std::string Decode(int32_t token);

  StoppingParams stopping_;
  const Tokenizer* tokenizer_;
  int64_t left_;       // number of output tokens left until kLength
  int64_t held_open_;  // number of next output tokens that must not end the generation
  StreamDecoder decoder_;
  StopMatcher matcher_;
};

// Adds the output tokens of earlier attempts to `text`. Returns the finish reason if they end the
// generation.
std::optional<FinishReason> Replay(const GenerationRequest& request, OutputText* text);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SAMPLING_OUTPUT_TEXT_H_
