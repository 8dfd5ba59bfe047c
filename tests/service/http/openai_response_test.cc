// Responses in OpenAI's format, and the tool calls in them.
#include "service/http/openai_response.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace tidepool::service {
namespace {

v1::GenerateResponse Message(const std::string& text,
                             v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED) {
  v1::GenerateResponse message;
  message.set_text(text);
  if (!text.empty()) message.add_events()->set_content(text);
  message.set_finish_reason(finish);
  return message;
}

void AddLogprob(const std::string& token, float logprob, v1::GenerateResponse* message) {
  v1::TokenLogprob* entry = message->add_logprobs();
  entry->set_token(token);
  entry->set_logprob(logprob);
  v1::TopLogprob* top = entry->add_top();
  top->set_token("\xff");
  top->set_logprob(-INFINITY);
}

constexpr OpenAiEndpoint kChat = OpenAiEndpoint::kChat;
constexpr OpenAiEndpoint kCompletions = OpenAiEndpoint::kCompletions;

TEST(ResponseTest, WholeChat) {
  const ResponseHead head = {.endpoint = kChat, .id = "chatcmpl-1", .model = "m", .created = 5};
  ChoiceRenderer choice(head, 0, {});
  choice.Take(Message("Hel"));
  choice.Take(Message("lo", v1::STOP_STRING));
  EXPECT_EQ(
      ResponseText(head, {choice.TakeWhole()}, {7, 4, 2}),
      R"({"id":"chatcmpl-1","object":"chat.completion","created":5,"model":"m","choices":[{"index":0,)"
      R"("message":{"role":"assistant","content":"Hello","refusal":null},"logprobs":null,)"
      R"("finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2,)"
      R"("total_tokens":9,"prompt_tokens_details":{"cached_tokens":4}}})");
}

TEST(ResponseTest, UsageReportsExpertsIfThereAreAny) {
  EXPECT_EQ(DumpJson(UsageJson({.prompt_tokens = 7,
                                .completion_tokens = 2,
                                .has_experts = true,
                                .expert_hits = 0,
                                .expert_misses = 12,
                                .expert_demand_bytes = 4096,
                                .expert_stall_seconds = 0.25})),
            R"({"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,)"
            R"("prompt_tokens_details":{"cached_tokens":0},"expert_hits":0,"expert_misses":12,)"
            R"("expert_demand_bytes":4096,"expert_stall_seconds":0.25})");
  EXPECT_EQ(DumpJson(UsageJson({.has_experts = true})),
            R"({"prompt_tokens":0,"completion_tokens":0,"total_tokens":0,)"
            R"("prompt_tokens_details":{"cached_tokens":0},"expert_hits":0,"expert_misses":0,)"
            R"("expert_demand_bytes":0,"expert_stall_seconds":0.0})");
}

// The reason is from a worker that is newer than this front.
TEST(ResponseTest, AnUnknownReasonIsAnEnd) {
  const ResponseHead head = {.endpoint = kChat, .id = "chatcmpl-1", .model = "m", .created = 5};
  ChoiceRenderer choice(head, 0, {});
  choice.Take(Message("a", static_cast<v1::FinishReason>(99)));
  EXPECT_EQ(Json::parse(choice.TakeWhole())["finish_reason"], "stop");
}

TEST(ResponseTest, WholeCompletionWithLogprobs) {
  const ResponseHead head = {.endpoint = kCompletions, .id = "cmpl-1", .model = "m", .created = 5};
  ChoiceRenderer choice(head, 3, {});
  v1::GenerateResponse message = Message("h\xC3\xA9", v1::LENGTH);
  AddLogprob("h", -0.5f, &message);
  AddLogprob("\xC3", -1, &message);
  AddLogprob("\xA9", -2, &message);
  choice.Take(message);
  EXPECT_EQ(choice.TakeWhole(),
            "{\"index\":3,\"text\":\"h\xC3\xA9\",\"logprobs\":{\"text_offset\":[0,1,2],"
            R"("token_logprobs":[-0.5,-1.0,-2.0],"tokens":["h","bytes:\\xc3","bytes:\\xa9"],)"
            R"("top_logprobs":[{"bytes:\\xff":-9999.0,"h":-0.5},)"
            R"({"bytes:\\xff":-9999.0,"bytes:\\xc3":-1.0},)"
            R"({"bytes:\\xff":-9999.0,"bytes:\\xa9":-2.0}]},"finish_reason":"length"})");
}

TEST(ResponseTest, AWholeResponseDoesNotDependOnThePiecesOfItsText) {
  for (const OpenAiEndpoint endpoint : {kChat, kCompletions}) {
    const ResponseHead head = {.endpoint = endpoint, .id = "c", .model = "m", .created = 5};
    const std::vector<std::string> tokens = {"a", "\xC3", "\xA9", "\"", "\n"};
    v1::GenerateResponse whole = Message("a\xC3\xA9\"\n", v1::LENGTH);
    for (const std::string& token : tokens) AddLogprob(token, -0.5f, &whole);
    ChoiceRenderer at_once(head, 0, {});
    at_once.Take(whole);

    ChoiceRenderer settled(head, 0, {});
    size_t bytes = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool last = i + 1 == tokens.size();
      // A character that is incomplete has no text yet.
      v1::GenerateResponse part = Message(i == 1   ? ""
                                          : i == 2 ? "\xC3\xA9"
                                                   : tokens[i],
                                          last ? v1::LENGTH : v1::FINISH_REASON_UNSPECIFIED);
      AddLogprob(tokens[i], -0.5f, &part);
      settled.Take(part);
      EXPECT_GE(settled.bytes(), bytes + 20) << i;
      bytes = settled.bytes();
    }
    const std::string text = settled.TakeWhole();
    EXPECT_EQ(text, at_once.TakeWhole());
    EXPECT_LT(bytes, text.size());
    EXPECT_GT(bytes * 3, text.size());
    EXPECT_EQ(ResponseText(head, {text, text}, {}),
              DumpJson(Json::parse(ResponseText(head, {text, text}, {}))));
  }
}

TEST(ResponseTest, AStreamHasTheLogprobsOfTheWholeResponse) {
  for (const OpenAiEndpoint endpoint : {kChat, kCompletions}) {
    const ResponseHead head = {.endpoint = endpoint, .id = "c", .model = "m", .created = 5};
    ChoiceRenderer whole(head, 0, {}), stream(head, 0, {});
    Json streamed = Json::object();
    for (const std::string token : {"a", "\xC3", "\xA9", "\""}) {
      v1::GenerateResponse part = Message(token == "\xC3"   ? ""
                                          : token == "\xA9" ? "\xC3\xA9"
                                                            : token);
      AddLogprob(token, -0.5f, &part);
      whole.Take(part);
      stream.Take(part);
      const Json logprobs = Json::parse(*stream.TakeDelta())["logprobs"];
      for (const auto& [name, list] : logprobs.items()) {
        for (const Json& element : list) streamed[name].push_back(element);
        if (list.is_null()) streamed[name] = list;
      }
    }
    EXPECT_EQ(streamed, Json::parse(whole.TakeWhole())["logprobs"]);
  }
}

TEST(ResponseTest, TheUsageIsAChunksLastMember) {
  const ResponseHead head = {.endpoint = kCompletions, .id = "c", .model = "m", .created = 5};
  const std::string begin = R"({"id":"c","object":"text_completion","created":5,"model":"m",)";
  EXPECT_EQ(ChunkText(head, R"({"index":0})", "null"),
            begin + R"("choices":[{"index":0}],"usage":null})");
  EXPECT_EQ(ChunkText(head, "", R"({"a":1})"), begin + R"("choices":[],"usage":{"a":1}})");
}

TEST(ResponseTest, StreamOfChat) {
  const ResponseHead head = {.endpoint = kChat, .id = "c", .model = "m", .created = 5};
  ChoiceRenderer choice(head, 1, {});
  choice.Take(Message(""));
  EXPECT_FALSE(choice.TakeDelta().has_value());
  v1::GenerateResponse first = Message("A");
  AddLogprob("A", -0.25f, &first);
  choice.Take(first);
  const auto delta = choice.TakeDelta();
  ASSERT_TRUE(delta.has_value());
  EXPECT_EQ(SseEvent(ChunkText(head, *delta, "")),
            "data: "
            R"({"id":"c","object":"chat.completion.chunk","created":5,"model":"m","choices":[)"
            R"({"index":1,"delta":{"role":"assistant","content":"A"},"logprobs":{"content":[)"
            R"({"token":"A","logprob":-0.25,"bytes":[65],"top_logprobs":[{"token":")"
            "\xEF\xBF\xBD"
            R"(","logprob":-9999.0,"bytes":[255]}]}],"refusal":null},"finish_reason":null}]})"
            "\n\n");
  choice.Take(Message("", v1::LENGTH));
  EXPECT_EQ(*choice.TakeDelta(),
            R"({"index":1,"delta":{},"logprobs":null,"finish_reason":"length"})");
}

void AddCall(int32_t index, const std::string& id, const std::string& arguments,
             v1::GenerateResponse* message) {
  v1::ToolCallDelta* call = message->add_events()->mutable_tool_call();
  call->set_index(index);
  call->set_id(id);
  if (!id.empty()) call->set_name("f");
  call->set_arguments(arguments);
}

TEST(ResponseTest, CallsOfTools) {
  const ResponseHead head = {.endpoint = kChat, .id = "c"};
  v1::GenerateResponse first, second, last;
  AddCall(0, "call_1", "", &first);
  AddCall(0, "", "{\"x\":", &first);
  AddCall(0, "", "1}", &second);
  AddCall(1, "call_2", "{}", &second);
  last.set_finish_reason(v1::STOP);
  ChoiceRenderer whole(head, 0, {}), stream(head, 0, {});
  for (const v1::GenerateResponse& message : {first, second, last}) whole.Take(message);
  EXPECT_EQ(whole.TakeWhole(),
            R"({"index":0,"message":{"role":"assistant","content":null,"refusal":null,)"
            R"("tool_calls":[{"id":"call_1","type":"function","function":{"name":"f",)"
            R"("arguments":"{\"x\":1}"}},{"id":"call_2","type":"function","function":{"name":"f",)"
            R"("arguments":"{}"}}]},"logprobs":null,"finish_reason":"tool_calls"})");
  std::vector<std::string> deltas;
  for (const v1::GenerateResponse& message : {first, second}) {
    stream.Take(message);
    deltas.push_back(DumpJson(Json::parse(*stream.TakeDelta())["delta"]));
  }
  stream.Take(last);
  EXPECT_EQ(Json::parse(*stream.TakeDelta())["finish_reason"], "tool_calls");
  EXPECT_EQ(deltas[0],
            R"({"role":"assistant","tool_calls":[{"index":0,"id":"call_1","type":"function",)"
            R"("function":{"name":"f","arguments":"{\"x\":"}}]})");
  EXPECT_EQ(deltas[1], R"({"tool_calls":[{"index":0,"function":{"arguments":"1}"}},)"
                       R"({"index":1,"id":"call_2","type":"function",)"
                       R"("function":{"name":"f","arguments":"{}"}}]})");
}

TEST(ResponseTest, ReasoningIsApart) {
  const ResponseHead head = {.endpoint = kChat, .id = "c"};
  ChoiceRenderer whole(head, 0, {}), stream(head, 0, {});
  v1::GenerateResponse thought;
  thought.add_events()->set_reasoning("Hm.");
  for (ChoiceRenderer* choice : {&whole, &stream}) choice->Take(thought);
  EXPECT_EQ(DumpJson(Json::parse(*stream.TakeDelta())["delta"]),
            R"({"role":"assistant","reasoning_content":"Hm."})");
  whole.Take(Message("Hi", v1::STOP));
  EXPECT_EQ(DumpJson(Json::parse(whole.TakeWhole())["message"]),
            R"({"role":"assistant","content":"Hi","refusal":null,"reasoning_content":"Hm."})");
  EXPECT_EQ(UsageJson({.has_reasoning = true, .reasoning_tokens = 3})["completion_tokens_details"],
            Json::parse(R"({"reasoning_tokens":3})"));
}

v1::TokenLogprob* AddPrompt(int32_t id, const std::string& token, float logprob, int32_t rank,
                            v1::GenerateResponse* message) {
  v1::TokenLogprob* entry = message->add_prompt_logprobs();
  entry->set_token_id(id);
  entry->set_token(token);
  entry->set_logprob(logprob);
  entry->set_rank(rank);
  return entry;
}

// Returns a report of the prompt "ab", which has the tokens 1 and 2. At the second position, token
// 3 is more probable.
v1::GenerateResponse PromptMessage() {
  v1::GenerateResponse message;
  message.set_prompt_text("ab");
  message.add_prompt_token_ids(1);
  message.add_prompt_token_ids(2);
  AddPrompt(1, "a", 0, 0, &message);
  v1::TokenLogprob* second = AddPrompt(2, "b", -1.5f, 2, &message);
  v1::TopLogprob* top = second->add_top();
  top->set_token_id(3);
  top->set_token("c");
  top->set_logprob(-0.5f);
  return message;
}

TEST(ResponseTest, EchoWithLogprobsAsOpenAiHadIt) {
  const ResponseHead head = {.endpoint = kCompletions, .id = "c", .model = "m", .created = 5};
  ChoiceRenderer choice(head, 0, {.echo = true, .echo_logprobs = 1});
  choice.Take(PromptMessage());
  v1::GenerateResponse last = Message("d", v1::LENGTH);
  AddLogprob("d", -2, &last);
  choice.Take(last);
  EXPECT_EQ(Json::parse(choice.TakeWhole()), Json::parse(R"({"index":0,"text":"abd","logprobs":{
      "text_offset":[0,1,2],"token_logprobs":[null,-1.5,-2.0],"tokens":["a","b","d"],
      "top_logprobs":[null,{"c":-0.5,"b":-1.5},{"bytes:\\xff":-9999.0,"d":-2.0}]},
      "finish_reason":"length"})"));
}

TEST(ResponseTest, AChatWithEchoBeginsWithItsLastMessage) {
  const ResponseHead head = {.endpoint = kChat, .id = "c", .model = "m", .created = 5};
  ChoiceRenderer whole(head, 0, {.echo_text = "Once "}), stream(head, 0, {.echo_text = "Once "});
  whole.Take(Message("upon"));
  whole.Take(Message(" a", v1::LENGTH));
  EXPECT_EQ(Json::parse(whole.TakeWhole())["message"]["content"], "Once upon a");
  stream.Take(Message("upon"));
  EXPECT_EQ(Json::parse(*stream.TakeDelta())["delta"]["content"], "Once upon");
  stream.Take(Message(" a", v1::LENGTH));
  EXPECT_EQ(Json::parse(*stream.TakeDelta())["delta"]["content"], " a");
}

TEST(ResponseTest, PromptLogprobsAndTokenIdsAsVllmHasThem) {
  const PromptParts parts = {.prompt_logprobs = 1, .token_ids = true};
  const Json prompt = Json::parse(R"([null,{"3":{"logprob":-0.5,"rank":1,"decoded_token":"c"},
      "2":{"logprob":-1.5,"rank":2,"decoded_token":"b"}}])");
  v1::GenerateResponse last = Message("d", v1::LENGTH);
  last.add_token_ids(9);
  {
    const ResponseHead head = {.endpoint = kCompletions, .id = "c", .model = "m", .created = 5};
    ChoiceRenderer choice(head, 0, parts);
    choice.Take(PromptMessage());
    choice.Take(last);
    const Json json = Json::parse(choice.TakeWhole());
    EXPECT_EQ(json["text"], "d");
    EXPECT_EQ(json["prompt_logprobs"], prompt);
    EXPECT_EQ(json["prompt_token_ids"], Json::parse("[1,2]"));
    EXPECT_EQ(json["token_ids"], Json::parse("[9]"));
    EXPECT_EQ(json["logprobs"], Json());
  }
  // In a chat, the log-probabilities of the prompt are in a field beside `choices`.
  const ResponseHead head = {.endpoint = kChat, .id = "c", .model = "m", .created = 5};
  ChoiceRenderer choice(head, 0, parts);
  choice.Take(PromptMessage());
  choice.Take(last);
  EXPECT_EQ(Json::parse(choice.GivePromptLogprobs()), prompt);
  EXPECT_EQ(choice.GivePromptIds(), "[1,2]");
  const Json json = Json::parse(choice.TakeWhole());
  EXPECT_FALSE(json.contains("prompt_token_ids"));
  EXPECT_EQ(json["token_ids"], Json::parse("[9]"));
}

TEST(ResponseTest, TimingsAndProgressAsLlamaCppHasThem) {
  EXPECT_EQ(TimingsJson({.prompt_tokens = 10,
                         .cached_tokens = 2,
                         .completion_tokens = 5,
                         .prefill_seconds = 2,
                         .decode_seconds = 0.5}),
            Json::parse(R"({"cache_n":2,"prompt_n":8,"prompt_ms":2000.0,"prompt_per_token_ms":250.0,
                "prompt_per_second":4.0,"predicted_n":5,"predicted_ms":500.0,
                "predicted_per_token_ms":125.0,"predicted_per_second":8.0})"));
  EXPECT_EQ(TimingsJson({})["predicted_per_second"], Json());
  v1::PromptProgress progress;
  progress.set_total(9);
  progress.set_cached(3);
  progress.set_processed(5);
  progress.set_seconds(0.25);
  EXPECT_EQ(ProgressJson(progress),
            Json::parse(R"({"total":9,"cache":3,"processed":5,"time_ms":250})"));
}

}  // namespace
}  // namespace tidepool::service
