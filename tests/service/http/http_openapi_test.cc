// Compares /openapi.json with the handlers: each documented path and field is tried on a real
// server.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "service/base/version.h"
#include "service/http/json.h"
#include "tests/service/http/http_fixture.h"

namespace tidepool::service {
namespace {

class HttpOpenApiTest : public HttpFixture {
 protected:
  Json Document() {
    const RawResponse response = Connect()->Get("/openapi.json");
    EXPECT_EQ(response.status, 200);
    return *ParseJsonBody(response.body);
  }
  static Json BodySchemaOf(const Json& document, const std::string& path) {
    return document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"];
  }
};

// Returns a complete request for each path that has a body.
Json Example(const std::string& path) {
  const Json messages = Json::array({{{"role", "user"}, {"content", "hi"}}});
  if (path == "/v1/chat/completions") return {{"messages", messages}, {"max_tokens", 1}};
  if (path == "/v1/completions") return {{"prompt", "hi"}, {"max_tokens", 1}};
  if (path == "/tokenize") return {{"prompt", "hi"}};
  if (path == "/detokenize") return {{"tokens", Json::array({104, 105})}};
  return {{"messages", messages}};
}

// Returns values that a schema must refuse: one of each other type, and some that are out of range.
std::vector<Json> WrongValues(const Json& schema) {
  std::vector<Json> wrong;
  if (schema.contains("enum")) return {"surely not this"};
  if (!schema.contains("type")) return {};
  const auto takes = [&schema](const char* type) {
    const Json& types = schema["type"];
    return std::find(types.begin(), types.end(), Json(type)) != types.end();
  };
  if (!takes("string")) wrong.emplace_back("text");
  if (!takes("boolean")) wrong.emplace_back(true);
  if (!takes("number")) wrong.emplace_back(1.5);
  if (!takes("array")) wrong.push_back(Json::array({Json::array()}));
  if (!takes("object")) wrong.push_back({{"surely_not", 1}});
  if (schema.contains("minItems")) wrong.push_back(Json::array());
  if (schema.contains("minLength")) wrong.emplace_back("");
  if (schema.contains("minimum")) wrong.emplace_back(schema["minimum"].get<int64_t>() - 1);
  if (schema.contains("maximum")) wrong.emplace_back(schema["maximum"].get<int64_t>() + 1);
  return wrong;
}

TEST_F(HttpOpenApiTest, EachPathIsServed) {
  Start();
  const Json document = Document();
  EXPECT_EQ(document["openapi"], "3.1.0");
  EXPECT_EQ(document["info"]["version"], kVersion);
  EXPECT_GE(document["paths"].size(), 10);
  for (const auto& [path, methods] : document["paths"].items()) {
    for (const auto& [method, operation] : methods.items()) {
      EXPECT_FALSE(operation["summary"].get<std::string>().empty()) << path;
      const std::string target = absl::StrReplaceAll(path, {{"{id}", "scripted"}});
      RawResponse response;
      if (method == "get") {
        ASSERT_FALSE(operation.contains("requestBody")) << path;
        response = Connect()->Get(target);
        EXPECT_EQ(response.status, 200) << path << response.body;
      } else {
        ASSERT_TRUE(operation.contains("requestBody")) << path << " has no schema";
        response = Connect()->Post(target, "{");
        EXPECT_EQ(response.status, 400) << path << response.body;
      }
      const Json& ok = operation["responses"]["200"];
      if (response.status != 200) continue;
      if (!ok.contains("content")) {
        EXPECT_EQ(response.body, "") << path;
        EXPECT_FALSE(absl::StrContains(response.head, "Content-Type")) << response.head;
      } else {
        EXPECT_TRUE(absl::StrContains(response.head, ok["content"].begin().key()))
            << path << response.head;
      }
      // Other HTTP methods are refused.
      const RawResponse other =
          method == "get" ? Connect()->Post(target, "{}") : Connect()->Get(target);
      EXPECT_EQ(other.status, 405) << path;
    }
  }
}

TEST_F(HttpOpenApiTest, EachFieldIsRead) {
  Start();
  const Json document = Document();
  int tried = 0;
  for (const std::string path :
       {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/apply-template"}) {
    const Json schema = BodySchemaOf(document, path);
    EXPECT_EQ(Connect()->Post(path, DumpJson(Example(path))).status, 200);
    for (const auto& [name, field] : schema["properties"].items()) {
      const std::vector<Json> wrong = WrongValues(field);
      EXPECT_FALSE(wrong.empty()) << name << " takes anything";
      for (const Json& value : wrong) {
        Json body = Example(path);
        body[name] = value;
        const RawResponse response = Connect()->Post(path, DumpJson(body));
        EXPECT_EQ(response.status, 400) << name << " " << value << response.body;
        const Json param = (*ParseJsonBody(response.body))["error"]["param"];
        EXPECT_TRUE(param.is_string() && absl::StartsWith(param.get<std::string>(), name))
            << name << " " << value << response.body;
        ++tried;
      }
    }
    if (!schema.contains("required")) continue;
    for (const Json& name : schema["required"]) {
      Json body = Example(path);
      body.erase(name.get<std::string>());
      EXPECT_EQ((*ParseJsonBody(Connect()->Post(path, DumpJson(body)).body))["error"]["param"],
                name);
    }
  }
  EXPECT_GT(tried, 200);
}

TEST_F(HttpOpenApiTest, HeadersOfCompletionsAreDescribed) {
  Start();
  const Json document = Document();
  for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
    std::vector<std::string> names;
    for (const Json& parameter : document["paths"][path]["post"]["parameters"]) {
      EXPECT_EQ(parameter["in"], "header");
      names.push_back(parameter["name"]);
    }
    EXPECT_EQ(names,
              (std::vector<std::string>{"Idempotency-Key", "X-Request-Id", "Last-Event-ID"}));
  }
  EXPECT_FALSE(document["paths"]["/tokenize"]["post"].contains("parameters"));
}

TEST_F(HttpOpenApiTest, SchemasGoIntoObjectsAndLists) {
  Start();
  const Json document = Document();
  const Json chat = BodySchemaOf(document, "/v1/chat/completions");
  EXPECT_EQ(chat["required"], Json::array({"messages"}));
  EXPECT_EQ(chat["additionalProperties"], false);
  EXPECT_EQ(chat["properties"]["max_tokens"]["type"], Json::array({"integer", "null"}));
  EXPECT_EQ(chat["properties"]["max_tokens"]["minimum"], 0);  // 0 is allowed with echo
  EXPECT_EQ(chat["properties"]["top_logprobs"]["maximum"], 20);
  EXPECT_EQ(chat["properties"]["store"]["enum"], Json::array({Json(), false}));
  EXPECT_EQ(chat["properties"]["stream_options"]["properties"]["include_usage"]["type"][0],
            "boolean");
  const Json& message = chat["properties"]["messages"]["items"];
  // instead of content, a message may have tool calls
  EXPECT_EQ(message["required"], Json::array({"role"}));
  EXPECT_EQ(message["properties"]["content"]["type"], Json::array({"string", "array", "null"}));
  EXPECT_EQ(message["properties"]["content"]["items"]["required"], Json::array({"type", "text"}));
  EXPECT_EQ(message["properties"]["tool_calls"]["items"]["properties"]["function"]["required"],
            Json::array({"name"}));
  const Json& tool = chat["properties"]["tools"]["items"];
  EXPECT_EQ(tool["properties"]["function"]["properties"]["parameters"]["type"][0], "object");
  // One of the two fields is required.
  const Json tokenize = BodySchemaOf(document, "/tokenize");
  EXPECT_FALSE(tokenize.contains("required"));
  EXPECT_EQ(tokenize["properties"]["messages"]["items"]["required"], Json::array({"role"}));
  // A field may be null, but an element of a list must not.
  EXPECT_EQ(chat["properties"]["messages"]["items"]["type"], Json::array({"object"}));
  const Json tokens = BodySchemaOf(document, "/detokenize")["properties"]["tokens"];
  EXPECT_EQ(tokens["items"],
            Json::parse(R"({"type":["integer"],"minimum":0,"maximum":2147483647})"));
  EXPECT_EQ(chat["properties"]["messages"]["minItems"], 1);
  EXPECT_FALSE(chat["properties"]["messages"].contains("minLength"));
  EXPECT_FALSE(chat["properties"]["tools"].contains("minItems"));
  const Json prompt = BodySchemaOf(document, "/v1/completions")["properties"]["prompt"];
  EXPECT_EQ(prompt["minItems"], 1);
  EXPECT_EQ(prompt["minLength"], 1);
  // A free-form object may have any key.
  EXPECT_FALSE(chat["properties"]["metadata"].contains("additionalProperties"));
  EXPECT_FALSE(chat["properties"]["logit_bias"].contains("additionalProperties"));
}

TEST_F(HttpOpenApiTest, HealthAndVersionAreVllms) {
  Start();
  const RawResponse health = Connect()->Get("/health");
  EXPECT_EQ(health.status, 200);
  EXPECT_EQ(health.body, "");
  EXPECT_EQ(*ParseJsonBody(Connect()->Get("/version").body), Json({{"version", kVersion}}));
  EXPECT_EQ(Connect()->Get("/nothing").status, 404);
}

}  // namespace
}  // namespace tidepool::service
