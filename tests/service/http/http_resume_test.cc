// Idempotency-Key, X-Request-Id and Last-Event-ID over real sockets. The front and a worker with
// the scripted model run in one process.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "service/http/json.h"
#include "tests/service/http/http_fixture.h"

namespace tidepool::service {
namespace {

constexpr char kCompletions[] = "/v1/completions";
constexpr char kChat[] = "/v1/chat/completions";
constexpr char kStream[] =
    R"({"prompt":"Hello","max_tokens":60,"ignore_eos":true,"temperature":1,"stream":true,)"
    R"("stream_options":{"include_usage":true}})";

class HttpResumeTest : public HttpFixture {
 protected:
  using Headers = std::vector<std::pair<std::string, std::string>>;

  struct Event {
    std::string id;
    std::string data;
  };

  std::unique_ptr<RawClient> Ask(const std::string& path, const std::string& body,
                                 const Headers& headers) {
    auto client = Connect();
    std::string lines;
    for (const auto& [name, value] : headers) absl::StrAppend(&lines, name, ": ", value, "\r\n");
    client->Send(absl::StrCat("POST ", path, " HTTP/1.1\r\nHost: localhost\r\n", lines,
                              "Content-Type: application/json\r\nContent-Length: ", body.size(),
                              "\r\n\r\n", body));
    return client;
  }
  RawResponse Post(const std::string& path, const std::string& body, const Headers& headers) {
    return Ask(path, body, headers)->ReadResponse();
  }
  static std::vector<Event> Events(const RawResponse& response) {
    std::vector<Event> events;
    for (absl::string_view text : absl::StrSplit(response.body, "\n\n", absl::SkipEmpty())) {
      Event event;
      for (absl::string_view line : absl::StrSplit(text, '\n')) {
        if (absl::ConsumePrefix(&line, "id: ")) event.id = std::string(line);
        if (absl::ConsumePrefix(&line, "data: ")) event.data = std::string(line);
      }
      events.push_back(std::move(event));
    }
    return events;
  }
  // Removes the time at which each response began.
  static std::string Bare(const std::string& data) {
    const absl::StatusOr<Json> json = ParseJsonBody(data);
    if (!json.ok()) return data;
    Json bare = *json;
    bare.erase("created");
    bare.erase("timings");
    return DumpJson(bare);
  }
  static void ExpectSame(const std::vector<Event>& events, const std::vector<Event>& wanted) {
    ASSERT_EQ(events.size(), wanted.size());
    for (size_t i = 0; i < events.size(); ++i) {
      EXPECT_EQ(events[i].id, wanted[i].id);
      EXPECT_EQ(Bare(events[i].data), Bare(wanted[i].data));
    }
  }
};

TEST_F(HttpResumeTest, TheSameRequestIsComputedOnce) {
  Start();
  for (const char* header : {"Idempotency-Key", "X-Request-Id"}) {
    const std::string key = absl::StrCat("of ", header);
    const std::string body =
        R"({"prompt":"Hello","max_tokens":30,"ignore_eos":true,"temperature":1})";
    const RawResponse first = Post(kCompletions, body, {{header, key}});
    EXPECT_EQ(first.status, 200) << first.body;
    EXPECT_TRUE(absl::StrContains(first.head, absl::StrCat("x-request-id: ", key))) << first.head;
    const int64_t computed = Stats().workers(0).generated_tokens_total();
    const RawResponse again = Post(kCompletions, body, {{header, key}});
    EXPECT_EQ(Bare(again.body), Bare(first.body));
    EXPECT_EQ(Stats().workers(0).generated_tokens_total(), computed);
    // A request with another body is a different request.
    const RawResponse other =
        Post(kCompletions, R"({"prompt":"Hi","max_tokens":30})", {{header, key}});
    EXPECT_EQ(other.status, 409) << other.body;
    const RawResponse several = Post(kCompletions,
                                     R"({"prompt":"Hello","max_tokens":30,"ignore_eos":true,)"
                                     R"("temperature":1,"n":2})",
                                     {{header, key}});
    EXPECT_EQ(several.status, 409) << several.body;
  }
}

TEST_F(HttpResumeTest, TheIdempotencyKeyWins) {
  Start();
  const std::string body = R"({"prompt":"Hello","max_tokens":5})";
  const RawResponse response =
      Post(kCompletions, body, {{"X-Request-Id", "r"}, {"Idempotency-Key", "k"}});
  EXPECT_TRUE(absl::StrContains(response.head, "x-request-id: k\r\n")) << response.head;
  const RawResponse other = Post(kCompletions, R"({"prompt":"x"})", {{"X-Request-Id", "r"}});
  EXPECT_EQ(other.status, 200) << other.body;
}

TEST_F(HttpResumeTest, EachResponseHasTheNameOfItsRequest) {
  Start();
  const std::tuple<const char*, const char*, const char*, int> table[] = {
      {"a", kCompletions, R"({"prompt":"x","max_tokens":1})", 200},
      {"a", kCompletions, R"({"prompt":"x","max_tokens":2})", 409},
      {"a", kCompletions, R"({"prompt":"x","max_tokens":2,"stream":true})", 409},
      {"a", kCompletions, R"({"prompt":"x","promt":1})", 400},
      {"a", kCompletions, "{", 400},
      {"b", kCompletions, R"({"model":"none","prompt":"x"})", 404},
      {"a", "/tokenize", R"({"prompt":"x"})", 200},
      {"a", "/nothing", "{}", 404},
  };
  for (const auto& [name, path, body, status] : table) {
    const RawResponse response = Post(path, body, {{"X-Request-Id", name}});
    EXPECT_EQ(response.status, status) << body << response.body;
    const size_t at = response.head.find(absl::StrCat("x-request-id: ", name, "\r\n"));
    EXPECT_NE(at, std::string::npos) << body << response.head;
    EXPECT_EQ(response.head.find("x-request-id", at + 1), std::string::npos) << response.head;
  }
  // A name that is too long is not sent back.
  const RawResponse response =
      Post(kCompletions, R"({"prompt":"x"})", {{"Idempotency-Key", std::string(129, 'k')}});
  EXPECT_EQ(response.status, 400);
  EXPECT_FALSE(absl::StrContains(response.head, "kkk")) << response.head;
}

TEST_F(HttpResumeTest, OneKeyIsOneRequestOverGrpcToo) {
  Start();
  v1::GenerateRequest request = Text("Hello", 30);
  request.set_request_id("both");
  EXPECT_TRUE(Generate(request).status.ok());
  const RawResponse other = Post(kCompletions, R"({"prompt":"x"})", {{"Idempotency-Key", "both"}});
  EXPECT_EQ(other.status, 409) << other.body;
}

TEST_F(HttpResumeTest, OnlyStreamsWithAKeyHaveIds) {
  Start();
  for (const Event& event : Events(Post(kCompletions, kStream, {}))) EXPECT_EQ(event.id, "");
  const std::vector<Event> events = Events(Post(kCompletions, kStream, {{"X-Request-Id", "r"}}));
  ASSERT_GE(events.size(), 3);
  for (const Event& event : events) EXPECT_NE(event.id, "");
  EXPECT_EQ(events[events.size() - 3].id, "60f");
  EXPECT_EQ(events[events.size() - 2].id, "60f/usage");
  EXPECT_EQ(events.back().id, "60f/done");
  EXPECT_EQ(events.back().data, "[DONE]");
}

// Resumes after every event of a stream: while its events are kept, and when they must be computed
// again.
TEST_F(HttpResumeTest, AnEndedStreamResumesAfterAnyOfItsEvents) {
  Start();
  const std::string chat =
      R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":40,"ignore_eos":true,)"
      R"("temperature":1,"stream":true})";
  for (const auto& [path, body] : {std::pair<std::string, std::string>(kCompletions, kStream),
                                   std::pair<std::string, std::string>(kChat, chat)}) {
    const std::string key = absl::StrCat("ended ", path);
    const std::vector<Event> whole = Events(Post(path, body, {{"Idempotency-Key", key}}));
    for (size_t had = 0; had < whole.size(); ++had) {
      const std::vector<Event> rest =
          Events(Post(path, body, {{"Idempotency-Key", key}, {"Last-Event-ID", whole[had].id}}));
      ExpectSame(rest, {whole.begin() + static_cast<int64_t>(had) + 1, whole.end()});
    }
  }
}

TEST_F(HttpResumeTest, AStreamWithoutATokenYetComesFromItsStart) {
  Start();
  const std::string body =
      R"({"prompt":"Hello","max_tokens":20,"ignore_eos":true,"temperature":1,"echo":true,)"
      R"("stream":true})";
  const std::vector<Event> whole = Events(Post(kCompletions, body, {{"Idempotency-Key", "echo"}}));
  ASSERT_GE(whole.size(), 3);
  EXPECT_EQ(whole[0].id, "0");
  EXPECT_NE(whole[1].id, "0");
  const auto after = [&](const Event& event) {
    return Events(
        Post(kCompletions, body, {{"Idempotency-Key", "echo"}, {"Last-Event-ID", event.id}}));
  };
  ExpectSame(after(whole[0]), whole);
  ExpectSame(after(whole[1]), {whole.begin() + 2, whole.end()});
}

TEST_F(HttpResumeTest, ARunningStreamResumesWithoutAGap) {
  Start();
  const std::vector<Event> whole = Events(Post(kCompletions, kStream, {{"X-Request-Id", "whole"}}));
  std::string wanted, text;
  const auto add = [](const std::vector<Event>& events, std::string* to) {
    for (const Event& event : events) {
      const absl::StatusOr<Json> json = ParseJsonBody(event.data);
      if (!json.ok() || (*json)["choices"].empty()) continue;
      *to += (*json)["choices"][0]["text"].get<std::string>();
    }
  };
  const std::string body = absl::StrCat(std::string(kStream, sizeof(kStream) - 2), ",\"seed\":5}");
  add(Events(Post(kCompletions, body, {{"X-Request-Id", "undisturbed"}})), &wanted);
  engine_->model.Hold();
  auto client = Ask(kCompletions, body, {{"X-Request-Id", "cut"}});
  engine_->model.Allow(20);
  client->ReadUntil("\r\n\r\n");
  std::string head = client->ReadUntil("\n\n");
  client->Close();
  head = head.substr(head.find("id: "));
  const std::vector<Event> first = Events({.body = head});
  ASSERT_EQ(first.size(), 1);
  add(first, &text);
  auto back = Ask(kCompletions, body, {{"X-Request-Id", "cut"}, {"Last-Event-ID", first[0].id}});
  engine_->model.Release();
  add(Events(back->ReadResponse()), &text);
  EXPECT_EQ(text, wanted);
  EXPECT_EQ(Stats().workers(0).requests_cancelled_total(), 0);
}

TEST_F(HttpResumeTest, EachChoiceResumesAfterItsOwnTokens) {
  Start();
  const std::string body =
      R"({"prompt":["Hello","Hi"],"max_tokens":30,"ignore_eos":true,"temperature":1,"n":2,)"
      R"("stream":true})";
  const auto texts = [](const std::vector<Event>& events, std::vector<std::string>* to) {
    for (const Event& event : events) {
      const absl::StatusOr<Json> json = ParseJsonBody(event.data);
      if (!json.ok() || (*json)["choices"].empty()) continue;
      const Json& choice = (*json)["choices"][0];
      (*to)[choice["index"].get<size_t>()] += choice["text"].get<std::string>();
    }
  };
  const std::vector<Event> whole = Events(Post(kCompletions, body, {{"Idempotency-Key", "four"}}));
  std::vector<std::string> wanted(4);
  texts(whole, &wanted);
  for (size_t had = 0; had < whole.size(); ++had) {
    std::vector<std::string> joined(4);
    texts({whole.begin(), whole.begin() + static_cast<int64_t>(had) + 1}, &joined);
    texts(Events(Post(kCompletions, body,
                      {{"Idempotency-Key", "four"}, {"Last-Event-ID", whole[had].id}})),
          &joined);
    EXPECT_EQ(joined, wanted) << whole[had].id;
  }
}

TEST_F(HttpResumeTest, IdsThatTheStreamNeverHadAreRefused) {
  Start();
  Post(kCompletions, kStream, {{"Idempotency-Key", "k"}});
  for (const char* id : {"61", "x", "1,2"}) {
    const RawResponse response =
        Post(kCompletions, kStream, {{"Idempotency-Key", "k"}, {"Last-Event-ID", id}});
    EXPECT_EQ(response.status, 400) << id << response.body;
    EXPECT_TRUE(absl::StrContains(response.body, "Last-Event-ID is ")) << response.body;
  }
  EXPECT_EQ(Post(kCompletions, kStream, {{"Last-Event-ID", "3"}}).status, 400);
}

}  // namespace
}  // namespace tidepool::service
