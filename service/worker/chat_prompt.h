// RenderChat: renders a conversation with the model's chat template, in the parts that prompts
// need.
#ifndef TIDEPOOL_SERVICE_WORKER_CHAT_PROMPT_H_
#define TIDEPOOL_SERVICE_WORKER_CHAT_PROMPT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/chat_template/chat_template.h"
#include "engine/tokenizer/text_piece.h"
#include "service/worker/worker_model.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

using ChatMessages = google::protobuf::RepeatedPtrField<v1::ChatMessage>;

struct RenderedChat {
  engine::ChatInputs inputs;  // what the template received
  std::vector<engine::TextPiece> pieces;
  std::string text;  // all pieces, concatenated
};

// Renders `messages` with the options of `chat`, whose JSON texts passed CheckChat. Thread-safe.
// INVALID_ARGUMENT if the template refuses the messages or takes too long, or if the last message
// cannot be continued. FAILED_PRECONDITION without a template. UNIMPLEMENTED if the template uses
// unsupported features.
absl::StatusOr<RenderedChat> RenderChat(const WorkerModel& model, const v1::Chat& chat,
                                        const ChatMessages& messages, absl::Time now);

std::string JoinPieces(const std::vector<engine::TextPiece>& pieces);

// The position of one message's content in a rendering, and the text after it.
struct Seam {
  size_t content_begin = 0;
  size_t content_end = 0;
  std::vector<engine::TextPiece> behind;
};

// Renders the conversation again with a unique word in place of message `index`'s content. Returns
// false if the template changes the content instead of copying it.
bool FindSeam(const engine::ChatTemplate& chat_template, engine::ChatInputs inputs, int index,
              absl::string_view rendered, Seam* seam);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_CHAT_PROMPT_H_
