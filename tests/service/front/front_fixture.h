// A front with workers that the test controls. There is no network, no real time, and no thread
// except the store's.
#ifndef TIDEPOOL_TESTS_SERVICE_FRONT_FRONT_FIXTURE_H_
#define TIDEPOOL_TESTS_SERVICE_FRONT_FRONT_FIXTURE_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "service/front/front_core.h"
#include "service/grpc/check_request.h"
#include "service/store/sqlite_session_store.h"
#include "tests/fakes/manual_clock.h"
#include "tests/service/base/manual_executor.h"

namespace tidepool::service {

// A worker whose responses all come from the test.
class PuppetLink final : public WorkerLink {
 public:
  struct Run_ {
    worker::v1::Start start;
    RunEvents events;
    int64_t credit = 0;
    bool gone = false;  // the front has destroyed the call

    // Sends tokens, as the worker would.
    void Say(const std::vector<int32_t>& tokens,
             v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED) {
      worker::v1::RunResponse response;
      response.set_attempt(start.attempt());
      response.set_position(position);
      if (position == 0) response.set_text(lead);
      for (const int32_t token : tokens) {
        response.add_token_ids(token);
        response.set_text(absl::StrCat(response.text(), "t", token, " "));
      }
      response.set_finish_reason(finish);
      if (finish != v1::FINISH_REASON_UNSPECIFIED) response.mutable_usage();
      position += tokens.size();
      events.on_response(std::move(response));
    }
    // Sends one token with `bytes` bytes of text.
    void SayLong(int32_t token, size_t bytes) {
      worker::v1::RunResponse response;
      response.set_attempt(start.attempt());
      response.set_position(position++);
      response.add_token_ids(token);
      response.set_text(std::string(bytes, 'x'));
      events.on_response(std::move(response));
    }
    // Sends `text`, each byte of which is a token.
    void SayText(const std::string& text, v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED) {
      worker::v1::RunResponse response;
      response.set_attempt(start.attempt());
      response.set_position(position);
      for (const char c : text) response.add_token_ids(static_cast<uint8_t>(c));
      response.set_text(text);
      response.set_finish_reason(finish);
      if (finish != v1::FINISH_REASON_UNSPECIFIED) response.mutable_usage();
      position += static_cast<int64_t>(text.size());
      events.on_response(std::move(response));
    }
    void SayMigrate() {
      worker::v1::RunResponse response;
      response.set_attempt(start.attempt());
      response.set_position(position);
      response.set_migrate(true);
      events.on_response(std::move(response));
    }
    int64_t position = 0;
    std::string lead;
  };

  explicit PuppetLink(std::string name) : name_(std::move(name)) {}

  const std::string& address() const override { return name_; }
  void Prepare(worker::v1::PrepareRequest request, absl::Duration,
               Done<worker::v1::PrepareResponse> done) override {
    prepares.emplace_back(std::move(request), std::move(done));
  }
  std::unique_ptr<RunCall> Run(worker::v1::Start start, absl::Duration, RunEvents events) override {
    auto run = std::make_shared<Run_>();
    run->start = std::move(start);
    run->events = std::move(events);
    run->credit = run->start.credit();
    run->position = run->start.output_token_ids_size();
    run->lead = lead;
    runs.push_back(run);
    return std::make_unique<Call>(run);
  }
  void Tokenize(v1::TokenizeRequest, absl::Duration, Done<v1::TokenizeResponse> done) override {
    texts.push_back(std::move(done));
  }
  // Never responds, as if a long text were before it in the queue.
  void Detokenize(v1::DetokenizeRequest, absl::Duration, Done<v1::DetokenizeResponse>) override {}
  // Returns the same text for a token as Say does.
  void TextOf(v1::DetokenizeRequest request, const std::string& principal, absl::Duration,
              Done<v1::DetokenizeResponse> done) override {
    texts_for.push_back(principal);
    v1::DetokenizeResponse response;
    if (request.keep_spaces()) response.set_text(lead);
    for (const int32_t token : request.token_ids()) {
      absl::StrAppend(response.mutable_text(), "t", token, " ");
    }
    done(std::move(response));
  }
  void GetStats(absl::Duration, Done<v1::GetStatsResponse> done) override {
    done(v1::GetStatsResponse());
  }
  void SetOffload(v1::SetOffloadRequest, absl::Duration, Done<v1::SetOffloadResponse>) override {}
  void RefreshExperts(v1::RefreshExpertsRequest, absl::Duration,
                      Done<v1::RefreshExpertsResponse>) override {}
  void GetPlacement(v1::GetPlacementRequest, absl::Duration,
                    Done<v1::GetPlacementResponse>) override {}
  void Drain(v1::DrainRequest, absl::Duration, Done<v1::DrainResponse>) override {}
  void Watch(std::function<void(const worker::v1::WatchResponse&)> on_state,
             std::function<void(absl::Status)> on_lost) override {
    on_state_ = std::move(on_state);
    lose = std::move(on_lost);
  }

  void SayState(worker::v1::WorkerState state = worker::v1::SERVING) {
    worker::v1::WatchResponse response;
    response.set_worker_id(name_);
    response.set_state(state);
    response.set_process_id(process_id);
    response.set_understands(announces);
    response.set_sequences_running(sequences);
    response.set_places(places);
    response.set_room_wait_seconds(2);
    response.mutable_model()->set_name("m");
    response.mutable_model()->mutable_aliases()->Assign(aliases.begin(), aliases.end());
    response.mutable_model()->set_digest(digest);
    response.mutable_model()->set_numerics_id(numerics);
    response.mutable_model()->set_context_length(2048);
    response.mutable_model()->set_tool_syntax(tool_syntax);
    if (!reasoning.begin().empty()) *response.mutable_model()->mutable_reasoning() = reasoning;
    on_state_(response);
  }

  // Responds to the last Prepare with this prompt. Its first `kept` tokens are from the session.
  void AnswerPrepare(std::vector<int32_t> prompt, int64_t kept = 0) {
    worker::v1::PrepareResponse response;
    response.mutable_token_ids()->Assign(prompt.begin(), prompt.end());
    response.set_session_tokens_kept(kept);
    response.set_model_digest("d");
    response.mutable_stopping()->set_max_tokens(1000);
    response.set_understands(understands);
    response.set_prompt_text("the prompt");
    prepares.back().second(std::move(response));
  }

  std::vector<std::pair<worker::v1::PrepareRequest, Done<worker::v1::PrepareResponse>>> prepares;
  std::vector<std::shared_ptr<Run_>> runs;
  std::vector<Done<v1::TokenizeResponse>> texts;  // pending Tokenize calls
  std::vector<std::string> texts_for;             // principals of the TextOf calls
  std::function<void(absl::Status)> lose;
  std::string digest = "d";
  std::vector<std::string> aliases;
  std::string numerics = "n";
  int64_t sequences = 0;
  int64_t places = 0;
  uint64_t process_id = 0;
  int32_t understands = kUnderstands;  // in PrepareResponse
  int32_t announces = kUnderstands;    // in WatchResponse
  v1::ToolSyntax tool_syntax = v1::TOOL_SYNTAX_UNSPECIFIED;
  v1::ReasoningMarkers reasoning;
  // a text before the first token of a response; it is missing if tokens are decoded alone
  std::string lead;

 private:
  class Call final : public RunCall {
   public:
    explicit Call(std::shared_ptr<Run_> run) : run_(std::move(run)) {}
    ~Call() override { run_->gone = true; }
    void AddCredit(int64_t tokens) override { run_->credit += tokens; }

   private:
    std::shared_ptr<Run_> run_;
  };

  const std::string name_;
  std::function<void(const worker::v1::WatchResponse&)> on_state_;
};

class Client final : public GenerationSink {
 public:
  void Write(v1::GenerateResponse response) override {
    EXPECT_FALSE(writing) << "two writes at once";
    writing = true;
    for (const int32_t token : response.token_ids()) tokens.push_back(token);
    messages.push_back(std::move(response));
  }
  void Finish(absl::Status end) override {
    EXPECT_FALSE(status.has_value()) << "finished twice";
    status = std::move(end);
  }
  // The client receives the message that is waiting.
  void Take() {
    ASSERT_TRUE(writing);
    writing = false;
    generation->OnWritten();
  }

  std::shared_ptr<ResponseStream> generation;
  std::vector<v1::GenerateResponse> messages;
  std::vector<int32_t> tokens;
  bool writing = false;
  std::optional<absl::Status> status;
};

class FrontTest : public testing::Test {
 protected:
  FrontTest() {
    store_ = SqliteSessionStore::Open({.path = ":memory:", .clock = &clock_}).value();
    core_ = std::make_unique<FrontCore>(&loop_, &clock_, store_.get(),
                                        [](LogLevel, absl::string_view) {});
  }

  // Checks that all transitions of streams are allowed by stream_state.h.
  ~FrontTest() override {
    for (size_t from = 0; from < kStreamStates; ++from) {
      for (size_t to = 0; to < kStreamStates; ++to) {
        const auto one = static_cast<StreamState>(from), other = static_cast<StreamState>(to);
        if (core_->transitions().Count(one, other) == 0) continue;
        EXPECT_TRUE(MayFollow(one, other)) << "from state " << from << " to " << to;
      }
    }
  }

  PuppetLink* AddWorker(const std::string& name, int32_t announces = kUnderstands) {
    auto link = std::make_unique<PuppetLink>(name);
    PuppetLink* raw = link.get();
    raw->announces = announces;
    core_->workers()->Add(std::move(link));
    raw->SayState();
    return raw;
  }

  void Begin(Client* client, v1::GenerateRequest request) {
    GenerationInput input = {.request = std::move(request),
                             .deadline = clock_.Monotonic() + absl::Minutes(10)};
    client->generation = core_->Generate(std::move(input), client);
    loop_.RunAll();
  }

  static v1::GenerateRequest Text() {
    v1::GenerateRequest request;
    request.set_text("hello");
    return request;
  }

  v1::GenerateRequest SessionTurn() {
    bool made = false;
    store_->Create({.session_id = "s", .model = "m", .model_digest = "d"},
                   [&](const absl::StatusOr<SessionInfo>&) { loop_.Post([&] { made = true; }); });
    loop_.RunUntil([&] { return made; });
    v1::GenerateRequest request = Text();
    request.set_session_id("s");
    return request;
  }

  SessionLogData Log() {
    std::optional<absl::StatusOr<SessionLogData>> log;
    store_->Get("", "s", [&](const absl::StatusOr<SessionLogData>& got) {
      loop_.Post([&log, got] { log = got; });
    });
    loop_.RunUntil([&] { return log.has_value(); });
    return **log;
  }

  fakes::ManualClock clock_;
  ManualExecutor loop_{&clock_};
  std::unique_ptr<SessionStore> store_;
  std::unique_ptr<FrontCore> core_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_TESTS_SERVICE_FRONT_FRONT_FIXTURE_H_
