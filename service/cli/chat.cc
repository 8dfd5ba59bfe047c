// chat: a conversation in the terminal. Each input line is one message.
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"
#include "service/cli/ask.h"
#include "service/cli/commands.h"
#include "service/cli/signals.h"
#include "service/cli/wait_line.h"

namespace tidepool::service {
namespace {

// Exit code of a process that a signal ends, as in a shell: this plus the signal's number.
constexpr int kSignalled = 128;

constexpr absl::string_view kHelp =
    "/help          show this\n"
    "/quit, /exit   end the chat, as Ctrl-D does\n"
    "Ctrl-C         stop the response\n"
    "Any other line is a message to the model.\n";

// Thread-safe. Handles Ctrl-C: while the model loads or the server is checked, it ends the process;
// during a response, it cancels the response.
class Interrupt {
 public:
  void ChatIsOpen() {
    base::MutexLock lock(&mutex_);
    open_ = true;
  }
  bool chat_is_open() {
    base::MutexLock lock(&mutex_);
    return open_;
  }
  void SetResponse(std::function<void()> cancel) {
    base::MutexLock lock(&mutex_);
    cancel_ = std::move(cancel);
  }
  // Returns false if no response was running.
  bool Cancel() {
    base::MutexLock lock(&mutex_);
    if (!cancel_) return false;
    cancel_();
    return true;
  }

 private:
  base::Mutex mutex_;
  bool open_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  std::function<void()> cancel_ TIDEPOOL_GUARDED_BY(mutex_);
};

// Thread-compatible. A conversation. Its earlier messages are in the server's session, or in this
// object.
class Conversation {
 public:
  Conversation(const Config& config, Client* client) : config_(config), client_(client) {}

  absl::Status Open() {
    int64_t turns = 0;
    if (!config_.client.session.empty()) {
      ASSIGN_OR_RETURN(turns, client_->OpenSession(config_.client.session));
    }
    if (turns == 0 && !config_.input.system.empty()) {
      messages_.push_back({"system", config_.input.system});
    }
    return absl::OkStatus();
  }

  AskResult Say(const std::string& line, const ResponseHooks& hooks) {
    Question question;
    question.session = config_.client.session;
    question.generation = config_.generation;
    question.messages = messages_;
    question.messages.push_back({"user", line});
    AskResult result = client_->Ask(question, hooks);
    // If a response was cancelled after its first message, the part that arrived stays in the
    // conversation.
    const bool kept = result.status.ok() || result.response.messages > 0;
    if (!kept) return result;
    messages_ = std::move(question.messages);
    messages_.push_back({"assistant", result.response.text});
    if (!config_.client.session.empty()) messages_.clear();
    return result;
  }

 private:
  const Config& config_;
  Client* const client_;
  std::vector<ChatLine> messages_;
};

// With --json, each response is one JSON object on its own line.
void Report(const Config& config, const AskResult& result, Console* console) {
  if (config.output.format == OutputFormat::kJson) {
    const bool stopped = absl::IsCancelled(result.status);
    console->PrintJson({{"text", result.response.text},
                        {"token_ids", result.response.token_ids},
                        {"finish_reason", stopped ? "CANCELLED" : result.response.finish_reason},
                        {"usage", result.response.usage}});
  } else {
    console->Print("\n");
  }
  if (absl::IsCancelled(result.status)) {
    console->Note("[stopped]\n");
  } else {
    console->Note(absl::StrCat("[", Summary(result.response, config.generation), "]\n"));
  }
}

}  // namespace

absl::Status RunChat(const Config& config, Console* console) {
  Interrupt interrupt;
  const SignalWatcher watcher({SIGINT}, [&](int signal) {
    if (!interrupt.chat_is_open()) {
      // The model is still loading, which cannot be cancelled. No message was sent yet.
      if (console->err_is_terminal()) console->Note("\n");
      std::_Exit(kSignalled + signal);
    }
    if (!interrupt.Cancel()) console->Note("\n[/quit or Ctrl-D ends the chat]\n> ");
  });
  ASSIGN_OR_RETURN(const Connection connection, OpenConnection(config, console));
  Conversation conversation(config, connection.client.get());
  RETURN_IF_ERROR(conversation.Open());
  interrupt.ChatIsOpen();

  if (console->err_is_terminal()) {
    console->Note(
        "[a line is a message; Ctrl-C stops a response, /quit or Ctrl-D ends the chat, /help]\n");
  }
  WaitLine waiting(console);
  ResponseHooks hooks;
  hooks.on_start = [&](std::function<void()> cancel) { interrupt.SetResponse(std::move(cancel)); };
  if (config.output.format == OutputFormat::kText) {
    hooks.on_text = [&](absl::string_view text) {
      waiting.Stop();
      console->Print(text);
      if (!console->out_status().ok()) interrupt.Cancel();
    };
  }
  int refused = 0;
  int answered = 0;
  std::string line;
  while (console->out_status().ok()) {
    console->Note("> ");
    if (!std::getline(std::cin, line)) break;
    const absl::string_view words = absl::StripAsciiWhitespace(line);
    if (words == "/quit" || words == "/exit") break;
    if (words == "/help") {
      console->Note(kHelp);
      continue;
    }
    if (words.empty()) continue;
    waiting.Start();
    const AskResult result = conversation.Say(line, hooks);
    waiting.Stop();
    interrupt.SetResponse(nullptr);
    if (!result.status.ok() && !absl::IsCancelled(result.status)) {
      // Continue after a refused message, but stop if the server is unreachable.
      if (absl::IsUnavailable(result.status)) return result.status;
      console->Note(absl::StrCat("tidepool: ", OneLine(result.status.message()), "\n"));
      ++refused;
      continue;
    }
    ++answered;
    Report(config, result, console);
  }
  RETURN_IF_ERROR(console->out_status());
  if (refused > 0 && answered == 0) return absl::AbortedError("all messages were refused");
  return absl::OkStatus();
}

}  // namespace tidepool::service
