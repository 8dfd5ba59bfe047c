// OutputText: a generation's output tokens, one by one, to its text and its end.
#ifndef TIDEPOOL_ENGINE_SAMPLING_OUTPUT_TEXT_H_
#define TIDEPOOL_ENGINE_SAMPLING_OUTPUT_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "engine/sampling/request.h"
#include "engine/sampling/stop_matcher.h"
#include "engine/tokenizer/tokenizer.h"

namespace tidepool::engine {

// Plain data. A function of the tokens fed so far: a resumed generation feeds its earlier tokens,
// drops what comes out, and is where an undisturbed one would be.
class OutputText {
 public:
  // `room` is how many output tokens fit the context. The tokenizer outlives this.
  OutputText(const StoppingParams& stopping, int64_t room, const Tokenizer* tokenizer);

  struct Step {
    std::string text;  // decided by this token
    std::optional<FinishReason> finish;
  };
  // Requires: the last step did not finish. The token that finishes lets out what was held back,
  // with U+FFFD for half a character; only a stop string's own text (unless include_stop) and what
  // is behind it stay out.
  Step Add(int32_t token);

 private:
  bool IsStopToken(int32_t token) const;

  StoppingParams stopping_;
  const Tokenizer* tokenizer_;
  int64_t left_;       // output tokens until kLength
  int64_t held_open_;  // of these, those that may not end the generation
  StreamDecoder decoder_;
  StopMatcher matcher_;
};

// Brings `text` to where the output tokens of earlier attempts left it, and tells if they end it.
std::optional<FinishReason> Replay(const GenerationRequest& request, OutputText* text);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SAMPLING_OUTPUT_TEXT_H_
