// ChatTemplate: a model's own template that turns a conversation into its prompt.
//
//   ASSIGN_OR_RETURN(ChatTemplate chat, ChatTemplate::Parse(tokenizer->spec().chat_template));
//   ChatInputs inputs;
//   inputs.messages = {{{"role", "user"}, {"content", "Hello"}}};
//   inputs.bos_token = std::string(tokenizer->bos_text());
//   inputs.eos_token = std::string(tokenizer->eos_text());
//   ASSIGN_OR_RETURN(std::vector<TextPiece> prompt, chat.Render(inputs));
//   ASSIGN_OR_RETURN(auto ids, tokenizer->EncodePieces(prompt, AddBos::kNo));
//
// Templates are written in Jinja. This is our own interpreter of it, and it renders as Hugging Face
// transformers does (trim_blocks and lstrip_blocks on, autoescape off, a sandbox in which values do
// not change): all expressions; the tags if, for (else, if, recursive), set, with, filter, macro,
// call, do, raw, break, continue and generation; Jinja's filters but those for HTML, random, pprint
// and wordwrap; its tests; Python's methods of strings, lists and dicts that change nothing, % and
// format; namespace, range, dict, cycler, joiner, raise_exception, strftime_now. Integers have 64
// bits. What it does not know is an error that names it and its line.
#ifndef TIDEPOOL_ENGINE_CHAT_TEMPLATE_CHAT_TEMPLATE_H_
#define TIDEPOOL_ENGINE_CHAT_TEMPLATE_CHAT_TEMPLATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/tokenizer/text_piece.h"
#include "nlohmann/json.hpp"

namespace tidepool::engine {

// ordered_json, because templates print objects with their keys in the order they came in.
struct ChatInputs {
  // Array of objects {"role", "content", ...}; a template sees whatever else stands in them.
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  bool add_generation_prompt = true;
  std::string bos_token;
  std::string eos_token;
  nlohmann::ordered_json tools;            // array, or null: none
  nlohmann::ordered_json template_kwargs;  // object of further variables, or null: none
  // What strftime_now tells, in UTC. Unset: the template finds strftime_now undefined.
  std::optional<absl::Time> now;
};

// What one rendering may cost. The defaults end an endless loop in under a second of processor
// time, and one over megabytes in under two.
struct ChatTemplateLimits {
  int64_t output_bytes = 32 << 20;  // also of one macro's or block's
  int64_t steps = 2'000'000;        // nodes evaluated, items visited
  int64_t made_bytes = 128 << 20;   // of all values made and searched on the way
  int64_t text_bytes = 32 << 20;    // of one string
};

// Thread-safe: immutable after Parse. Copies share the parsed template.
class ChatTemplate {
 public:
  // INVALID_ARGUMENT: not a template; UNIMPLEMENTED: a construct that is not known. Both say
  // "chat template, line N: ...".
  static absl::StatusOr<ChatTemplate> Parse(absl::string_view source);

  // The prompt in pieces, adjacent pieces of different origin: text that the template's author
  // wrote (with bos_token and eos_token), and text that came with messages, tools or
  // template_kwargs, cut, trimmed or joined as it may be. Text of mixed origin that a filter
  // rewrites counts as the user's. Errors: INVALID_ARGUMENT where the template raises an exception
  // or the inputs do not fit it (an undefined variable's field, a wrong type, messages that are no
  // array); UNIMPLEMENTED for an unknown filter, test or method; RESOURCE_EXHAUSTED past a limit.
  absl::StatusOr<std::vector<TextPiece>> Render(
      const ChatInputs& inputs, const ChatTemplateLimits& limits = ChatTemplateLimits()) const;

  // The same as one text.
  absl::StatusOr<std::string> RenderText(
      const ChatInputs& inputs, const ChatTemplateLimits& limits = ChatTemplateLimits()) const;

 private:
  struct Parsed;
  explicit ChatTemplate(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}

  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_CHAT_TEMPLATE_H_
