// The parts of responses (parse_output) over real gRPC, with the scripted model.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/service/serve_fixture.h"

namespace tidepool::service {
namespace {

class ParsedOutputTest : public ServeTest {
 protected:
  // The reasoning begins with a control token, which has no text otherwise.
  void StartParsing() {
    Start({.tool_syntax = v1::TOOL_CALL_TAGS, .thinks_after = "<|start|>"});
    std::vector<int32_t> reply = {fakes::kStartToken};
    for (const int32_t token : WithEnd(kReply)) reply.push_back(token);
    // <|start|>user\nhi<|end_of_text|><|start|>assistant\n
    engine_->model.SetScript(fakes::Replies(20, reply, 'x'));
  }
  static v1::GenerateRequest Chat() {
    v1::GenerateRequest request;
    request.set_parse_output(true);
    v1::ChatMessage* message = request.mutable_chat()->add_messages();
    message->set_role("user");
    message->set_content("hi");
    request.mutable_chat()->set_tools_json(R"([{"type":"function","function":{"name":"f"}}])");
    return request;
  }
  static std::string Shown(const StreamedResponse& response) {
    std::string reasoning, content, calls;
    for (const v1::GenerateResponse& message : response.messages) {
      for (const v1::OutputEvent& event : message.events()) {
        reasoning += event.reasoning();
        content += event.content();
        const v1::ToolCallDelta& call = event.tool_call();
        absl::StrAppend(&calls, call.id().empty() ? "" : " id ", call.name(), call.arguments());
      }
    }
    return absl::StrCat(reasoning, "|", content, "|", calls);
  }

  static constexpr char kReply[] =
      "Hm.</think>Look:<tool_call>{\"name\":\"f\",\"arguments\":{\"x\":1}}</tool_call>";
};

TEST_F(ParsedOutputTest, StreamsTheParts) {
  StartParsing();
  const StreamedResponse response = Generate(Chat());
  ASSERT_TRUE(response.status.ok()) << response.status.error_message();
  EXPECT_EQ(Shown(response), "Hm.|Look:| id f{\"x\":1}");
  EXPECT_EQ(response.text, absl::StrCat("<|start|>", kReply));
  EXPECT_EQ(response.last().usage().reasoning_tokens(), 3);
  // Without the field, the text is that of the tokens.
  v1::GenerateRequest raw = Chat();
  raw.clear_parse_output();
  EXPECT_EQ(Generate(raw).text, kReply);
}

TEST_F(ParsedOutputTest, ResumesAfterAnyToken) {
  StartParsing();
  v1::GenerateRequest request = Chat();
  request.set_request_id("r");
  const StreamedResponse whole = Generate(request);
  ASSERT_TRUE(whole.status.ok()) << whole.status.error_message();
  const std::string id = [&] {
    for (const v1::GenerateResponse& message : whole.messages) {
      for (const v1::OutputEvent& event : message.events()) {
        if (!event.tool_call().id().empty()) return event.tool_call().id();
      }
    }
    return std::string();
  }();
  EXPECT_FALSE(id.empty());
  request.set_resume_after(5);  // in the end marker
  const StreamedResponse rest = Generate(request);
  ASSERT_TRUE(rest.status.ok()) << rest.status.error_message();
  EXPECT_EQ(Shown(rest), "|Look:| id f{\"x\":1}");
  for (const v1::GenerateResponse& message : rest.messages) {
    for (const v1::OutputEvent& event : message.events()) {
      const std::string& other = event.tool_call().id();
      EXPECT_TRUE(other.empty() || other == id) << other;
    }
  }
}

TEST_F(ParsedOutputTest, CompleteHasTheWholeParts) {
  StartParsing();
  grpc::ClientContext context;
  v1::CompleteResponse response;
  const grpc::Status status = inference_->Complete(&context, Chat(), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const v1::Completion& completion = response.completions(0);
  EXPECT_EQ(completion.reasoning(), "Hm.");
  EXPECT_EQ(completion.content(), "Look:");
  ASSERT_EQ(completion.tool_calls_size(), 1);
  EXPECT_EQ(completion.tool_calls(0).name(), "f");
  EXPECT_EQ(completion.tool_calls(0).arguments(), "{\"x\":1}");
}

TEST_F(ParsedOutputTest, NeedsAChat) {
  Start();
  v1::GenerateRequest request = Text("hi", 5);
  request.set_parse_output(true);
  EXPECT_EQ(Generate(request).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace tidepool::service
