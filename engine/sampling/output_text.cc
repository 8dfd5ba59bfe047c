#include "engine/sampling/output_text.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"

namespace tidepool::engine {

OutputText::OutputText(const StoppingParams& stopping, int64_t room, const Tokenizer* tokenizer)
    : stopping_(stopping),
      tokenizer_(tokenizer),
      left_(LimitMaxTokens(stopping.max_tokens, room)),
      held_open_(stopping.min_tokens),
      decoder_(tokenizer),
      matcher_(stopping.stop, stopping.include_stop ? StopText::kKeep : StopText::kDrop) {}

bool OutputText::IsStopToken(int32_t token) const {
  return std::find(stopping_.stop_token_ids.begin(), stopping_.stop_token_ids.end(), token) !=
         stopping_.stop_token_ids.end();
}

std::string OutputText::Decode(int32_t token) {
  const std::vector<int32_t>& shown = stopping_.shown_tokens;
  if (std::find(shown.begin(), shown.end(), token) == shown.end()) return decoder_.Feed(token);
  return decoder_.Flush() + std::string(tokenizer_->TokenBytes(token));
}

OutputText::Step OutputText::Add(int32_t token) {
  CHECK_GT(left_, 0);
  --left_;
  Step step;
  const bool may_end = held_open_ == 0;
  if (!may_end) --held_open_;
  const bool end = may_end && !stopping_.ignore_eos && tokenizer_->IsEndOfGeneration(token);
  const bool stop_token = may_end && IsStopToken(token);
  if (end || stop_token) step.finish = FinishReason::kStop;
  const bool has_text = !end && (!stop_token || stopping_.include_stop);
  if (has_text) {
    std::string text = Decode(token);
    if (may_end) {
      StopMatcher::Result result = matcher_.Append(text);
      text = std::move(result.text);
      if (result.stopped) {
        step.text = std::move(text);
        step.finish = FinishReason::kStopString;
        return step;
      }
    }
    step.text = std::move(text);
  }
  if (!step.finish.has_value() && left_ == 0) step.finish = FinishReason::kLength;
  if (step.finish.has_value()) step.text += End();
  return step;
}

std::optional<FinishReason> Replay(const GenerationRequest& request, OutputText* text) {
  for (size_t i = request.prompt_length; i < request.token_ids.size(); ++i) {
    const OutputText::Step step = text->Add(request.token_ids[i]);
    if (step.finish.has_value()) return step.finish;
  }
  return std::nullopt;
}

}  // namespace tidepool::engine
