// The log line that is written when a request ends.
#include "service/front/request_log.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/service/front/front_fixture.h"

namespace tidepool::service {
namespace {

struct Line {
  LogLevel level;
  std::map<std::string, std::string> fields;

  bool Has(const std::string& name) const { return fields.count(name) > 0; }
};

class RequestLogTest : public FrontTest {
 protected:
  RequestLogTest() {
    core_ = std::make_unique<FrontCore>(
        &loop_, &clock_, store_.get(),
        [this](LogLevel level, absl::string_view line, LogFields fields) {
          if (line == "request ended") lines_.push_back(Keep(level, fields));
        });
  }

  static Line Keep(LogLevel level, LogFields fields) {
    Line line = {.level = level};
    for (const LogField& field : fields) {
      line.fields[std::string(field.name)] =
          std::visit([](const auto& value) { return absl::StrCat(value); }, field.value);
    }
    return line;
  }

  void Begin(Client* client, GenerationInput input) {
    input.deadline = clock_.Monotonic() + absl::Minutes(10);
    client->generation = core_->Generate(std::move(input), client);
    loop_.RunAll();
  }

  static GenerationInput Named(const std::string& id) {
    GenerationInput input = {.request = Text(), .principal = "alice", .role = Role::kAdmin};
    input.request.set_request_id(id);
    input.span = BeginSpan(
        ParseTraceContext("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "vendor=x"));
    return input;
  }

  std::vector<Line> lines_;
};

TEST_F(RequestLogTest, LogsThePrincipalAndTheResult) {
  PuppetLink* worker = AddWorker("a");
  Client client;
  Begin(&client, Named("r1"));
  worker->AnswerPrepare({1, 2, 3});
  clock_.Advance(absl::Milliseconds(250));
  worker->runs[0]->Say({10});
  loop_.RunAll();
  client.Take();
  clock_.Advance(absl::Milliseconds(250));
  worker->runs[0]->Say({11}, v1::LENGTH);
  loop_.RunAll();
  client.Take();
  ASSERT_TRUE(client.status.has_value());
  ASSERT_EQ(lines_.size(), 1);
  const Line& line = lines_[0];
  EXPECT_EQ(line.level, LogLevel::kInfo);
  const std::map<std::string, std::string> expected = {
      {"request_id", "r1"},
      {"principal", "alice"},
      {"model", "m"},
      {"worker", "a"},
      {"prompt_tokens", "3"},
      {"cached_tokens", "0"},
      {"output_tokens", "2"},
      {"time_to_first_token_seconds", "0.25"},
      {"duration_seconds", "0.5"},
      {"finish", "length"},
      {"code", "OK"},
      {"trace_id", "4bf92f3577b34da6a3ce929d0e0e4736"},
      {"parent_span_id", "00f067aa0ba902b7"},
      {"span_id", line.fields.at("span_id")}};
  EXPECT_EQ(line.fields, expected);

  // The worker gets the same trace. The parent is the span of this front.
  const worker::v1::Start& start = worker->runs[0]->start;
  EXPECT_EQ(start.request_id(), "r1");
  EXPECT_EQ(start.caller().principal(), "alice");
  EXPECT_EQ(start.caller().role(), "admin");
  EXPECT_EQ(start.caller().traceparent(),
            absl::StrCat("00-4bf92f3577b34da6a3ce929d0e0e4736-", line.fields.at("span_id"), "-01"));
  EXPECT_EQ(start.caller().tracestate(), "vendor=x");
  EXPECT_EQ(worker->prepares[0].first.caller().traceparent(), start.caller().traceparent());
}

// Metrics and clients get the same value.
TEST_F(RequestLogTest, AReasonToFinishOfANewerWorkerIsAStop) {
  PuppetLink* worker = AddWorker("a");
  Client client;
  Begin(&client, Named("r1"));
  worker->AnswerPrepare({1});
  worker->runs[0]->Say({10}, static_cast<v1::FinishReason>(77));
  loop_.RunAll();
  client.Take();
  ASSERT_TRUE(client.status.has_value());
  EXPECT_TRUE(client.status->ok()) << *client.status;
  ASSERT_EQ(lines_.size(), 1);
  EXPECT_EQ(lines_[0].fields["finish"], "stop");
  EXPECT_EQ(lines_[0].fields["code"], "OK");
}

TEST_F(RequestLogTest, LogsErrorsAndTheWorkersThatWereTriedBefore) {
  PuppetLink* a = AddWorker("a");
  Client client;
  Begin(&client, Named(""));
  a->AnswerPrepare({1});
  PuppetLink* b = AddWorker("b");
  a->runs[0]->events.on_end(absl::UnavailableError("reset"), EndedBy::kCrash);
  loop_.Advance(absl::Seconds(1));
  ASSERT_EQ(b->runs.size(), 1);
  b->runs[0]->events.on_end(absl::DataLossError("an expert is damaged"), EndedBy::kWorker);
  loop_.Advance(absl::Seconds(1));
  client.generation->Cancel(absl::CancelledError("the client left"));
  ASSERT_EQ(lines_.size(), 1);
  EXPECT_EQ(lines_[0].fields.at("code"), "CANCELLED");
  EXPECT_EQ(lines_[0].fields.at("error"), "the client left");
  EXPECT_GE(std::stoi(lines_[0].fields.at("attempts")), 3);
  EXPECT_EQ(lines_[0].fields.at("output_tokens"), "0");
  EXPECT_FALSE(lines_[0].Has("time_to_first_token_seconds"));
  EXPECT_EQ(lines_[0].fields.at("prompt_tokens"), "1");
  EXPECT_FALSE(lines_[0].Has("cached_tokens"));
}

TEST_F(RequestLogTest, RefusedOnesHaveTheirLineToo) {
  GenerationInput wrong = {.request = Text(), .own_id = "chatcmpl-1", .principal = "alice"};
  wrong.request.mutable_sampling()->set_top_p(7);
  Client client;
  Begin(&client, std::move(wrong));
  ASSERT_EQ(lines_.size(), 1);
  EXPECT_EQ(lines_[0].fields, (std::map<std::string, std::string>{{"request_id", "chatcmpl-1"},
                                                                  {"principal", "alice"},
                                                                  {"code", "INVALID_ARGUMENT"}}));
}

TEST_F(RequestLogTest, HoldsNothingOfThePromptUnlessAsked) {
  PuppetLink* worker = AddWorker("a");
  const auto ask = [&](const std::string& id, GenerationInput input) {
    Client client;
    input.request.set_request_id(id);
    Begin(&client, std::move(input));
    worker->prepares.back().second(absl::InvalidArgumentError("what is 'secret'?"));
    loop_.RunAll();
    return lines_.back();
  };
  GenerationInput text = Named("");
  text.request.set_text("a secret");
  const Line silent = ask("r1", text);
  EXPECT_EQ(silent.fields.at("code"), "INVALID_ARGUMENT");
  for (const auto& [name, value] : silent.fields) {
    EXPECT_EQ(value.find("secret"), std::string::npos) << name;
  }
  core_->requests()->log()->SetPrompts(PromptLogging::kAlways);
  const Line open = ask("r2", text);
  EXPECT_EQ(open.fields.at("prompt"), "a secret");
  EXPECT_EQ(open.fields.at("error"), "what is 'secret'?");

  GenerationInput chat = Named("");
  for (const char* role : {"system", "user"}) {
    v1::ChatMessage* message = chat.request.mutable_chat()->add_messages();
    message->set_role(role);
    message->set_content("secret");
  }
  EXPECT_EQ(ask("r3", chat).fields.at("prompt"), "system: secret\nuser: secret");
  // A long text is cut between two characters, not inside one.
  text.request.set_text(absl::StrCat(std::string(4095, 'x'), "\xc3\xa9"));
  EXPECT_EQ(ask("r4", text).fields.at("prompt"), absl::StrCat(std::string(4095, 'x'), "..."));
}

}  // namespace
}  // namespace tidepool::service
