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
// Templates are written in Jinja, and ChatTemplate has its own interpreter. The interpreter renders
// like Hugging Face's transformers: trim_blocks and lstrip_blocks are on, autoescape is off, and a
// sandbox forbids changes of values. The interpreter supports:
// - all expressions;
// - the tags if, for (else, if, recursive), set, with, filter, macro, call, do, raw, break,
//   continue and generation;
// - Jinja's tests, and its filters except random, pprint, wordwrap, striptags, urlize and xmlattr;
// - the methods of Python's strings, lists and dicts that do not change the value; % and format;
// - namespace, range, dict, cycler, joiner, raise_exception and strftime_now.
// Integers have 64 bits. Any other construct is an error that names the construct and its line.
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

// The variables that a template sees. They are ordered_json, because templates print the keys of an
// object in their original order.
struct ChatInputs {
  // An array of objects {"role", "content", ...}. The template sees all of their fields.
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  bool add_generation_prompt = true;
  std::string bos_token;
  std::string eos_token;
  nlohmann::ordered_json tools;            // array, or null if there are no tools
  nlohmann::ordered_json template_kwargs;  // object with more variables, or null
  // The time that strftime_now returns, in UTC. If unset, the template has no strftime_now.
  std::optional<absl::Time> now;
};

// Limits of one rendering. With the defaults, an endless loop ends after less than a second of CPU
// time. An endless loop over megabytes of text ends after less than two seconds.
struct ChatTemplateLimits {
  // bytes of the whole output, and of the output of each macro or block
  int64_t output_bytes = 32 << 20;
  int64_t steps = 2'000'000;       // number of nodes evaluated and items visited
  int64_t made_bytes = 128 << 20;  // bytes of all values that are created or searched
  int64_t text_bytes = 32 << 20;   // bytes of one string
};

// Thread-safe: immutable after Parse. Copies share the parsed template.
class ChatTemplate {
 public:
  // Returns INVALID_ARGUMENT if the source is not a valid template, and UNIMPLEMENTED for an
  // unknown construct. Both messages begin with "chat template, line N: ".
  static absl::StatusOr<ChatTemplate> Parse(absl::string_view source);

  // Returns the prompt in pieces. Each piece has an origin, and adjacent pieces have different
  // origins. kTemplate is text of the template's author, including bos_token and eos_token. kUser
  // is text from messages, tools or template_kwargs, even after the template has sliced, trimmed or
  // joined it. If a filter rewrites text of both origins, its result is kUser. Returns
  // INVALID_ARGUMENT if the template raises an exception or does not accept the inputs. Examples
  // are a field of an undefined variable, a wrong type, and messages that are not an array. Returns
  // UNIMPLEMENTED for an unknown filter, test or method, and RESOURCE_EXHAUSTED if a limit is
  // exceeded.
  absl::StatusOr<std::vector<TextPiece>> Render(
      const ChatInputs& inputs, const ChatTemplateLimits& limits = ChatTemplateLimits()) const;

  // Like Render, but returns one string.
  absl::StatusOr<std::string> RenderText(
      const ChatInputs& inputs, const ChatTemplateLimits& limits = ChatTemplateLimits()) const;

 private:
  struct Parsed;
  explicit ChatTemplate(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}

  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_CHAT_TEMPLATE_H_
