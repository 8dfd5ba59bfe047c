// The parts of responses (parse_output). They are the same if a response moves to another worker or
// is resumed.
#include "service/front/output_events.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/service/front/front_fixture.h"

namespace tidepool::service {
namespace {

constexpr char kText[] =
    "<think>Hm.</think>Look:<tool_call>{\"name\":\"f\",\"arguments\":{\"x\":1}}</tool_call>";

// Returns the events as text: r[...] c[...] and the calls with their ids.
std::string Shown(const EventList& events) {
  std::string shown;
  for (const v1::OutputEvent& event : events) {
    const v1::ToolCallDelta& call = event.tool_call();
    if (event.has_reasoning()) absl::StrAppend(&shown, "r[", event.reasoning(), "]");
    if (event.has_content()) absl::StrAppend(&shown, "c[", event.content(), "]");
    if (event.has_tool_call()) {
      absl::StrAppend(&shown, call.index(), "[", call.id(), " ", call.name(), call.arguments(),
                      "]");
    }
  }
  return shown;
}

class OutputEventsTest : public FrontTest {
 protected:
  PuppetLink* AddParsing(const std::string& name) {
    PuppetLink* worker = AddWorker(name);
    worker->tool_syntax = v1::TOOL_CALL_TAGS;
    worker->reasoning.set_begin("<think>");
    worker->reasoning.set_end("</think>");
    worker->SayState();
    return worker;
  }
  static v1::GenerateRequest Chat() {
    v1::GenerateRequest request;
    request.set_parse_output(true);
    request.set_request_id("r");
    v1::ChatMessage* message = request.mutable_chat()->add_messages();
    message->set_role("user");
    message->set_content("hi");
    request.mutable_chat()->set_tools_json(
        R"([{"type":"function","function":{"name":"f","parameters":{}}}])");
    return request;
  }
  // Returns all events that the client has received.
  static EventList EventsOf(const Client& client) {
    EventList events;
    for (const v1::GenerateResponse& message : client.messages) {
      for (const v1::OutputEvent& event : message.events()) AppendEvent(event, &events);
    }
    return events;
  }
  void TakeAll(Client* client) {
    for (loop_.RunAll(); client->writing; loop_.RunAll()) client->Take();
  }
};

std::string Expected() { return absl::StrCat("r[Hm.]c[Look:]0[", "ID", " f{\"x\":1}]"); }

std::string WithoutId(std::string shown) {
  const size_t id = shown.find("call_");
  if (id != shown.npos) shown.replace(id, 29, "ID");
  return shown;
}

TEST_F(OutputEventsTest, MessagesHaveTheirParts) {
  PuppetLink* worker = AddParsing("a");
  Client client;
  Begin(&client, Chat());
  worker->AnswerPrepare({1, 2, 3});
  for (const char* c = kText; *c != 0; ++c) worker->runs[0]->SayText(std::string(1, *c));
  worker->runs[0]->SayText("", v1::STOP);
  TakeAll(&client);
  EXPECT_EQ(WithoutId(Shown(EventsOf(client))), Expected());
}

TEST_F(OutputEventsTest, WithoutTheFieldThereAreNone) {
  PuppetLink* worker = AddParsing("a");
  Client client;
  v1::GenerateRequest request = Chat();
  request.clear_parse_output();
  Begin(&client, request);
  worker->AnswerPrepare({1});
  worker->runs[0]->SayText(kText, v1::STOP);
  TakeAll(&client);
  EXPECT_EQ(EventsOf(client).size(), 0);
}

TEST_F(OutputEventsTest, WithoutToolsInThePromptThereAreNoCalls) {
  PuppetLink* worker = AddParsing("a");
  for (const bool none : {false, true}) {
    Client client;
    v1::GenerateRequest request = Chat();
    request.set_request_id(absl::StrCat("r", none));
    if (none) {
      request.mutable_chat()->mutable_tool_choice()->set_mode(v1::ToolChoice::NONE);
    } else {
      request.mutable_chat()->clear_tools_json();
    }
    Begin(&client, request);
    worker->AnswerPrepare({1});
    worker->runs.back()->SayText("<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
                                 v1::STOP);
    TakeAll(&client);
    EXPECT_EQ(Shown(EventsOf(client)),
              "c[<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>]");
  }
}

// A worker crashes in the middle of a call. The parts, and the id of the call, are the same.
TEST_F(OutputEventsTest, AMovedResponseHasTheSameParts) {
  std::string whole;
  for (size_t cut = 0; cut <= sizeof(kText) - 1; cut += 7) {
    core_ = std::make_unique<FrontCore>(&loop_, &clock_, store_.get(),
                                        [](LogLevel, absl::string_view) {});
    PuppetLink* a = AddParsing("a");
    Client client;
    Begin(&client, Chat());
    a->AnswerPrepare({1, 2, 3});
    PuppetLink* b = AddParsing("b");
    a->runs[0]->SayText(std::string(kText, cut));
    a->runs[0]->events.on_end(absl::UnavailableError("connection reset"), EndedBy::kCrash);
    loop_.Advance(absl::Seconds(1));
    ASSERT_EQ(b->runs.size(), 1);
    b->runs[0]->SayText(kText + cut);
    b->runs[0]->SayText("", v1::STOP);
    TakeAll(&client);
    const std::string shown = Shown(EventsOf(client));
    if (whole.empty()) whole = shown;
    EXPECT_EQ(shown, whole);
    EXPECT_EQ(WithoutId(shown), Expected());
  }
}

// A client that resumes gets the parts of the later tokens.
TEST_F(OutputEventsTest, AResumedResponseHasThePartsOfLaterTokens) {
  PuppetLink* worker = AddParsing("a");
  Client first;
  Begin(&first, Chat());
  worker->AnswerPrepare({1});
  const std::string text = kText;
  const size_t cut = text.find("{\"x");
  worker->runs[0]->SayText(text.substr(0, cut));
  TakeAll(&first);
  worker->runs[0]->SayText(text.substr(cut), v1::STOP);
  TakeAll(&first);
  Client second;
  v1::GenerateRequest request = Chat();
  request.set_resume_after(cut);
  Begin(&second, request);
  TakeAll(&second);
  EXPECT_EQ(WithoutId(Shown(EventsOf(second))), "0[ID f{\"x\":1}]");
  EXPECT_EQ(Shown(EventsOf(second)), Shown(second.messages.back().events()));
  // A front that does not know the response computes it again, from the beginning.
  core_ = std::make_unique<FrontCore>(&loop_, &clock_, store_.get(),
                                      [](LogLevel, absl::string_view) {});
  PuppetLink* other = AddParsing("b");
  Client third;
  Begin(&third, request);
  other->AnswerPrepare({1});
  for (const char c : text) other->runs[0]->SayText(std::string(1, c));
  other->runs[0]->SayText("", v1::STOP);
  TakeAll(&third);
  EXPECT_EQ(Shown(EventsOf(third)), Shown(EventsOf(second)));
}

TEST_F(OutputEventsTest, ThePromptCanEndInReasoning) {
  v1::GenerateResponse message;
  ResponseFormat format = {.in_reasoning = true};
  format.reasoning.set_begin("<think>");
  format.reasoning.set_end("</think>");
  OutputEvents events(format, {});
  message.set_text("a b</think>c");
  for (int token = 0; token < 4; ++token) message.add_token_ids(token);
  message.set_finish_reason(v1::STOP);
  events.AddTo(&message);
  EXPECT_EQ(Shown(message.events()), "r[a b]c[c]");
}

}  // namespace
}  // namespace tidepool::service
