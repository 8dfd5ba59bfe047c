// Sessions over real gRPC: turns, what a cancelled turn keeps, and the calls of the service
// Sessions.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/retry_after.h"
#include "service/grpc/status.h"
#include "service/store/sqlite_db.h"
#include "tests/service/serve_fixture.h"

namespace tidepool::service {
namespace {

using grpc::StatusCode;

class ServeSessionsTest : public ServeTest {
 protected:
  // If `position` is not set, forks the whole log.
  grpc::Status Fork(const std::string& id, const std::string& new_id,
                    std::optional<int64_t> position = std::nullopt) {
    grpc::ClientContext context;
    v1::ForkSessionRequest request;
    request.set_session_id(id);
    request.set_new_session_id(new_id);
    if (position.has_value()) request.set_position(*position);
    v1::Session session;
    return sessions_->ForkSession(&context, request, &session);
  }

  grpc::Status Truncate(const std::string& id, std::optional<int64_t> position) {
    grpc::ClientContext context;
    v1::TruncateSessionRequest request;
    request.set_session_id(id);
    if (position.has_value()) request.set_position(*position);
    v1::Session session;
    const grpc::Status status = sessions_->TruncateSession(&context, request, &session);
    EXPECT_TRUE(!status.ok() || session.token_count() == position) << session.token_count();
    return status;
  }

  // Runs a turn with one user message.
  StreamedResponse Ask(const std::string& id, const std::string& content, int64_t max_tokens = 50) {
    v1::GenerateRequest request;
    request.set_session_id(id);
    request.mutable_stopping()->set_max_tokens(max_tokens);
    v1::ChatMessage* message = request.mutable_chat()->add_messages();
    message->set_role("user");
    message->set_content(content);
    return Generate(request);
  }

  // Begins a turn that is computed for eight forward passes and then blocks until the test releases
  // the model.
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> BeginHeldTurn(
      const std::string& id, grpc::ClientContext* context) {
    engine_->model.Hold();
    v1::GenerateRequest request = LongText();
    request.set_session_id(id);
    auto reader = inference_->Generate(context, request);
    engine_->model.Allow(8);
    return reader;
  }

  static std::vector<int32_t> Prefix(const v1::Session& session, int64_t length) {
    return {session.token_ids().begin(), session.token_ids().begin() + length};
  }
};

std::vector<int32_t> Tokens(const v1::Session& session) {
  return {session.token_ids().begin(), session.token_ids().end()};
}

TEST_F(ServeSessionsTest, ATurnMayNameItsModelByAnAlias) {
  Start({.aliases = {"small", "tiny"}});
  const std::string session = CreateSession();
  v1::GenerateRequest turn = Text("Hello", 2);
  turn.set_session_id(session);
  for (const char* name : {"tiny", "scripted", "small"}) {
    turn.set_model(name);
    EXPECT_TRUE(Generate(turn).status.ok()) << name;
  }
  turn.set_model("other");
  const grpc::Status other = Generate(turn).status;
  EXPECT_EQ(other.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_TRUE(absl::StrContains(other.error_message(), "belongs to model 'scripted', not 'other'"))
      << other.error_message();
}

TEST_F(ServeSessionsTest, ASecondTokensTurnFindsItsCache) {
  Start();
  const std::string id = CreateSession();
  v1::GenerateRequest first = Text(std::string(100, 'p'), 60);
  first.set_session_id(id);
  const StreamedResponse one = Generate(first);
  ASSERT_TRUE(one.status.ok()) << one.status.error_message();
  v1::GenerateRequest second = Text("and?", 5);
  second.set_session_id(id);
  const StreamedResponse two = Generate(second);
  ASSERT_TRUE(two.status.ok()) << two.status.error_message();
  EXPECT_EQ(two.last().usage().prompt_tokens(), 164);
  EXPECT_GE(two.last().usage().cached_tokens(), 128);

  const v1::Session session = GetSession(id);
  EXPECT_EQ(session.kind(), v1::TOKENS);
  EXPECT_EQ(session.token_count(), 169);
  ASSERT_EQ(session.turns_size(), 2);
  EXPECT_EQ(session.turns(1).start(), 160);
  EXPECT_EQ(session.turns(1).output_start(), 164);
  EXPECT_EQ(session.turns(1).finish_reason(), v1::LENGTH);
  EXPECT_FALSE(session.busy());

  // If one request contains the same conversation, the response has the same tokens.
  v1::GenerateRequest whole;
  whole.mutable_token_ids()->mutable_ids()->Assign(session.token_ids().begin(),
                                                   session.token_ids().begin() + 164);
  whole.mutable_stopping()->set_max_tokens(5);
  EXPECT_EQ(Generate(whole).token_ids, two.token_ids);

  v1::GenerateRequest chat;
  chat.set_session_id(id);
  v1::ChatMessage* message = chat.mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content("hi");
  const StreamedResponse mixed = Generate(chat);
  EXPECT_EQ(mixed.status.error_code(), StatusCode::FAILED_PRECONDITION);
}

TEST_F(ServeSessionsTest, AChatContinuesAfterItsOwnTokens) {
  Start();
  const std::string id = CreateSession();
  // <|start|>user\nhi<|end|><|start|>assistant\n : 1 + 5 + 2 + 1 + 1 + 10
  engine_->model.SetScript(fakes::Replies(20, WithEnd("opera"), 'x'));
  const StreamedResponse one = Ask(id, "hi");
  ASSERT_TRUE(one.status.ok()) << one.status.error_message();
  EXPECT_EQ(one.text, "opera");
  EXPECT_EQ(one.last().usage().prompt_tokens(), 20);

  engine_->model.SetScript(fakes::Replies(48, WithEnd("<think>a</think>b"), 'x'));
  const StreamedResponse two = Ask(id, "yes?");
  ASSERT_TRUE(two.status.ok()) << two.status.error_message();
  EXPECT_EQ(two.text, "<think>a</think>b");
  v1::Session session = GetSession(id);
  EXPECT_EQ(session.kind(), v1::CHAT);
  // "opera" stays five generated tokens in the log, although the tokenizer would make one word of
  // it. The end token of the turn is in the log only once.
  ASSERT_EQ(session.turns_size(), 2);
  EXPECT_EQ(session.turns(1).start(), 26);
  EXPECT_EQ(session.token_ids(25), fakes::kEndToken);
  EXPECT_EQ(session.token_ids(26), fakes::kStartToken);
  ASSERT_EQ(session.turns(1).messages_size(), 2);
  EXPECT_EQ(session.turns(1).messages(1).content(), "<think>a</think>b");

  // This template removes the reasoning. So the log branches where the response began.
  const StreamedResponse three = Ask(id, "so");
  ASSERT_TRUE(three.status.ok()) << three.status.error_message();
  session = GetSession(id);
  ASSERT_EQ(session.turns_size(), 3);
  const v1::Turn& cut = session.turns(1);
  EXPECT_GT(cut.cut_tokens(), 0);
  EXPECT_EQ(cut.end(), session.turns(2).start());
  EXPECT_LE(cut.output_start(), cut.end());
  EXPECT_EQ(session.turns(0).cut_tokens(), 0);
  // The range of the last turn is its response.
  const v1::Turn& last = session.turns(2);
  EXPECT_EQ(last.end(), session.token_ids_size());
  EXPECT_EQ(std::vector<int32_t>(session.token_ids().begin() + last.output_start(),
                                 session.token_ids().begin() + last.end()),
            three.token_ids);
}

TEST_F(ServeSessionsTest, ACancelledTurnKeepsTheDeliveredTokens) {
  Start();
  const std::string id = CreateSession();
  grpc::ClientContext context;
  auto reader = BeginHeldTurn(id, &context);
  v1::GenerateResponse message;
  std::vector<int32_t> received;
  while (received.size() < 5 && reader->Read(&message)) {
    received.insert(received.end(), message.token_ids().begin(), message.token_ids().end());
  }

  // The session is busy for all other requests, and for deletion.
  v1::GenerateRequest other = Text("me too", 5);
  other.set_session_id(id);
  EXPECT_EQ(Generate(other).status.error_code(), StatusCode::ABORTED);
  EXPECT_TRUE(GetSession(id).busy());

  context.TryCancel();
  while (reader->Read(&message)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);
  engine_->model.Release();
  WaitIdle();
  // The engine may be idle before the front has closed the turn.
  v1::Session session = GetSession(id);
  while (session.busy()) session = GetSession(id);
  EXPECT_FALSE(session.busy());
  ASSERT_EQ(session.turns_size(), 1);
  EXPECT_EQ(session.turns(0).finish_reason(), v1::CANCELLED);
  ASSERT_GE(session.token_ids_size(), 5 + received.size());
  for (size_t i = 0; i < received.size(); ++i) EXPECT_EQ(session.token_ids(5 + i), received[i]);
  EXPECT_TRUE(Generate(other).status.ok());
}

TEST_F(ServeSessionsTest, ABusySessionSaysWhenToComeBack) {
  Start();
  const std::string id = CreateSession();
  grpc::ClientContext context;
  auto reader = BeginHeldTurn(id, &context);
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  const auto expect_hint = [](const char* call, const grpc::Status& status,
                              const grpc::ClientContext& called) {
    EXPECT_EQ(status.error_code(), StatusCode::ABORTED) << call << ": " << status.error_message();
    EXPECT_EQ(base::RetryAfterOf(FromGrpcStatus(status)), absl::Seconds(1)) << call;
    const auto& trailer = called.GetServerTrailingMetadata();
    ASSERT_EQ(trailer.count("grpc-retry-pushback-ms"), 1) << call;
    EXPECT_EQ(trailer.find("grpc-retry-pushback-ms")->second, "1000") << call;
  };
  v1::GenerateRequest second = Text("me too", 5);
  second.set_session_id(id);
  {
    grpc::ClientContext called;
    auto refused = inference_->Generate(&called, second);
    EXPECT_FALSE(refused->Read(&message));
    const grpc::Status status = refused->Finish();
    expect_hint("Generate", status, called);
  }
  {
    grpc::ClientContext called;
    v1::CompleteResponse response;
    const grpc::Status status = inference_->Complete(&called, second, &response);
    expect_hint("Complete", status, called);
  }
  {
    grpc::ClientContext called;
    v1::DeleteSessionRequest deletion;
    deletion.set_session_id(id);
    v1::DeleteSessionResponse response;
    const grpc::Status status = sessions_->DeleteSession(&called, deletion, &response);
    expect_hint("DeleteSession", status, called);
  }
  {
    grpc::ClientContext called;
    v1::TruncateSessionRequest cut;
    cut.set_session_id(id);
    cut.set_position(3);
    v1::Session response;
    const grpc::Status status = sessions_->TruncateSession(&called, cut, &response);
    expect_hint("TruncateSession", status, called);
  }
  context.TryCancel();
  engine_->model.Release();
  while (reader->Read(&message)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);
}

TEST_F(ServeSessionsTest, AFullSessionSaysSo) {
  Start({.context = 256});
  const std::string id = CreateSession();
  v1::GenerateRequest turn = Text(std::string(200, 'x'), 40);
  turn.set_session_id(id);
  ASSERT_TRUE(Generate(turn).status.ok());
  const StreamedResponse full = Generate(turn);
  EXPECT_EQ(full.status.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_TRUE(absl::StrContains(full.status.error_message(), "TruncateSession"));
  EXPECT_EQ(GetSession(id).turn_count(), 1);
}

TEST_F(ServeSessionsTest, ATruncatedSessionContinuesAsIfTheRestHadNeverBeen) {
  Start({.context = 256});
  const std::string id = CreateSession();
  v1::GenerateRequest turn = Text(std::string(100, 'x'), 40);
  turn.set_session_id(id);
  ASSERT_TRUE(Generate(turn).status.ok());
  const v1::Session first = GetSession(id);
  const std::vector<int32_t> second = Generate(turn).token_ids;
  EXPECT_EQ(second.size(), 16);  // the response ends when the context is full
  const StreamedResponse full = Generate(turn);
  EXPECT_EQ(full.status.error_code(), StatusCode::FAILED_PRECONDITION);

  ASSERT_TRUE(Truncate(id, 140).ok());
  const v1::Session back = GetSession(id);
  EXPECT_EQ(Tokens(back), Tokens(first));
  ASSERT_EQ(back.turns_size(), 1);
  EXPECT_EQ(back.turns(0).SerializeAsString(), first.turns(0).SerializeAsString());
  EXPECT_EQ(Generate(turn).token_ids, second);

  // The position is in the middle of a response of a session with tokens.
  ASSERT_TRUE(Truncate(id, 120).ok());
  const v1::Session inside = GetSession(id);
  EXPECT_EQ(Tokens(inside), Prefix(first, 120));
  EXPECT_EQ(inside.turns(0).finish_reason(), v1::CANCELLED);
  EXPECT_EQ(inside.turns(0).end(), 120);
  v1::GenerateRequest whole;
  whole.mutable_token_ids()->mutable_ids()->Assign(first.token_ids().begin(),
                                                   first.token_ids().begin() + 120);
  whole.mutable_token_ids()->add_ids('y');
  whole.mutable_stopping()->set_max_tokens(5);
  v1::GenerateRequest more = Text("y", 5);
  more.set_session_id(id);
  EXPECT_EQ(Generate(more).token_ids, Generate(whole).token_ids);

  // The session is now like a new one. So its next turn may have the other kind.
  ASSERT_TRUE(Truncate(id, 0).ok());
  EXPECT_EQ(GetSession(id).kind(), v1::SESSION_KIND_UNSPECIFIED);
  EXPECT_TRUE(Ask(id, "hi").status.ok());
}

TEST_F(ServeSessionsTest, CutsAreRefusedByPositionAndRange) {
  Start();
  const std::string id = CreateSession();
  ASSERT_TRUE(Ask(id, "hi", 5).status.ok());
  for (const int64_t position : {int64_t{-1}, int64_t{26}, int64_t{7}}) {
    const grpc::Status status = Truncate(id, position);
    EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT) << position;
    EXPECT_TRUE(absl::StrContains(status.error_message(), "25")) << status.error_message();
    EXPECT_EQ(Fork(id, "other", position).error_code(), StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_EQ(Truncate(id, std::nullopt).error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Truncate("none", 0).error_code(), StatusCode::NOT_FOUND);
  EXPECT_EQ(Fork("none", "other").error_code(), StatusCode::NOT_FOUND);
  EXPECT_EQ(Fork(id, "no space").error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Fork(id, id).error_code(), StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(GetSession(id).token_count(), 25);
}

TEST_F(ServeSessionsTest, AChatThatWasCutInsideAResponseContinuesAfterTheRest) {
  Start();
  const std::string id = CreateSession();
  engine_->model.SetScript(fakes::Replies(20, WithEnd("hello there"), 'x'));
  ASSERT_EQ(Ask(id, "hi").text, "hello there");
  ASSERT_TRUE(Truncate(id, 25).ok());
  const v1::Session cut = GetSession(id);
  ASSERT_EQ(cut.turns_size(), 1);
  EXPECT_EQ(cut.turns(0).messages(1).content(), "hello");
  EXPECT_EQ(cut.turns(0).finish_reason(), v1::CANCELLED);
  ASSERT_TRUE(Ask(id, "so").status.ok());
  // First comes the end of the turn that was cut, and then the new message.
  const v1::Session after = GetSession(id);
  EXPECT_EQ(Prefix(after, 25), Tokens(cut));
  EXPECT_EQ(after.turns(1).start(), 25);
  EXPECT_EQ(after.token_ids(25), fakes::kEndToken);
  EXPECT_EQ(after.token_ids(26), fakes::kStartToken);
}

TEST_F(ServeSessionsTest, AForkLeavesTheSessionAlone) {
  Start();
  const std::string id = CreateSession();
  engine_->model.SetScript(fakes::Replies(20, WithEnd("opera"), 'x'));
  ASSERT_TRUE(Ask(id, "hi").status.ok());
  ASSERT_TRUE(Ask(id, "and?", 9).status.ok());
  const v1::Session before = GetSession(id);
  ASSERT_TRUE(Fork(id, "whole").ok());
  ASSERT_TRUE(Fork(id, "first", before.turns(1).start()).ok());
  ASSERT_TRUE(Fork(id, "empty", 0).ok());
  EXPECT_EQ(Tokens(GetSession("whole")), Tokens(before));
  EXPECT_EQ(GetSession("whole").turns_size(), 2);
  EXPECT_EQ(GetSession("whole").turns(1).messages(1).content(),
            before.turns(1).messages(1).content());
  EXPECT_EQ(GetSession("empty").turns_size(), 0);
  // The fork continues in another way.
  const v1::Session branch = GetSession("first");
  EXPECT_EQ(Tokens(branch), Prefix(before, before.turns(1).start()));
  ASSERT_TRUE(Ask("first", "and?", 9).status.ok());
  EXPECT_EQ(Tokens(GetSession("first")), Tokens(before));
  ASSERT_TRUE(Ask("whole", "x", 3).status.ok());
  EXPECT_EQ(GetSession(id).SerializeAsString(), before.SerializeAsString());
}

TEST_F(ServeSessionsTest, ABusySessionIsForkedAndNotTruncated) {
  Start();
  const std::string id = CreateSession();
  grpc::ClientContext context;
  auto reader = BeginHeldTurn(id, &context);
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_EQ(Truncate(id, 3).error_code(), StatusCode::ABORTED);
  ASSERT_TRUE(Fork(id, "branch").ok());
  const v1::Session branch = GetSession("branch");
  EXPECT_FALSE(branch.busy());
  EXPECT_GT(branch.token_count(), 5);
  EXPECT_EQ(branch.turns(0).finish_reason(), v1::CANCELLED);
  EXPECT_EQ(branch.turns(0).end(), branch.token_count());
  context.TryCancel();
  engine_->model.Release();
  while (reader->Read(&message)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);
}

TEST_F(ServeSessionsTest, ADamagedSessionIsListedBesideTheOthersAndCanBeDeleted) {
  store_path_ = absl::StrCat(testing::TempDir(), "/damaged_session.db");
  Start();
  for (const char* id : {"first", "hurt", "last"}) {
    grpc::ClientContext context;
    v1::CreateSessionRequest create;
    create.set_session_id(id);
    v1::Session session;
    ASSERT_TRUE(sessions_->CreateSession(&context, create, &session).ok());
  }
  server_.reset();
  ASSERT_TRUE(SqliteDb::Open(store_path_)
                  ->Execute("UPDATE sessions SET model = 'other' WHERE session_id = 'hurt'")
                  .ok());
  Start();
  grpc::ClientContext list_context;
  v1::ListSessionsResponse list;
  ASSERT_TRUE(sessions_->ListSessions(&list_context, {}, &list).ok());
  ASSERT_EQ(list.sessions_size(), 3);
  for (const v1::Session& session : list.sessions()) {
    EXPECT_EQ(session.damage().empty(), session.session_id() != "hurt") << session.DebugString();
  }
  v1::GetSessionRequest get;
  get.set_session_id("hurt");
  grpc::ClientContext get_context;
  v1::Session session;
  const grpc::Status got = sessions_->GetSession(&get_context, get, &session);
  EXPECT_EQ(got.error_code(), StatusCode::DATA_LOSS);
  EXPECT_TRUE(absl::StrContains(got.error_message(), "'hurt'")) << got.error_message();
  v1::DeleteSessionRequest remove;
  remove.set_session_id("hurt");
  grpc::ClientContext delete_context;
  v1::DeleteSessionResponse removed;
  EXPECT_TRUE(sessions_->DeleteSession(&delete_context, remove, &removed).ok());
}

TEST_F(ServeSessionsTest, SessionsCrud) {
  Start();
  grpc::ClientContext context;
  v1::CreateSessionRequest create;
  create.set_session_id("mine");
  v1::Session session;
  ASSERT_TRUE(sessions_->CreateSession(&context, create, &session).ok());
  EXPECT_EQ(session.session_id(), "mine");
  EXPECT_EQ(session.model(), "scripted");
  grpc::ClientContext again;
  EXPECT_EQ(sessions_->CreateSession(&again, create, &session).error_code(),
            StatusCode::ALREADY_EXISTS);
  CreateSession();
  grpc::ClientContext list_context;
  v1::ListSessionsResponse list;
  ASSERT_TRUE(sessions_->ListSessions(&list_context, {}, &list).ok());
  EXPECT_EQ(list.sessions_size(), 2);
  grpc::ClientContext bad_context;
  v1::ListSessionsRequest bad;
  bad.set_page_size(-1);
  EXPECT_EQ(sessions_->ListSessions(&bad_context, bad, &list).error_code(),
            StatusCode::INVALID_ARGUMENT);
  grpc::ClientContext delete_context;
  v1::DeleteSessionRequest remove;
  remove.set_session_id("mine");
  v1::DeleteSessionResponse removed;
  ASSERT_TRUE(sessions_->DeleteSession(&delete_context, remove, &removed).ok());
  grpc::ClientContext gone_context;
  EXPECT_EQ(sessions_->DeleteSession(&gone_context, remove, &removed).error_code(),
            StatusCode::NOT_FOUND);
  EXPECT_EQ(Stats().front().sessions(), 1);
}

}  // namespace
}  // namespace tidepool::service
