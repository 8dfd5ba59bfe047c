// Converts bodies of OpenAI's API to requests. There are tables of bodies that are accepted and of
// bodies that are refused.
#include "service/http/openai_request.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "kernels/base/retry_after.h"
#include "service/http/http_error.h"
#include "service/store/store_errors.h"

namespace tidepool::service {
namespace {

absl::StatusOr<OpenAiRequest> Completion(const std::string& text) {
  const absl::StatusOr<Json> body = ParseJsonBody(text);
  if (!body.ok()) return body.status();
  return ParseCompletionRequest(*body);
}

absl::StatusOr<OpenAiRequest> Chat(const std::string& text) {
  const absl::StatusOr<Json> body = ParseJsonBody(text);
  if (!body.ok()) return body.status();
  return ParseChatRequest(*body);
}

// Parses a chat that has one message and these fields.
absl::StatusOr<OpenAiRequest> ChatWith(const std::string& fields) {
  return Chat(R"({"messages":[{"role":"user","content":"hi"}],)" + fields + "}");
}

v1::GenerateRequest Only(const absl::StatusOr<OpenAiRequest>& request) {
  EXPECT_TRUE(request.ok()) << request.status();
  if (!request.ok()) return {};
  EXPECT_EQ(request->choices.size(), 1);
  return request->choices[0];
}

TEST(CompletionRequestTest, EveryFieldArrives) {
  const auto request = Completion(R"({"model":"m","prompt":"Once","max_tokens":7,"temperature":0.5,
      "top_p":0.25,"top_k":40,"min_p":0.125,"repetition_penalty":1.5,"frequency_penalty":-1,
      "presence_penalty":2,"seed":-1,"logit_bias":{"5":-100,"7":1.5},"stop":["a","b"],
      "stop_token_ids":[3],"ignore_eos":true,"include_stop_str_in_output":true,"logprobs":3,
      "priority":-5,"user":"u","stream":true,"stream_options":{"include_usage":true},
      "suffix":null,"best_of":1,"echo":false,"n":1,"use_beam_search":false,"min_tokens":0})");
  const v1::GenerateRequest one = Only(request);
  EXPECT_EQ(one.model(), "m");
  EXPECT_EQ(one.text(), "Once");
  EXPECT_EQ(one.stopping().max_tokens(), 7);
  EXPECT_EQ(one.sampling().temperature(), 0.5f);
  EXPECT_EQ(one.sampling().top_p(), 0.25f);
  EXPECT_EQ(one.sampling().top_k(), 40);
  EXPECT_EQ(one.sampling().min_p(), 0.125f);
  EXPECT_EQ(one.sampling().repetition_penalty(), 1.5f);
  EXPECT_EQ(one.sampling().frequency_penalty(), -1.0f);
  EXPECT_EQ(one.sampling().presence_penalty(), 2.0f);
  EXPECT_EQ(one.sampling().seed(), ~uint64_t{0});
  EXPECT_EQ(one.sampling().logit_bias().at(5), -100.0f);
  EXPECT_EQ(one.sampling().logit_bias().at(7), 1.5f);
  EXPECT_EQ(one.stopping().stop_size(), 2);
  EXPECT_EQ(one.stopping().stop_token_ids(0), 3);
  EXPECT_TRUE(one.stopping().ignore_eos());
  EXPECT_TRUE(one.stopping().include_stop());
  EXPECT_TRUE(one.logprobs());
  EXPECT_EQ(one.top_logprobs(), 3);
  EXPECT_EQ(one.priority(), 5);
  EXPECT_TRUE(request->stream);
  EXPECT_TRUE(request->include_usage);
}

TEST(CompletionRequestTest, UnsetFieldsStayUnset) {
  const v1::GenerateRequest one = Only(Completion(R"({"prompt":"x"})"));
  EXPECT_FALSE(one.has_model());
  EXPECT_FALSE(one.sampling().has_temperature());
  EXPECT_FALSE(one.sampling().has_seed());
  EXPECT_EQ(one.stopping().max_tokens(), 16);  // the default of OpenAI's API
  const v1::GenerateRequest nulls =
      Only(Completion(R"({"prompt":"x","temperature":null,"seed":null,"stop":null,"n":null})"));
  EXPECT_FALSE(nulls.sampling().has_temperature());
  EXPECT_FALSE(nulls.sampling().has_seed());
}

TEST(CompletionRequestTest, PromptsTimesN) {
  const auto request = Completion(R"({"prompt":["a","b"],"n":2,"seed":10,"echo":true})");
  ASSERT_TRUE(request.ok()) << request.status();
  ASSERT_EQ(request->choices.size(), 4);
  const std::vector<std::pair<std::string, uint64_t>> expected = {
      {"a", 10}, {"a", 11}, {"b", 10}, {"b", 11}};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(request->choices[i].text(), expected[i].first);
    EXPECT_EQ(request->choices[i].sampling().seed(), expected[i].second);
    EXPECT_TRUE(request->choices[i].echo());
  }
  const auto ids = Completion(R"({"prompt":[[1,2],[3]]})");
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(ids->choices[0].token_ids().ids_size(), 2);
  EXPECT_EQ(ids->choices[1].token_ids().ids(0), 3);
  EXPECT_EQ(Only(Completion(R"({"prompt":[4,5,6]})")).token_ids().ids_size(), 3);
}

TEST(CompletionRequestTest, OnlyTheFirstChoiceRequestsReportsOnThePrompt) {
  const auto request = Completion(
      R"({"prompt":["a","b"],"n":2,"echo":true,"logprobs":1,"prompt_logprobs":3,"max_tokens":0,
          "return_token_ids":true,"logit_bias":{" the":-1,"7":2}})");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->prompt.echo_logprobs, 1);
  EXPECT_EQ(request->prompt.prompt_logprobs, 3);
  EXPECT_TRUE(request->prompt.token_ids);
  for (size_t i = 0; i < 4; ++i) {
    const v1::GenerateRequest& choice = request->choices[i];
    EXPECT_EQ(choice.has_prompt_logprobs(), i % 2 == 0);
    EXPECT_EQ(choice.prompt_logprobs(), i % 2 == 0 ? 3 : 0);
    EXPECT_TRUE(choice.echo());
    EXPECT_EQ(choice.sampling().logit_bias().at(7), 2.0f);
    EXPECT_EQ(choice.sampling().logit_bias_text().at(" the"), -1.0f);
  }
  const auto stream = Completion(R"({"prompt":"a","stream":true,"return_progress":true,
      "stream_options":{"continuous_usage_stats":true},"min_tokens":4})");
  EXPECT_TRUE(Only(stream).return_progress());
  EXPECT_EQ(Only(stream).stopping().min_tokens(), 4);
  EXPECT_TRUE(stream->include_usage && stream->continuous_usage);
}

TEST(CompletionRequestTest, ReadsEveryFormOfConstraint) {
  const auto with = [](absl::string_view fields) {
    return Only(Completion(absl::StrCat(R"({"prompt":"x",)", fields, "}")));
  };
  const std::string schema = R"({"type":"integer","minimum":1})";
  for (
      const absl::string_view form :
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":$})",
       R"("response_format":{"type":"json_object","schema":$)", R"("structured_outputs":{"json":$)",
       R"("metadata":{},"json_schema":$)"}) {
    const bool closes = !absl::StrContains(form, "metadata");
    const std::string fields = absl::StrReplaceAll(form, {{"$", schema}});
    EXPECT_EQ(with(closes ? fields + "}" : fields).json_schema(), schema) << form;
  }
  EXPECT_EQ(with(R"("response_format":{"type":"json_object"})").json_schema(),
            R"({"type":"object"})");
  EXPECT_EQ(with(R"("response_format":{"type":"text"})").constraint_case(),
            v1::GenerateRequest::CONSTRAINT_NOT_SET);
  EXPECT_EQ(with(R"("structured_outputs":{"regex":"a+"})").regex(), "a+");
  EXPECT_EQ(with(R"("structured_outputs":{"grammar":"root ::= \"a\""})").grammar(),
            "root ::= \"a\"");
  EXPECT_EQ(with(R"("grammar":"root ::= \"a\"")").grammar(), "root ::= \"a\"");
  EXPECT_EQ(with(R"("structured_outputs":{"choice":["a","b"]})").choice().texts(1), "b");
  EXPECT_EQ(
      with(R"("structured_outputs":{"json":"{}","whitespace_pattern":" ?"})").whitespace_pattern(),
      " ?");
}

TEST(ChatRequestTest, HowThePromptEnds) {
  const v1::GenerateRequest one =
      Only(ChatWith(R"("continue_final_message":true,"add_generation_prompt":false)"));
  EXPECT_TRUE(one.chat().continue_final_message());
  EXPECT_FALSE(one.chat().add_generation_prompt());
  const auto both = ChatWith(R"("continue_final_message":true,"add_generation_prompt":true)");
  EXPECT_TRUE(absl::StrContains(both.status().message(), "set one of them")) << both.status();
}

TEST(ChatRequestTest, MessagesArrive) {
  const v1::GenerateRequest one = Only(Chat(R"({"messages":[
      {"role":"developer","content":"be brief"},
      {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"n"},
      {"role":"assistant","content":null,"refusal":null,"annotations":[],"tool_calls":[
        {"id":"c1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},
      {"role":"tool","content":"2","tool_call_id":"c1"}],
      "max_completion_tokens":9,"chat_template_kwargs":{"enable_thinking":false}})"));
  ASSERT_EQ(one.chat().messages_size(), 4);
  EXPECT_EQ(one.chat().messages(0).role(), "system");
  EXPECT_EQ(one.chat().messages(1).content(), "ab");
  EXPECT_EQ(one.chat().messages(1).name(), "n");
  EXPECT_EQ(one.chat().messages(2).tool_calls_json(),
            R"([{"type":"function","function":{"name":"f","arguments":{"x":1}},"id":"c1"}])");
  EXPECT_EQ(one.chat().messages(3).tool_call_id(), "c1");
  EXPECT_EQ(one.chat().template_kwargs_json(), R"({"enable_thinking":false})");
  EXPECT_EQ(one.stopping().max_tokens(), 9);
  EXPECT_FALSE(Only(ChatWith(R"("n":1)")).stopping().has_max_tokens());
}

// max_tokens cut the first response, and the model wrote wrong JSON in the second one.
TEST(ChatRequestTest, ArgumentsOfEarlierCallsMayBeAnyText) {
  const v1::GenerateRequest one = Only(Chat(R"({"messages":[
      {"role":"user","content":"a"},
      {"role":"assistant","tool_calls":[
        {"function":{"name":"f","arguments":"{\"city\": \"Col"}},
        {"function":{"name":"f","arguments":"{city: 1}"}},
        {"function":{"name":"f","arguments":""}}]}]})"));
  EXPECT_EQ(one.chat().messages(1).tool_calls_json(),
            R"([{"type":"function","function":{"name":"f","arguments":"{\"city\": \"Col"}},)"
            R"({"type":"function","function":{"name":"f","arguments":"{city: 1}"}},)"
            R"({"type":"function","function":{"name":"f","arguments":{}}}])");
}

TEST(ChatRequestTest, ToolsAndLogprobs) {
  const std::string tools =
      R"("tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{}}}])";
  const auto with = ChatWith(tools + R"(,"tool_choice":"auto")");
  EXPECT_TRUE(absl::StrContains(Only(with).chat().tools_json(), R"("name":"f")"));
  EXPECT_TRUE(with->tools);
  const auto without = ChatWith(tools + R"(,"tool_choice":"none")");
  EXPECT_FALSE(Only(without).chat().has_tools_json());
  EXPECT_FALSE(without->tools);
  const v1::GenerateRequest logprobs = Only(ChatWith(R"("logprobs":true,"top_logprobs":5)"));
  EXPECT_TRUE(logprobs.logprobs());
  EXPECT_EQ(logprobs.top_logprobs(), 5);
  EXPECT_FALSE(logprobs.processed_logprobs());
  const std::string mode = R"("logprobs":true,"logprobs_mode":)";
  EXPECT_TRUE(Only(ChatWith(mode + R"("processed_logprobs")")).processed_logprobs());
  EXPECT_FALSE(Only(ChatWith(mode + R"("raw_logprobs")")).processed_logprobs());
}

TEST(ChatRequestTest, FieldsThatCannotChangeTheOutputAreAccepted) {
  const std::string plain = Only(ChatWith(R"("n":1)")).SerializeAsString();
  for (const char* field :
       {R"("metadata":{"job":"7"})", R"("user":"u")", R"("store":false)",
        R"("prompt_cache_key":"k")", R"("prompt_cache_retention":"24h")",
        R"("safety_identifier":"s")", R"("service_tier":"flex")", R"("parallel_tool_calls":false)",
        R"("parallel_tool_calls":true,"tools":[])"}) {
    EXPECT_EQ(Only(ChatWith(field)).SerializeAsString(), plain) << field;
  }
  const std::string question = R"({"role":"user","content":"a"})";
  const std::string earlier = R"({"role":"assistant","content":"b")";
  const auto with = [&](const std::string& more) {
    return Only(Chat(absl::StrCat(R"({"messages":[)", question, ",", earlier, more, "},", question,
                                  "]}")))
        .SerializeAsString();
  };
  EXPECT_EQ(with(R"(,"refusal":"no","annotations":[{"type":"url_citation"}],
                    "audio":null,"function_call":null,"tool_calls":null,
                    "provider_specific_fields":{"refusal":null})"),
            with(""));
  // Messages of the OpenAI client's parse() have more fields.
  EXPECT_EQ(with(R"(,"parsed":null,"thinking_blocks":null)"), with(""));
  EXPECT_EQ(with(R"(,"parsed":{"city":"Rome","days":[1]})"), with(""));
  const std::string call = R"(,"tool_calls":[{"id":"c","type":"function","function":{"name":"f")";
  EXPECT_EQ(with(call + R"(,"parsed_arguments":null,"provider_specific_fields":{}},
                             "index":0,"provider_specific_fields":{"signature":"s"}}])"),
            with(call + "}}]"));
  EXPECT_EQ(with(call + R"(,"parsed_arguments":{"city":"Rome"}}}])"), with(call + "}}]"));
}

TEST(ChatRequestTest, TheReasoningAndRefusalOfAnAssistantAreKept) {
  const auto said = [](const std::string& message) {
    return Only(Chat(absl::StrCat(R"({"messages":[{"role":"assistant",)", message, "}]}")))
        .chat()
        .messages(0);
  };
  EXPECT_EQ(said(R"("content":"b","reasoning_content":"hm")").reasoning_content(), "hm");
  EXPECT_FALSE(said(R"("content":"b","reasoning_content":null)").has_reasoning_content());
  EXPECT_EQ(said(R"("content":"b","reasoning":"hm")").reasoning_content(), "hm");
  EXPECT_EQ(said(R"("content":null,"refusal":"no")").content(), "no");
  EXPECT_EQ(said(R"("refusal":"no")").content(), "no");
  EXPECT_EQ(said(R"("content":[{"type":"text","text":"I "},{"type":"refusal","refusal":"won't"}])")
                .content(),
            "I won't");
}

TEST(ChatRequestTest, EchoBeginsWithTheLastMessageOfTheAssistant) {
  const auto echo = [](const char* role, const char* field) {
    return Chat(absl::StrCat(R"({"messages":[{"role":")", role, R"(","content":"Once"}],)", field,
                             "}"))
        ->prompt.echo_text;
  };
  EXPECT_EQ(echo("assistant", R"("echo":true,"continue_final_message":true)"), "Once");
  EXPECT_EQ(echo("assistant", R"("echo":false)"), "");
  EXPECT_EQ(echo("user", R"("echo":true)"), "");
}

TEST(CompletionRequestTest, FieldsThatCannotChangeTheOutputAreAccepted) {
  EXPECT_EQ(Only(Completion(R"({"prompt":"x","metadata":{},"user":"u","store":false,
                                "prompt_cache_key":"k","service_tier":"default",
                                "prompt_embeds":null})"))
                .SerializeAsString(),
            Only(Completion(R"({"prompt":"x"})")).SerializeAsString());
}

TEST(CompletionRequestTest, NumbersWithoutAFractionAreIntegers) {
  const v1::GenerateRequest one = Only(Completion(
      R"({"prompt":"x","max_tokens":5.0,"top_k":40.0,"seed":7.0,"n":1.0,"logprobs":2.0,
          "stop_token_ids":[3.0]})"));
  EXPECT_EQ(one.stopping().stop_token_ids(0), 3);
  EXPECT_EQ(one.stopping().max_tokens(), 5);
  EXPECT_EQ(one.sampling().top_k(), 40);
  EXPECT_EQ(one.sampling().seed(), 7);
  EXPECT_EQ(one.top_logprobs(), 2);
}

struct Refused {
  const char* fields;
  const char* param;
  const char* message;  // part of the error message
};

void ExpectRefused(const absl::StatusOr<OpenAiRequest>& request, const Refused& expected) {
  ASSERT_FALSE(request.ok()) << expected.fields;
  const HttpError error = ToHttpError(request.status());
  EXPECT_EQ(error.status, 400) << expected.fields;
  EXPECT_EQ(error.type, "invalid_request_error");
  EXPECT_EQ(error.param, expected.param) << error.message;
  EXPECT_TRUE(absl::StrContains(error.message, expected.message)) << error.message;
}

// Long because it is a table of cases.
TEST(CompletionRequestTest, FaultsAreNamed) {
  const Refused table[] = {
      {R"("temperature":"hot")", "temperature", "must be a number"},
      {R"("temperature":200)", "temperature", "from 0 to 100"},
      {R"("temperature":1e300)", "temperature", "float32"},
      {R"("top_p":0)", "top_p", "above 0"},
      {R"("top_k":1.5)", "top_k", "integer"},
      {R"("max_tokens":5.5)", "max_tokens", "integer"},
      {R"("max_tokens":1e300)", "max_tokens", "integer"},
      {R"("max_tokens":0)", "max_tokens", "0 only with echo"},
      {R"("max_tokens":18446744073709551615)", "max_tokens", "from 0"},
      {R"("min_tokens":20)", "min_tokens", "0 to max_tokens, 16"},
      {R"("prompt_logprobs":21)", "prompt_logprobs", "0 to 20"},
      {R"("prompt_logprobs":1,"stream":true)", "prompt_logprobs", "stream to false"},
      {R"("return_progress":true)", "return_progress", "stream to true"},
      {R"("n":129)", "n", "1 to 128"},
      {R"("n":0)", "n", "1 to 128"},
      {R"("n":2,"best_of":3)", "best_of", "not supported"},
      {R"("suffix":"end")", "suffix", "not supported"},
      {R"("logprobs":21)", "logprobs", "0 to 20"},
      {R"("logprobs":true)", "logprobs", "integer"},
      {R"("stop":[1])", "stop", "strings"},
      {R"("stop":"")", "stop[0]", "1 to 1024"},
      {R"("stop_token_ids":[-1])", "stop_token_ids[0]", "token id"},
      {R"("logit_bias":{"x":false})", "logit_bias", "token ids or texts"},
      {R"("logit_bias":{"x":101})", "logit_bias", "101 for 'x'; accepted: -100 to 100"},
      {R"("logit_bias":{"1":101})", "logit_bias", "-100 to 100"},
      {R"("logit_bias":{"99999999999":1})", "logit_bias", "largest token id is 2147483647"},
      {R"("seed":1.5)", "seed", "integer"},
      {R"("top_K":5)", "top_K", "did you mean top_k?"},
      {R"("bestof":1)", "bestof", "not a known"},
      {R"("stream":1)", "stream", "true or false"},
      {R"("stream_options":{})", "stream_options", "stream to true"},
      {R"("stream":true,"stream_options":{"usage":true})", "stream_options.usage", "not a known"},
      {R"("guided_json":{})", "guided_json", "not supported"},
      {R"("max_token":3)", "max_token", "did you mean max_tokens?"},
      {R"("messages":[])", "messages", "not a known field"},
      {R"("response_format":{"type":"xml"})", "response_format.type", "json_schema"},
      {R"("response_format":{"type":"json_schema"})", "response_format.json_schema", "no schema"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n"}})",
       "response_format.json_schema", "no schema"},
      {R"("grammar":"root ::= \"a\"","json_schema":{})", "json_schema", "second constraint"},
      {R"("structured_outputs":{"regex":"a","choice":["b"]})", "structured_outputs.choice",
       "second constraint"},
      {R"("structured_outputs":{"choice":[1]})", "structured_outputs.choice", "strings"},
      {R"("structured_outputs":{"structural_tag":{}})", "structured_outputs.structural_tag",
       "not supported"},
      {R"("structured_outputs":{"regex":"a","whitespace_pattern":" "})",
       "structured_outputs.whitespace_pattern", "needs json"},
      {R"("json_schema":"{")", "json_schema", "not JSON"},
  };
  for (const Refused& row : table) {
    ExpectRefused(Completion(absl::StrCat(R"({"prompt":"x",)", row.fields, "}")), row);
  }
  ExpectRefused(Completion("{}"), {"{}", "prompt", "missing"});
  ExpectRefused(Completion(R"({"prompt":[]})"), {"[]", "prompt", "empty"});
  ExpectRefused(Completion(R"({"prompt":""})"), {"", "prompt", "empty"});
  ExpectRefused(Completion(R"({"promt":"x"})"), {"promt", "promt", "prompt"});
  ExpectRefused(Completion(R"({"prompt":[[1],"a",{}]})"), {"{}", "prompt[2]", "string"});
  ExpectRefused(Completion(R"({"prompt":[1,-2]})"), {"-2", "prompt", "token ids"});
  ExpectRefused(Completion(R"({"prompt":["a","b"],"n":65})"), {"n", "n", "130 responses"});
}

TEST(ChatRequestTest, FaultsAreNamed) {
  const Refused table[] = {
      {R"("top_logprobs":2)", "top_logprobs", "needs logprobs"},
      {R"("logprobs_mode":"processed_logprobs")", "logprobs_mode", "needs logprobs"},
      {R"("logprobs":true,"logprobs_mode":"raw")", "logprobs_mode", "processed_logprobs"},
      {R"("max_tokens":2,"max_completion_tokens":3)", "max_completion_tokens", "one of them"},
      {R"("audio":{})", "audio", "not supported"},
      {R"("modalities":["text","audio"])", "modalities", "not supported"},
      {R"("functions":[])", "functions", "use tools"},
      {R"("tools":[{"type":"function"}])", "tools[0].function", "missing"},
      {R"("tools":[{"type":"custom","function":{"name":"f"}}])", "tools[0].type", "function"},
      {R"("tools":[{"type":"function","function":{"nam":"f"}}])", "tools[0].function.nam",
       "did you mean tools[0].function.name?"},
      {R"("parallel_tool_calls":1)", "parallel_tool_calls", "true or false"},
      {R"("store":true)", "store", "not supported"},
      {R"("metadata":"m")", "metadata", "object"},
      {R"("meta_data":{})", "meta_data", "did you mean metadata?"},
      {R"("verbosity":"low")", "verbosity", "not supported"},
      {R"("prediction":{})", "prediction", "not supported"},
      {R"("chat_template_kwargs":[])", "chat_template_kwargs", "object"},
      {R"("prompt":"x")", "prompt", "not a known field"},
      {R"("reasoning_effort":"much")", "reasoning_effort", "medium"},
      {R"("reasoning_effort":"low","chat_template_kwargs":{"reasoning_effort":"high"})",
       "reasoning_effort", "differ"},
  };
  for (const Refused& row : table) ExpectRefused(ChatWith(row.fields), row);
  const Refused messages[] = {
      {R"([])", "messages", "empty"},
      {R"(["hi"])", "messages[0]", "object"},
      {R"([{"content":"x"}])", "messages[0].role", "missing"},
      {R"([{"role":"usr","content":"x"}])", "messages[0].role", "assistant"},
      {R"([{"role":"user"}])", "messages[0].content", "missing"},
      {R"([{"role":"user","content":3}])", "messages[0].content", "string"},
      {R"([{"role":"user","content":[{"type":"image_url","image_url":{}}]}])",
       "messages[0].content[0].type", "image_url"},
      {R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text",
       "missing"},
      {R"([{"role":"user","content":"x","colour":1}])", "messages[0].colour", "not a known"},
      {R"([{"role":"assistant","content":"x","reasoning_contents":""}])",
       "messages[0].reasoning_contents", "did you mean messages[0].reasoning_content?"},
      {R"([{"role":"assistant","content":"x","audio":{"id":"a"}}])", "messages[0].audio",
       "not supported"},
      {R"([{"role":"assistant","content":"x","function_call":{"name":"f"}}])",
       "messages[0].function_call", "use tool_calls"},
  };
  for (const Refused& row : messages) {
    ExpectRefused(Chat(absl::StrCat(R"({"messages":)", row.fields, "}")), row);
  }
}

TEST(JsonBodyTest, FaultsAreNamed) {
  const std::pair<std::string, const char*> table[] = {
      {"", "empty"},
      {"{", "not JSON: parse error at line 1"},
      {"[]", "is a JSON array"},
      {"{\"a\":\"\xff\"}", "not JSON"},
      {R"({"a":1,"a":2})", "'a' twice"},
      {R"({"x":{"b":1,"c":{"b":2},"b":3}})", "'b' twice"},
      {std::string(100, '[') + std::string(100, ']'), "deeper than 64"},
      {R"({"a":1} trailing)", "not JSON"},
  };
  for (const auto& [body, message] : table) {
    const absl::StatusOr<Json> json = ParseJsonBody(body);
    ASSERT_FALSE(json.ok()) << body;
    EXPECT_TRUE(absl::StrContains(json.status().message(), message)) << json.status();
    EXPECT_FALSE(absl::StrContains(json.status().message(), "\n"));
  }
  std::string many = "{\"a\":[0";
  for (int i = 0; i < (4 << 20); ++i) many += ",0";
  EXPECT_TRUE(absl::StrContains(ParseJsonBody(many + "]}").status().message(), "more than"));
}

TEST(HttpErrorTest, CodesBecomeStatuses) {
  const std::tuple<absl::Status, int, const char*, bool> table[] = {
      {absl::InvalidArgumentError("x"), 400, "", false},
      {absl::UnimplementedError("n above 1 is not served yet"), 400, "unsupported_parameter",
       false},
      {absl::FailedPreconditionError("the model file has no chat template"), 400, "", false},
      {absl::InvalidArgumentError("the prompt is 9 tokens; the context of 8 must hold it"), 400,
       "context_length_exceeded", false},
      {absl::InvalidArgumentError(
           "the prompt has 9 tokens; this model's maximum context length is 8 tokens, for the"),
       400, "context_length_exceeded", false},
      {absl::NotFoundError("model 'x' is not served; served: y"), 404, "model_not_found", false},
      {absl::AlreadyExistsError("x"), 409, "", false},
      {absl::ResourceExhaustedError("the queue is full"), 429, "rate_limit_exceeded", true},
      {absl::UnavailableError("x"), 503, "unavailable", true},
      {absl::DeadlineExceededError("x"), 504, "deadline_exceeded", false},
      {absl::InternalError("x"), 500, "internal_error", false},
  };
  for (const auto& [status, http, code, retry] : table) {
    const HttpError error = ToHttpError(status);
    EXPECT_EQ(error.status, http) << status;
    EXPECT_EQ(error.code, code) << status;
    EXPECT_EQ(error.retry_after_s.has_value(), retry) << status;
  }
  const absl::Status hinted =
      base::WithRetryAfter(absl::ResourceExhaustedError("full"), absl::Milliseconds(2050));
  EXPECT_EQ(ToHttpError(hinted).retry_after_s, 3);
  const HttpError busy = ToHttpError(SessionBusy("s", "r"));
  EXPECT_EQ(busy.status, 409);
  EXPECT_EQ(busy.retry_after_s, 1);
  EXPECT_EQ(DumpJson(ErrorJson(ToHttpError(absl::InvalidArgumentError("top_p is 3; it must be")))),
            R"({"error":{"message":"top_p is 3; it must be","type":"invalid_request_error",)"
            R"("param":"top_p","code":null}})");
}

TEST(HttpErrorTest, FieldsOfGrpcHaveTheirNamesOfHttp) {
  const std::pair<const char*, const char*> table[] = {
      {"chat.tools_json is not an array", "tools is not an array"},
      {"chat.add_generation_prompt and chat.continue_final_message are both set; set one of them",
       "add_generation_prompt and continue_final_message are both set; set one of them"},
      {"fish and chat are both here", "fish and chat are both here"},
  };
  for (const auto& [message, shown] : table) {
    EXPECT_EQ(ToHttpError(absl::InvalidArgumentError(message)).message, shown);
  }
  EXPECT_EQ(ToHttpError(absl::InvalidArgumentError(table[1].first)).param, "add_generation_prompt");
  EXPECT_EQ(ToHttpError(absl::InvalidArgumentError(table[2].first)).param, "");
  EXPECT_EQ(ToHttpError(WithParam(absl::InvalidArgumentError("bad"), "tokens")).param, "tokens");
  EXPECT_EQ(ToHttpError(WithParam(absl::NotFoundError("bad"), "tokens")).param, "");
  EXPECT_EQ(ToHttpError(WithParam(absl::InvalidArgumentError("model is unset"), "tokens")).param,
            "model");
}

}  // namespace
}  // namespace tidepool::service
