// generate: streams one response.
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "service/base/files.h"
#include "service/cli/ask.h"
#include "service/cli/commands.h"
#include "service/cli/wait_line.h"

namespace tidepool::service {
namespace {

absl::StatusOr<Question> MakeQuestion(const Config& config) {
  Question question;
  question.session = config.client.session;
  question.generation = config.generation;
  question.token_ids = config.input.tokens;
  if (config.input.prompt.has_value()) {
    question.text = config.input.prompt;
  } else if (config.input.file.has_value()) {
    ASSIGN_OR_RETURN(question.text, ReadFile(*config.input.file, kMaxTextBytes));
  } else if (config.input.chat.has_value()) {
    if (!config.input.system.empty()) question.messages.push_back({"system", config.input.system});
    question.messages.push_back({"user", *config.input.chat});
  }
  return question;
}

Json ToJson(const ClientResponse& response) {
  Json json;
  json["text"] = response.text;
  json["token_ids"] = response.token_ids;
  json["finish_reason"] = response.finish_reason;
  json["usage"] = response.usage;
  const double decode_seconds = absl::ToDoubleSeconds(response.total - response.first_message);
  const size_t tokens = response.token_ids.size();
  json["timing"] = {{"messages", response.messages},
                    {"first_message_seconds", absl::ToDoubleSeconds(response.first_message)},
                    {"total_seconds", absl::ToDoubleSeconds(response.total)},
                    {"tokens_per_second",
                     tokens > 1 && decode_seconds > 0 ? (tokens - 1) / decode_seconds : 0.0}};
  return json;
}

}  // namespace

absl::Status RunGenerate(const Config& config, Console* console) {
  ASSIGN_OR_RETURN(const Question question, MakeQuestion(config));
  ASSIGN_OR_RETURN(const Connection connection, OpenConnection(config, console));
  if (!config.client.session.empty()) {
    RETURN_IF_ERROR(connection.client->OpenSession(config.client.session).status());
  }
  WaitLine waiting(console);
  ResponseHooks hooks;
  std::function<void()> cancel;
  if (config.output.format == OutputFormat::kText) {
    hooks.on_start = [&](std::function<void()> function) { cancel = std::move(function); };
    hooks.on_text = [&](absl::string_view text) {
      waiting.Stop();
      console->Print(text);
      if (!console->out_status().ok()) cancel();
    };
  }
  waiting.Start();
  const AskResult result = connection.client->Ask(question, hooks);
  waiting.Stop();
  RETURN_IF_ERROR(console->out_status());
  if (config.output.format == OutputFormat::kText && result.response.messages > 0) {
    console->Print("\n");
  }
  RETURN_IF_ERROR(result.status);
  if (config.output.format == OutputFormat::kJson) console->PrintJson(ToJson(result.response));
  console->Note(absl::StrCat(Summary(result.response, config.generation), "\n"));
  return console->out_status();
}

}  // namespace tidepool::service
