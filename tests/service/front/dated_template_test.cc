// Chats whose template contains the date, before and after midnight.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "service/front/first_request_times.h"
#include "service/worker/prompt.h"
#include "tests/fakes/byte_tokenizer.h"
#include "tests/service/front/idempotency_cache_fixture.h"
#include "tests/service/test_server.h"

namespace tidepool::service {
namespace {

using absl::StatusCode;
using Tokens = std::vector<int32_t>;

constexpr char kDated[] =
    "{{- '<|start|>system\n' + strftime_now('%d %b %Y') + '<|end_of_text|>' -}}"
    "{%- for message in messages -%}"
    "{{- '<|start|>' + message.role + '\n' + message.content + '<|end_of_text|>' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|start|>assistant\n' -}}{%- endif -%}";

class DatedTemplateTest : public IdempotencyCacheTest {
 protected:
  DatedTemplateTest() {
    engine_.worker.chat_template = engine::ChatTemplate::Parse(kDated);
    clock_.Advance(absl::Hours(12));
  }

  static v1::GenerateRequest Chat(const std::string& content) {
    v1::GenerateRequest request;
    v1::ChatMessage* message = request.mutable_chat()->add_messages();
    message->set_role("user");
    message->set_content(content);
    return request;
  }
  v1::GenerateRequest ChatTurn(const std::string& content) {
    SessionTurn();
    v1::GenerateRequest request = Chat(content);
    request.set_session_id("s");
    return request;
  }

  // The worker renders the last Prepare, with the time that the front sent, or with its own clock.
  void Render(PuppetLink* worker) {
    const auto& [request, done] = worker->prepares.back();
    done(Prepare(request, {.model = &engine_.worker, .now = clock_.Now()}));
    loop_.RunAll();
  }
  static Tokens PromptOf(const PuppetLink* worker) {
    const auto& ids = worker->runs.back()->start.prepared().token_ids();
    return {ids.begin(), ids.end()};
  }
  // Begins the request on a new worker. The worker renders and runs it.
  PuppetLink* Ask(Client* client, const v1::GenerateRequest& request, const std::string& name) {
    PuppetLink* worker = AddWorker(name);
    Begin(client, request);
    loop_.RunUntil([&] { return !worker->prepares.empty() || client->status.has_value(); });
    if (!client->status.has_value()) Render(worker);
    return worker;
  }
  // Sends the tokens of the text.
  static void Say(PuppetLink* worker, const std::string& text, v1::FinishReason finish) {
    PuppetLink::Run_& run = LastRun(worker);
    worker::v1::RunResponse response;
    response.set_attempt(run.start.attempt());
    response.set_position(run.position);
    response.set_text(text);
    Tokens ids = fakes::ByteTokens(text);
    if (finish == v1::STOP) ids.push_back(fakes::kEndToken);
    run.position += static_cast<int64_t>(ids.size());
    response.mutable_token_ids()->Assign(ids.begin(), ids.end());
    response.set_finish_reason(finish);
    if (finish == v1::STOP) response.mutable_usage();
    run.events.on_response(std::move(response));
  }
  void StartAnotherFront() {
    core_ = nullptr;
    core_ = std::make_unique<FrontCore>(&loop_, &clock_, store_.get(),
                                        [](LogLevel, absl::string_view) {});
  }
  static bool StartsWith(const Tokens& all, const Tokens& begin) {
    return all.size() > begin.size() && std::equal(begin.begin(), begin.end(), all.begin());
  }

  TestEngine engine_{TestEngineOptions{.digest = "d"}};
};

TEST_F(DatedTemplateTest, AConversationKeepsItsDateAfterMidnight) {
  Client first, second;
  PuppetLink* worker = Ask(&first, ChatTurn("Is it lit?"), "a");
  Say(worker, "It is.", v1::STOP);
  loop_.RunUntil([&] { return !Log().info.busy; });
  TakeAll(&first);
  const Tokens log = Log().token_ids;
  clock_.JumpWall(absl::Hours(24));
  StartAnotherFront();
  v1::GenerateRequest request = Chat("And now?");
  request.set_session_id("s");
  worker = Ask(&second, request, "b");
  ASSERT_EQ(worker->runs.size(), 1);
  EXPECT_TRUE(StartsWith(PromptOf(worker), log));
  EXPECT_EQ(worker->runs[0]->start.prepared().session_tokens_kept(), log.size());
  second.generation->Cancel(absl::CancelledError("end of the test"));
}

TEST_F(DatedTemplateTest, AForkKeepsTheDateOfItsSource) {
  Client first, second;
  PuppetLink* worker = Ask(&first, ChatTurn("Is it lit?"), "a");
  Say(worker, "It is.", v1::STOP);
  loop_.RunUntil([&] { return !Log().info.busy; });
  TakeAll(&first);
  clock_.JumpWall(absl::Hours(24));
  const auto fork = [this](const std::string& id, std::optional<int64_t> position) {
    v1::ForkSessionRequest request;
    request.set_session_id("s");
    request.set_new_session_id(id);
    if (position.has_value()) request.set_position(*position);
    std::optional<absl::StatusOr<v1::Session>> made;
    core_->sessions()->Fork(request, "", [&](absl::StatusOr<v1::Session> session) {
      loop_.Post([&made, session] { made = session; });
    });
    loop_.RunUntil([&] { return made.has_value(); });
    return **made;
  };
  const int64_t day = 24 * 60 * 60;
  const v1::Session whole = fork("whole", std::nullopt);
  EXPECT_EQ(whole.update_time().seconds() - whole.create_time().seconds(), day);
  const v1::Session empty = fork("empty", 0);
  EXPECT_EQ(empty.update_time().seconds(), empty.create_time().seconds());
  v1::GenerateRequest request = Chat("And now?");
  request.set_session_id("whole");
  StartAnotherFront();
  worker = Ask(&second, request, "b");
  ASSERT_EQ(worker->runs.size(), 1);
  EXPECT_TRUE(StartsWith(PromptOf(worker), Log().token_ids));
  second.generation->Cancel(absl::CancelledError("end of the test"));
}

TEST_F(DatedTemplateTest, ARepeatedTurnKeepsItsPromptAfterMidnight) {
  Client first, second, third;
  const v1::GenerateRequest request = Named(ChatTurn("Is it lit?"));
  PuppetLink* worker = Ask(&first, request, "a");
  const Tokens prompt = PromptOf(worker);
  Say(worker, "It", v1::FINISH_REASON_UNSPECIFIED);
  loop_.RunUntil([&] { return !Log().token_ids.empty(); });
  clock_.JumpWall(absl::Hours(24));
  StartAnotherFront();
  worker = Ask(&second, Named(request, 2), "b");
  ASSERT_EQ(worker->runs.size(), 1);
  EXPECT_EQ(PromptOf(worker), prompt);
  EXPECT_EQ(worker->runs[0]->start.output_token_ids_size(), 2);

  // An older worker ignores the time and uses its own clock.
  StartAnotherFront();
  worker = AddWorker("c");
  Begin(&third, Named(request, 2));
  loop_.RunUntil([&] { return !worker->prepares.empty() || third.status.has_value(); });
  ASSERT_FALSE(third.status.has_value()) << *third.status;
  worker->prepares[0].first.clear_now_us();
  Render(worker);
  ASSERT_EQ(worker->runs.size(), 1);
  EXPECT_EQ(PromptOf(worker), prompt);
  third.generation->Cancel(absl::CancelledError("end of the test"));
}

TEST_F(DatedTemplateTest, ARequestThatRunsAgainKeepsItsPromptAfterMidnight) {
  Client first, second, again;
  const v1::GenerateRequest request = Named(Chat("Is it lit?"));
  PuppetLink* worker = Ask(&first, request, "a");
  const Tokens prompt = PromptOf(worker);
  Say(worker, "It", v1::FINISH_REASON_UNSPECIFIED);
  TakeAll(&first);
  first.generation->Cancel(absl::CancelledError("gone"));
  loop_.Advance(absl::Seconds(31));  // an orphan is cancelled
  ASSERT_TRUE(worker->runs[0]->gone);
  clock_.JumpWall(absl::Hours(24));
  worker->lose(absl::UnavailableError("gone"));
  worker = Ask(&second, Named(request, 1), "b");
  ASSERT_EQ(worker->runs.size(), 1);
  EXPECT_EQ(PromptOf(worker), prompt);
  // A request with another body is a different request, so there is nothing to resume.
  second.generation->Cancel(absl::CancelledError("gone"));
  loop_.Advance(absl::Seconds(31));
  worker->lose(absl::UnavailableError("gone"));
  worker = Ask(&again, Named(Chat("Is it lat?")), "c");
  ASSERT_EQ(worker->runs.size(), 1);
  EXPECT_NE(PromptOf(worker)[9], prompt[9]) << "the day's second digit";
  again.generation->Cancel(absl::CancelledError("end of the test"));
}

TEST_F(DatedTemplateTest, NoResponseIsMadeOfTwo) {
  const v1::GenerateRequest request = Named(Chat("Is it lit?"));
  {
    // The request may have begun at another front, but the date was the same there.
    Client client;
    PuppetLink* worker = Ask(&client, Named(request, 1), "a");
    EXPECT_EQ(worker->runs.size(), 1);
    client.generation->Cancel(absl::CancelledError("end of the test"));
  }
  StartAnotherFront();
  clock_.JumpWall(absl::Hours(12) + absl::Minutes(30));
  PuppetLink* worker = nullptr;
  for (const char* name : {"b", "c"}) {
    Client client;
    worker = Ask(&client, Named(request, 1), name);
    EXPECT_TRUE(worker->runs.empty());
    ASSERT_TRUE(client.status.has_value()) << name;
    EXPECT_EQ(client.status->code(), StatusCode::kFailedPrecondition) << *client.status;
    EXPECT_TRUE(absl::StrContains(client.status->message(), "without resume_after"));
    worker->lose(absl::UnavailableError("gone"));
  }
  Client restarted;
  worker = Ask(&restarted, request, "d");
  EXPECT_EQ(worker->runs.size(), 1);
  restarted.generation->Cancel(absl::CancelledError("end of the test"));
}

TEST(FirstRequestTimesTest, AreKeptForAWhileAndNotWithoutEnd) {
  fakes::ManualClock clock;
  FirstRequestTimes times(&clock);
  const absl::Time noon = absl::UnixEpoch() + absl::Hours(12);
  times.Keep({"p", "one"}, "body", noon, absl::Minutes(10));
  EXPECT_EQ(times.Find({"p", "one"}, "body"), noon);
  EXPECT_EQ(times.Find({"p", "one"}, "other"), std::nullopt);
  EXPECT_EQ(times.Find({"q", "one"}, "body"), std::nullopt);
  clock.Advance(absl::Minutes(9));
  times.Keep({"p", "one"}, "body", noon, absl::Minutes(10));
  clock.Advance(absl::Minutes(9));
  EXPECT_EQ(times.Find({"p", "one"}, "body"), noon);
  clock.Advance(absl::Minutes(1));
  EXPECT_EQ(times.Find({"p", "one"}, "body"), std::nullopt);
  for (size_t i = 0; i <= FirstRequestTimes::kMax; ++i) {
    times.Keep({"p", absl::StrCat(i)}, "body", noon, absl::Minutes(10));
  }
  EXPECT_EQ(times.Find({"p", "0"}, "body"), std::nullopt);
  EXPECT_EQ(times.Find({"p", "1"}, "body"), noon);
}

}  // namespace
}  // namespace tidepool::service
