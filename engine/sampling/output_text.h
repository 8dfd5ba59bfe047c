// OutputText: converts a generation's output tokens, one by one, to text, and detects its end.
#ifndef TIDEPOOL_ENGINE_SAMPLING_OUTPUT_TEXT_H_
#define TIDEPOOL_ENGINE_SAMPLING_OUTPUT_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "engine/sampling/request.h"
#include "engine/sampling/stop_matcher.h"
#include "engine/tokenizer/tokenizer.h"

namespace tidepool::engine {

// Plain data. Depends only on the tokens added so far. To resume a generation, add its earlier
// tokens and ignore the results; then the state is the same as without the interruption.
class OutputText {
 public:
  // `room`: number of output tokens that fit into the context. The tokenizer outlives this object.
  OutputText(const StoppingParams& stopping, int64_t room, const Tokenizer* tokenizer);

  struct Step {
    std::string text;  // text that this token decided
    std::optional<FinishReason> finish;
  };
  // Requires: the last step did not finish. The finishing token releases held-back text, with
  // U+FFFD for an incomplete character. Not released: a stop string (unless include_stop) and the
  // text after it.
  Step Add(int32_t token);

 private:
  bool IsStopToken(int32_t token) const;

  StoppingParams stopping_;
  const Tokenizer* tokenizer_;
  int64_t left_;       // output tokens until kLength
  int64_t held_open_;  // output tokens that must not end the generation
  StreamDecoder decoder_;
  StopMatcher matcher_;
};

// Adds the output tokens of earlier attempts to `text`. Returns the finish reason if they end the
// generation.
std::optional<FinishReason> Replay(const GenerationRequest& request, OutputText* text);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SAMPLING_OUTPUT_TEXT_H_
