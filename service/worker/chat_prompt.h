// RenderChat: renders a conversation with the model's chat template, and keeps the pieces that
// prompts are made from.
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
  engine::ChatInputs inputs;  // the inputs of the template
  std::vector<engine::TextPiece> pieces;
  std::string text;  // the concatenation of all pieces
  // Number of messages in `inputs` before the first message of the conversation.
  int added_messages = 0;
  bool in_reasoning = false;  // the text ends inside of the reasoning
};

// Renders `messages` with the options of `chat`. The JSON texts in `chat` must have passed
// CheckChat. Thread-safe.
//
// Errors: INVALID_ARGUMENT if the template rejects the messages or takes too long. Also
// INVALID_ARGUMENT if the last message should be continued and the template changes its content.
// FAILED_PRECONDITION if the model has no template. UNIMPLEMENTED if the template uses features
// that are not supported.
absl::StatusOr<RenderedChat> RenderChat(const WorkerModel& model, const v1::Chat& chat,
                                        const ChatMessages& messages, absl::Time now);

std::string JoinPieces(const std::vector<engine::TextPiece>& pieces);

// Where the content of one message is in a rendering, and the pieces after that content.
struct Seam {
  size_t content_begin = 0;
  size_t content_end = 0;
  std::vector<engine::TextPiece> after;
};

// Finds the content of message `index`: renders the conversation again, with a unique word in place
// of the content. Returns false if the template does not copy the content unchanged.
bool FindSeam(const engine::ChatTemplate& chat_template, engine::ChatInputs inputs, int index,
              absl::string_view rendered, Seam* seam);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_CHAT_PROMPT_H_
