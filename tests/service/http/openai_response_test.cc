// Responses in OpenAI's format, and the tool calls in them.
#include "service/http/openai_response.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "service/http/tool_calls.h"

namespace tidepool::service {
namespace {

v1::GenerateResponse Message(const std::string& text,
                             v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED) {
  v1::GenerateResponse message;
  message.set_text(text);
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
  const AnswerHead head = {.endpoint = kChat, .id = "chatcmpl-1", .model = "m", .created = 5};
  ChoiceRenderer choice(head, 0, {});
  choice.Take(Message("Hel"));
  choice.Take(Message("lo", v1::STOP_STRING));
  EXPECT_EQ(
      AnswerText(head, {choice.TakeWhole()}, {7, 4, 2}),
      R"({"id":"chatcmpl-1","object":"chat.completion","created":5,"model":"m","choices":[{"index":0,)"
      R"("message":{"role":"assistant","content":"Hello","refusal":null},"logprobs":null,)"
      R"("finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2,)"
      R"("total_tokens":9,"prompt_tokens_details":{"cached_tokens":4}}})");
}

TEST(ResponseTest, UsageTellsOfExpertsWhereThereAreAny) {
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
  const AnswerHead head = {.endpoint = kChat, .id = "chatcmpl-1", .model = "m", .created = 5};
  ChoiceRenderer choice(head, 0, {});
  choice.Take(Message("a", static_cast<v1::FinishReason>(99)));
  EXPECT_EQ(Json::parse(choice.TakeWhole())["finish_reason"], "stop");
}

TEST(ResponseTest, WholeCompletionWithLogprobs) {
  const AnswerHead head = {.endpoint = kCompletions, .id = "cmpl-1", .model = "m", .created = 5};
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

TEST(ResponseTest, AWholeAnswerIsTheSameHoweverItCame) {
  for (const OpenAiEndpoint endpoint : {kChat, kCompletions}) {
    const AnswerHead head = {.endpoint = endpoint, .id = "c", .model = "m", .created = 5};
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
    EXPECT_EQ(AnswerText(head, {text, text}, {}),
              DumpJson(Json::parse(AnswerText(head, {text, text}, {}))));
  }
}

TEST(ResponseTest, AStreamsLogprobsAreThoseOfTheWholeAnswer) {
  for (const OpenAiEndpoint endpoint : {kChat, kCompletions}) {
    const AnswerHead head = {.endpoint = endpoint, .id = "c", .model = "m", .created = 5};
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
  const AnswerHead head = {.endpoint = kCompletions, .id = "c", .model = "m", .created = 5};
  const std::string begin = R"({"id":"c","object":"text_completion","created":5,"model":"m",)";
  EXPECT_EQ(ChunkText(head, R"({"index":0})", "null"),
            begin + R"("choices":[{"index":0}],"usage":null})");
  EXPECT_EQ(ChunkText(head, "", R"({"a":1})"), begin + R"("choices":[],"usage":{"a":1}})");
}

TEST(ResponseTest, StreamOfChat) {
  const AnswerHead head = {.endpoint = kChat, .id = "c", .model = "m", .created = 5};
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

TEST(ResponseTest, CallsOfTools) {
  const AnswerHead head = {.endpoint = kChat, .id = "c"};
  const std::string text =
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1, \"}\"]}}\n</tool_call>";
  ChoiceRenderer whole(head, 0, {});
  whole.LookForCalls(v1::TOOL_CALL_TAGS);
  whole.Take(Message(text, v1::STOP));
  EXPECT_EQ(whole.TakeWhole(),
            R"({"index":0,"message":{"role":"assistant","content":null,"refusal":null,)"
            R"("tool_calls":[{"id":"call_c_0_0","type":"function","function":{"name":"f",)"
            R"("arguments":"{\"x\":[1,\"}\"]}"}}]},"logprobs":null,"finish_reason":"tool_calls"})");
  ChoiceRenderer stream(head, 0, {});
  stream.LookForCalls(v1::TOOL_CALL_TAGS);
  std::vector<std::string> deltas;
  for (const char c : text + "\n" + text) {
    stream.Take(Message(std::string(1, c)));
    if (const auto delta = stream.TakeDelta()) {
      deltas.push_back(DumpJson(Json::parse(*delta)["delta"]));
    }
  }
  stream.Take(Message("", v1::STOP));
  EXPECT_EQ(Json::parse(*stream.TakeDelta())["finish_reason"], "tool_calls");
  ASSERT_EQ(deltas.size(), 2);
  EXPECT_EQ(deltas[0],
            R"({"role":"assistant","tool_calls":[{"id":"call_c_0_0","type":"function","function":)"
            R"({"name":"f","arguments":"{\"x\":[1,\"}\"]}"},"index":0}]})");
  EXPECT_EQ(deltas[1], R"({"tool_calls":[{"id":"call_c_0_1","type":"function","function":)"
                       R"({"name":"f","arguments":"{\"x\":[1,\"}\"]}"},"index":1}]})");
}

struct ToolCase {
  v1::ToolSyntax syntax;
  std::string text;
  std::string content;
  std::vector<std::string> calls;  // "name arguments"
};

std::vector<ToolCase> ToolCases() {
  constexpr auto tags = v1::TOOL_CALL_TAGS;
  constexpr auto llama = v1::LLAMA3_JSON;
  constexpr auto mistral = v1::MISTRAL_LIST;
  const std::string call = "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>";
  return {
      {tags, "plain text ", "plain text ", {}},
      {tags, "", "", {}},
      {tags, "Let me see.\n\n" + call + "\n", "Let me see.", {"f {}"}},
      {tags, call + "\n" + call, "", {"f {}", "f {}"}},
      {tags, "a < b <tool_cal", "a < b <tool_cal", {}},
      {tags, "<tool_call>{\"name\":\"f\"", "<tool_call>{\"name\":\"f\"", {}},
      {tags, "<tool_call>not JSON</tool_call> x", "<tool_call>not JSON</tool_call> x", {}},
      {tags, "<tool_call>[1]</tool_call>", "<tool_call>[1]</tool_call>", {}},
      {tags, "<<tool_call>{\"name\":\"g\"}</tool_call>", "<", {"g {}"}},
      {llama, "{\"name\": \"f\", \"parameters\": {\"a\": \"x\"}}", "", {"f {\"a\":\"x\"}"}},
      {llama, " {\"name\":\"f\"} ; {\"name\":\"g\"}\n", "", {"f {}", "g {}"}},
      {llama, "<|python_tag|>{\"name\":\"f\"}", "", {"f {}"}},
      {llama, "<|py is no tag", "<|py is no tag", {}},
      {llama, "{\"answer\": 3}", "{\"answer\": 3}", {}},
      {llama, "{\"name\":\"f\"} and more", "{\"name\":\"f\"} and more", {}},
      {llama, "It is {\"name\":\"f\"}", "It is {\"name\":\"f\"}", {}},
      {mistral, "[TOOL_CALLS] [{\"name\":\"f\",\"arguments\":{\"k\":1}}]", "", {"f {\"k\":1}"}},
      {mistral, "[{\"name\":\"f\",\"arguments\":\"{}\"},{\"name\":\"g\"}]", "", {"f {}", "g {}"}},
      {mistral, "[1, 2]", "[1, 2]", {}},
      {mistral, "[{\"name\":\"f\"", "[{\"name\":\"f\"", {}},
      {mistral, "Hello [there]", "Hello [there]", {}},
      {v1::OTHER_TOOL_SYNTAX, call, call, {}},
  };
}

void Collect(ToolCallParser::Output out, ToolCase* got) {
  got->content += out.content;
  for (const ToolCall& found : out.calls) got->calls.push_back(found.name + " " + found.arguments);
}

TEST(ToolCallParserTest, HoweverTheTextIsCut) {
  for (const ToolCase& expected : ToolCases()) {
    for (size_t step = 1; step <= expected.text.size() + 1; ++step) {
      ToolCallParser parser(expected.syntax);
      ToolCase got;
      for (size_t i = 0; i < expected.text.size(); i += step) {
        Collect(parser.Feed(expected.text.substr(i, step)), &got);
      }
      Collect(parser.Finish(), &got);
      EXPECT_EQ(got.content, expected.content) << expected.text << " in steps of " << step;
      EXPECT_EQ(got.calls, expected.calls) << expected.text << " in steps of " << step;
    }
  }
}

TEST(ToolCallParserTest, PlainTextIsNotHeldBack) {
  ToolCallParser tags(v1::TOOL_CALL_TAGS);
  EXPECT_EQ(tags.Feed("Hello").content, "Hello");
  ToolCallParser llama(v1::LLAMA3_JSON);
  EXPECT_EQ(llama.Feed("Hello").content, "Hello");
  EXPECT_EQ(llama.Feed("{").content, "{");
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
  const AnswerHead head = {.endpoint = kCompletions, .id = "c", .model = "m", .created = 5};
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
  const AnswerHead head = {.endpoint = kChat, .id = "c", .model = "m", .created = 5};
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
    const AnswerHead head = {.endpoint = kCompletions, .id = "c", .model = "m", .created = 5};
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
  const AnswerHead head = {.endpoint = kChat, .id = "c", .model = "m", .created = 5};
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
