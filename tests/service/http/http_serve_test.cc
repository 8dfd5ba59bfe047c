// The OpenAI-compatible API over real sockets. The front and a worker with the scripted model run
// in one process.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "service/http/json.h"
#include "tests/service/http/http_fixture.h"

namespace tidepool::service {
namespace {

class HttpServeTest : public HttpFixture {};

TEST_F(HttpServeTest, ACompletion) {
  Start();
  engine_->model.SetScript(fakes::Replies(5, WithEnd("hello w\xC3\xB6rld"), 'x'));
  const RawResponse response =
      Post("/v1/completions", R"({"model":"scripted","prompt":"Hello","max_tokens":100})");
  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_TRUE(absl::StrContains(response.head, "x-request-id: cmpl-")) << response.head;
  const Json json = Parsed(response);
  EXPECT_EQ(json["choices"][0]["text"], "hello w\xC3\xB6rld");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(json["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(json["usage"]["completion_tokens"], 13);
  EXPECT_EQ(json["model"], "scripted");
}

TEST_F(HttpServeTest, PagesOfOtherHostsAreRefused) {
  Start();
  const auto status_from = [&](const std::string& origin) {
    const std::string body = R"({"prompt":"Hello","max_tokens":2})";
    const auto client = Connect();
    client->Send(absl::StrCat(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: ", origin,
        "\r\nContent-Type: application/json\r\nContent-Length: ", body.size(), "\r\n\r\n", body));
    return client->ReadResponse().status;
  };
  EXPECT_EQ(status_from("http://evil.example:8080"), 403);
  EXPECT_EQ(status_from("http://localhost:3000"), 200);
}

TEST_F(HttpServeTest, StreamsEqualWholeResponses) {
  Start();
  const std::string body =
      R"({"prompt":["Hello","Hi"],"n":2,"seed":3,"temperature":1,"max_tokens":60,"ignore_eos":true,"logprobs":2)";
  const Json whole = Parsed(Post("/v1/completions", body + "}"));
  ASSERT_EQ(whole["choices"].size(), 4) << whole;
  EXPECT_EQ(whole["usage"]["prompt_tokens"], 7);
  EXPECT_EQ(whole["usage"]["completion_tokens"], 240);
  EXPECT_NE(whole["choices"][0]["text"], whole["choices"][1]["text"]);
  const std::vector<Json> events = Events(
      Post("/v1/completions", body + R"(,"stream":true,"stream_options":{"include_usage":true}})"));
  std::vector<std::string> texts(4), finishes(4);
  std::vector<Json> tokens(4, Json::array());
  for (const Json& event : events) {
    for (const Json& choice : event["choices"]) {
      const size_t index = choice["index"];
      texts[index] += choice["text"].get<std::string>();
      if (!choice["finish_reason"].is_null()) finishes[index] = choice["finish_reason"];
      for (const Json& token : choice["logprobs"]["tokens"]) tokens[index].push_back(token);
    }
  }
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(texts[i], whole["choices"][i]["text"]);
    EXPECT_EQ(finishes[i], "length");
    EXPECT_EQ(tokens[i], whole["choices"][i]["logprobs"]["tokens"]);
  }
  EXPECT_EQ(events.front()["usage"], Json());
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], 240);
  EXPECT_TRUE(events.back()["choices"].empty());
}

TEST_F(HttpServeTest, EchoWithLogprobsIsSharedByChoices) {
  Start();
  const std::string body = R"({"prompt":["Hello there","Hi"],"n":2,"seed":3,"temperature":1,
      "max_tokens":6,"ignore_eos":true,"logprobs":1,"echo":true)";
  const Json whole = Parsed(Post("/v1/completions", body + "}"));
  ASSERT_EQ(whole["choices"].size(), 4) << whole;
  EXPECT_EQ(whole["usage"]["prompt_tokens"], 13);
  EXPECT_EQ(whole["usage"]["completion_tokens"], 24);
  for (size_t i = 0; i < 4; ++i) {
    const Json& logprobs = whole["choices"][i]["logprobs"];
    const size_t prompt = i < 2 ? 11 : 2;
    EXPECT_TRUE(absl::StartsWith(whole["choices"][i]["text"].get<std::string>(),
                                 i < 2 ? "Hello there" : "Hi"));
    ASSERT_EQ(logprobs["tokens"].size(), prompt + 6) << logprobs;
    EXPECT_EQ(logprobs["token_logprobs"][0], Json());
    EXPECT_EQ(logprobs["top_logprobs"][0], Json());
    EXPECT_LT(logprobs["token_logprobs"][1].get<double>(), 0);
    EXPECT_EQ(logprobs["text_offset"][prompt], prompt);
  }
  EXPECT_EQ(whole["choices"][0]["logprobs"]["token_logprobs"][5],
            whole["choices"][1]["logprobs"]["token_logprobs"][5]);
  EXPECT_NE(whole["choices"][0]["text"], whole["choices"][1]["text"]);
  // A stream contains the same, in order.
  std::vector<Json> tokens(4, Json::array());
  std::vector<std::string> texts(4);
  for (const Json& event : Events(Post("/v1/completions", body + R"(,"stream":true})"))) {
    for (const Json& choice : event["choices"]) {
      texts[choice["index"]] += choice["text"].get<std::string>();
      const Json& logprobs = choice["logprobs"];
      if (logprobs.is_null()) continue;
      for (const Json& token : logprobs["tokens"]) tokens[choice["index"]].push_back(token);
    }
  }
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(tokens[i], whole["choices"][i]["logprobs"]["tokens"]) << i;
    EXPECT_EQ(texts[i], whole["choices"][i]["text"]);
  }
}

TEST_F(HttpServeTest, APromptAloneIsScored) {
  Start();
  const Json json = Parsed(Post("/v1/completions", R"({"prompt":[72,105],"max_tokens":0,"echo":true,
      "logprobs":0,"prompt_logprobs":2,"return_token_ids":true})"));
  const Json& choice = json["choices"][0];
  EXPECT_EQ(choice["text"], "Hi") << json;
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["logprobs"]["tokens"], Json::parse(R"(["H","i"])"));
  EXPECT_EQ(choice["prompt_token_ids"], Json::parse("[72,105]"));
  EXPECT_EQ(choice["token_ids"], Json::array());
  ASSERT_EQ(choice["prompt_logprobs"].size(), 2);
  EXPECT_GE(choice["prompt_logprobs"][1]["105"]["rank"].get<int>(), 1);
  EXPECT_EQ(json["usage"]["completion_tokens"], 0);
  EXPECT_EQ(json["timings"]["predicted_n"], 0);
}

TEST_F(HttpServeTest, AStreamReportsItsPromptAndItsUsage) {
  Start();
  const std::vector<Json> events = Events(Post("/v1/chat/completions", R"({"messages":[
      {"role":"user","content":"Hello"}],"max_tokens":3,"ignore_eos":true,"stream":true,
      "return_progress":true,"return_token_ids":true,
      "stream_options":{"continuous_usage_stats":true}})"));
  int64_t processed = 0, ids = 0, made = 0, timings = 0;
  for (const Json& event : events) {
    if (event.contains("prompt_progress")) {
      processed = event["prompt_progress"]["processed"];
      EXPECT_EQ(event["prompt_progress"]["total"], event["usage"]["prompt_tokens"]);
    }
    if (event.contains("prompt_token_ids")) ids += event["prompt_token_ids"].size();
    timings += event.contains("timings");
    EXPECT_TRUE(event["usage"].is_object()) << event;
    // The number of cached tokens is known only at the end. Earlier events must not report 0.
    EXPECT_EQ(event["usage"].contains("prompt_tokens_details"),
              event["choices"].empty() && made > 0)
        << event;
    for (const Json& choice : event["choices"]) {
      made += choice["token_ids"].size();
      EXPECT_EQ(event["usage"]["completion_tokens"], made);
    }
  }
  EXPECT_EQ(made, 3);
  EXPECT_GT(ids, 5);
  EXPECT_EQ(processed, ids);
  EXPECT_EQ(timings, 1);
}

TEST_F(HttpServeTest, CommentsComeWhileThePromptIsComputed) {
  http_comment_every_ = absl::Milliseconds(5);
  Start();
  engine_->model.Hold();
  const auto client = Connect();
  client->SendPost("/v1/completions",
                   R"({"prompt":"Hello","max_tokens":2,"ignore_eos":true,"stream":true})");
  const std::string head = client->ReadUntil(": the response is being computed\n\n");
  EXPECT_TRUE(absl::StrContains(head, "200 OK")) << head;
  client->ReadUntil(": the response is being computed\n\n");
  engine_->model.Release();
  const std::string rest = client->ReadUntil("data: [DONE]\n\n");
  EXPECT_TRUE(absl::StrContains(rest, "\"finish_reason\":\"length\"")) << rest;
}

TEST_F(HttpServeTest, TextsAreTokenisedAsVllmDoes) {
  Start();
  const Json tokens =
      Parsed(Post("/tokenize", R"({"prompt":"Hi<|start|>","return_token_strs":true})"));
  EXPECT_EQ(tokens, Json::parse(R"({"count":3,"max_model_len":2048,"tokens":[72,105,257],
      "token_strs":["H","i","<|start|>"]})"));
  EXPECT_EQ(Parsed(Post("/detokenize", R"({"tokens":[72,105,257]})")),
            Json::parse(R"({"prompt":"Hi<|start|>"})"));
  const std::string chat = R"({"messages":[{"role":"user","content":"Hi"}])";
  const std::string rendered = "<|start|>user\nHi<|end_of_text|><|start|>assistant\n";
  EXPECT_EQ(Parsed(Post("/apply-template", chat + "}"))["prompt"], rendered);
  EXPECT_EQ(Parsed(Post("/apply-template", chat + R"(,"add_generation_prompt":false})"))["prompt"],
            "<|start|>user\nHi<|end_of_text|>");
  EXPECT_EQ(Parsed(Post("/tokenize", chat + "}"))["count"], 20);
  EXPECT_EQ(Parsed(Connect()->Get("/tokenizer_info"))["eos_token"], "<|end_of_text|>");
  const std::pair<const char*, const char*> bad[] = {
      {R"({"prompt":"a","messages":[]})", "messages"},
      {R"({})", "prompt"},
      {R"({"promt":"a"})", "promt"}};
  for (const auto& [body, named] : bad) {
    const RawResponse response = Post("/tokenize", body);
    EXPECT_EQ(response.status, 400) << body;
    EXPECT_TRUE(absl::StrContains(response.body, named)) << response.body;
  }
  const RawResponse past = Post("/detokenize", R"({"tokens":[9999]})");
  EXPECT_EQ(past.status, 400);
  EXPECT_EQ(Parsed(past)["error"]["param"], "tokens") << past.body;
}

TEST_F(HttpServeTest, ToolsThatTheTemplateDoesNotKnowAreRefused) {
  Start();
  const RawResponse response =
      Post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}],)"
                                   R"("tools":[{"type":"function","function":{"name":"f"}}]})");
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(Parsed(response)["error"]["param"], "tools") << response.body;
}

TEST_F(HttpServeTest, ErrorsHaveTheirStatus) {
  Start({.context = 64});
  const std::tuple<const char*, const char*, int, const char*, const char*> table[] = {
      {"/v1/completions", R"({"model":"other","prompt":"x"})", 404, "model_not_found", "model"},
      {"/v1/completions", R"({"prompt":"x","top_p":7})", 400, "", "top_p"},
      {"/v1/completions", "{", 400, "", ""},
      {"/v1/completions", R"({"prompt":"x","logit_bias":{"70000":1}})", 400, "", "logit_bias"},
      {"/v1/chat/completions", R"({"messages":[]})", 400, "", "messages"},
      {"/v1/completions", R"({"prompt":["a",""]})", 400, "", "prompt"},
      {"/v1/completions", R"({"prompt":[[70000]]})", 400, "", "prompt"},
      {"/v1/completions", R"({"prompt":"x","logit_bias":{"":1}})", 400, "", "logit_bias"},
      {"/apply-template",
       R"({"messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"f"}}]})",
       400, "", "tools"},
      {"/v1/chat/completions",
       R"({"messages":[{"role":"user","content":"hi"}],"add_generation_prompt":true,"continue_final_message":true})",
       400, "", "add_generation_prompt"},
      {"/v1/nothing", "{}", 404, "not_found", ""},
  };
  for (const auto& [path, body, status, code, param] : table) {
    const RawResponse response = Post(path, body);
    EXPECT_EQ(response.status, status) << body << response.body;
    const Json error = Parsed(response)["error"];
    EXPECT_EQ(error["code"], *code == 0 ? Json() : Json(code)) << response.body;
    EXPECT_EQ(error["param"], *param == 0 ? Json() : Json(param)) << response.body;
  }
  for (const size_t bytes : {size_t{70}, size_t{100000}}) {
    const RawResponse response =
        Post("/v1/completions",
             absl::StrCat(R"({"stream":true,"prompt":")", std::string(bytes, 'x'), "\"}"));
    EXPECT_EQ(response.status, 400);
    EXPECT_EQ(Parsed(response)["error"]["code"], "context_length_exceeded") << response.body;
  }
}

TEST_F(HttpServeTest, ShortResponsesAndStreamsContinueIfLongOnesHaveNoRoom) {
  front_limits_.max_whole_bytes = 0;
  Start();
  // 2,000 tokens. Each has more than a hundred bytes of JSON.
  const std::string tokens = R"({"prompt":"Hello","ignore_eos":true,"max_tokens":2000)";
  const RawResponse refused = Post("/v1/completions", tokens + R"(,"logprobs":2})");
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_TRUE(absl::StrContains(refused.head, "Retry-After: ")) << refused.head;
  EXPECT_EQ(Parsed(refused)["error"]["code"], "rate_limit_exceeded");
  EXPECT_TRUE(absl::StrContains(refused.body, "use streaming")) << refused.body;
  EXPECT_EQ(Post("/v1/completions", tokens + "}").status, 200);
  EXPECT_FALSE(Events(Post("/v1/completions", tokens + R"(,"logprobs":2,"stream":true})")).empty());
}

TEST_F(HttpServeTest, AFullQueueIs429) {
  Start({.max_queued = 0});
  engine_->model.Hold();
  std::vector<std::unique_ptr<RawClient>> clients;
  int refused = 0;
  // These are more requests than may run at the same time, so some find no slot.
  for (int i = 0; i < 80; ++i) {
    clients.push_back(Connect());
    clients.back()->SendPost("/v1/completions", R"({"prompt":"x","max_tokens":1})");
  }
  while (Stats().front().requests_failed_total() == 0) std::this_thread::yield();
  engine_->model.Release();
  for (const auto& client : clients) {
    const RawResponse response = client->ReadResponse();
    if (response.status == 200) continue;
    EXPECT_EQ(response.status, 429) << response.body;
    EXPECT_TRUE(absl::StrContains(response.head, "Retry-After: ")) << response.head;
    ++refused;
  }
  EXPECT_GT(refused, 0);
}

TEST_F(HttpServeTest, AClientThatLeavesStopsTheWork) {
  Start();
  for (const char* stream : {"true", "false"}) {
    engine_->model.Hold();
    const auto client = Connect();
    client->SendPost("/v1/completions",
                     absl::StrCat(R"({"prompt":"Hello","max_tokens":2000,"ignore_eos":true,"n":2,)",
                                  "\"stream\":", stream, "}"));
    const auto sequences = [&] {
      const engine::EngineStats stats = engine_->engine->Stats();
      return stats.sequences_running + stats.sequences_waiting;
    };
    while (sequences() < 2) std::this_thread::yield();
    client->Close();
    while (Stats().front().streams_running() > 0) std::this_thread::yield();
    engine_->model.Release();
    WaitIdle();
  }
  const v1::GetStatsResponse stats = Stats();
  EXPECT_EQ(stats.workers(0).requests_cancelled_total(), 4);
  EXPECT_EQ(stats.workers(0).kv_blocks_free(), stats.workers(0).kv_blocks_total());
}

TEST_F(HttpServeTest, AFailureInAStreamIsAnEvent) {
  Start();
  engine_->model.Hold();
  const auto client = Connect();
  client->SendPost("/v1/completions",
                   R"({"prompt":"Hello","max_tokens":2000,"ignore_eos":true,"stream":true})");
  engine_->model.Allow(20);
  client->ReadUntil("\n\n");
  engine_->model.SetFailure(absl::InternalError("the disk is on fire"));
  engine_->model.Release();
  const std::string rest = client->ReadUntil("\r\n0\r\n\r\n");
  EXPECT_TRUE(absl::StrContains(rest, "data: {\"error\":{\"message\":")) << rest;
  EXPECT_FALSE(absl::StrContains(rest, "[DONE]")) << rest;
}

TEST_F(HttpServeTest, AReaderThatStopsHoldsOnlyItsOwnStreamBack) {
  Start();
  const auto slow = Connect();
  slow->SendPost("/v1/chat/completions",
                 R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":1900,)"
                 R"("ignore_eos":true,"stream":true,"logprobs":true,"top_logprobs":20})");
  // While this client does not read, another response arrives. Later, this response arrives
  // completely.
  const Json other = Parsed(Post("/v1/completions", R"({"prompt":"Hello","max_tokens":50})"));
  EXPECT_EQ(other["usage"]["completion_tokens"], 50);
  int64_t tokens = 0;
  for (const Json& event : Events(slow->ReadResponse())) {
    if (!event["choices"][0]["logprobs"].is_null()) {
      tokens += static_cast<int64_t>(event["choices"][0]["logprobs"]["content"].size());
    }
  }
  EXPECT_EQ(tokens, 1900);
}

TEST_F(HttpServeTest, ModelsAndHealth) {
  Start();
  const auto client = Connect();
  const Json models = Parsed(client->Get("/v1/models"));
  ASSERT_EQ(models["data"].size(), 1);
  EXPECT_EQ(models["data"][0]["id"], "scripted");
  EXPECT_EQ(models["data"][0]["max_model_len"], 2048);
  EXPECT_EQ(Parsed(client->Get("/v1/models/scripted"))["id"], "scripted");
  const RawResponse unknown = client->Get("/v1/models/none%2Fsuch");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_TRUE(absl::StrContains(unknown.body, "none/such")) << unknown.body;
  EXPECT_EQ(client->Get("/healthz").status, 200);
  EXPECT_EQ(client->Get("/readyz").status, 200);
}

TEST_F(HttpServeTest, Metrics) {
  Start();
  Post("/v1/completions", R"({"prompt":"Hello","max_tokens":30,"ignore_eos":true})");
  Generate(Text("Hello", 5));  // requests over gRPC are also counted
  const std::string page = Connect()->Get("/metrics").body;
  for (const char* line :
       {"tidepool:request_success_total{model_name=\"scripted\",finished_reason=\"length\"} 2\n",
        "tidepool:time_to_first_token_seconds_count{model_name=\"scripted\"} 2\n",
        "tidepool:inter_token_latency_seconds_count{model_name=\"scripted\"} 33\n",
        "tidepool:request_prompt_tokens_sum{model_name=\"scripted\"} 10\n",
        "tidepool:requests_total 2\n"}) {
    EXPECT_TRUE(absl::StrContains(page, line)) << line << page;
  }
  EXPECT_TRUE(absl::StrContains(page, "tidepool:kv_cache_usage_perc{model_name=\"scripted\""))
      << page;
}

TEST_F(HttpServeTest, MethodsAndTypes) {
  Start();
  const auto client = Connect();
  const RawResponse wrong = client->Get("/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_TRUE(absl::StrContains(wrong.head, "Allow: POST, OPTIONS\r\n")) << wrong.head;
  client->Send("OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const RawResponse options = client->ReadResponse();
  EXPECT_EQ(options.status, 204);
  EXPECT_TRUE(absl::StrContains(options.head, "Allow: GET, HEAD, OPTIONS\r\n")) << options.head;
  client->Send("HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client->ReadResponse(/*has_body=*/false).status, 200);
  client->Send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
      "Content-Length: 0\r\n\r\n");
  EXPECT_EQ(client->ReadResponse().status, 415);
}

TEST_F(HttpServeTest, ShutdownLetsAStreamEnd) {
  Start();
  engine_->model.Hold();
  const auto client = Connect();
  client->SendPost("/v1/completions", R"({"prompt":"Hello","max_tokens":30,"ignore_eos":true,)"
                                      R"("stream":true})");
  engine_->model.Allow(3);
  client->ReadUntil("\n\n");
  std::thread stopping([&] { server_->Shutdown({.drain = absl::Seconds(60)}); });
  const auto late = Connect();
  while (late->Get("/readyz").status == 200) std::this_thread::yield();
  EXPECT_EQ(late->Get("/healthz").status, 200);
  EXPECT_EQ(late->Post("/v1/completions", R"({"prompt":"x"})").status, 503);
  engine_->model.Release();
  EXPECT_TRUE(absl::StrContains(client->ReadUntil("[DONE]\n\n"), "\"length\""));
  stopping.join();
}

TEST_F(HttpServeTest, ShutdownEndsStreamsThatDoNotEnd) {
  Start();
  engine_->model.Hold();
  const auto client = Connect();
  client->SendPost("/v1/completions", R"({"prompt":"Hello","max_tokens":30,"stream":true})");
  engine_->model.Allow(3);
  client->ReadUntil("\n\n");
  std::thread stopping([&] { server_->Shutdown({}); });
  const std::string rest = client->ReadToEnd();
  EXPECT_TRUE(absl::StrContains(rest, "shutting down")) << rest;
  engine_->model.Release();
  stopping.join();
}

}  // namespace
}  // namespace tidepool::service
