// Arguments of earlier calls: complete, cut anywhere, and wrong.
#include "service/tools/arguments_object.h"

#include <gtest/gtest.h>

#include <string>

namespace tidepool::service {
namespace {

using Json = nlohmann::ordered_json;

std::string Read(const std::string& text) { return ArgumentsObject(text).dump(); }

TEST(ArgumentsObjectTest, CompleteTextStays) {
  EXPECT_EQ(Read(R"({"b": [1, {"c": null}], "a": "x"})"), R"({"b":[1,{"c":null}],"a":"x"})");
  EXPECT_EQ(Read(""), "{}");
  EXPECT_EQ(Read(" \n"), "{}");
}

TEST(ArgumentsObjectTest, TheBeginningOfAnObjectIsCompleted) {
  EXPECT_EQ(Read("{"), "{}");
  EXPECT_EQ(Read(R"({"ci)"), "{}");
  EXPECT_EQ(Read(R"({"city")"), "{}");
  EXPECT_EQ(Read(R"({"city":)"), "{}");
  EXPECT_EQ(Read(R"({"city": ")"), R"({"city":""})");
  EXPECT_EQ(Read(R"({"city": "Col)"), R"({"city":"Col"})");
  EXPECT_EQ(Read(R"({"city": "Col",)"), R"({"city":"Col"})");
  EXPECT_EQ(Read(R"({"city": "Col", "days": 1)"), R"({"city":"Col","days":1})");
  EXPECT_EQ(Read(R"({"days": 12.)"), R"({"days":12})");
  EXPECT_EQ(Read(R"({"days": 1.5e-)"), R"({"days":1.5})");
  EXPECT_EQ(Read(R"({"days": -)"), "{}");
  EXPECT_EQ(Read(R"({"a": true, "b": fal)"), R"({"a":true})");
  EXPECT_EQ(Read(R"({"a": [1, {"b": [)"), R"({"a":[1,{"b":[]}]})");
  EXPECT_EQ(Read(R"({"a": [1, {"b": "x"}], "c": {)"), R"({"a":[1,{"b":"x"}],"c":{}})");
}

TEST(ArgumentsObjectTest, ACutEscapeIsLeftOut) {
  for (const char* escape : {"\\", "\\u", "\\u00e", "\\ud83d", "\\ud83d\\", "\\ud83d\\ude0"}) {
    EXPECT_EQ(Read(std::string(R"({"a": "x)") + escape), R"({"a":"x"})") << escape;
  }
  EXPECT_EQ(Read(R"({"a": "x\n\u00e9)"), R"({"a":"x\né"})");
  EXPECT_EQ(Read(R"({"a": "\ud83d\ude00)"), "{\"a\":\"\xf0\x9f\x98\x80\"}");
}

TEST(ArgumentsObjectTest, OtherTextIsAValue) {
  for (const char* text : {"city: Cologne", "{city: 1}", "[1]", "\"x\"", R"({"a": 1} x)",
                           R"({"a" 1)", R"({"a": 1, "a": 2})", R"({"a": tru, "b": 1})"}) {
    EXPECT_EQ(Read(text), Json({{"arguments", text}}).dump()) << text;
  }
  // Templates are recursive, so deep values stay text.
  const std::string deep = R"({"a": )" + std::string(100'000, '[');
  EXPECT_EQ(ArgumentsObject(deep)["arguments"], deep);
}

// Every cut gives an object whose values are beginnings of the whole values.
TEST(ArgumentsObjectTest, EveryCut) {
  const std::string whole =
      R"({"text": "a\"b\u00e9 \ud83d\ude00", "n": -12.5e3, "list": [true, null, [], {"k": "v"}], "o": {}})";
  const Json complete = ArgumentsObject(whole);
  for (size_t cut = 0; cut <= whole.size(); ++cut) {
    const Json read = ArgumentsObject(whole.substr(0, cut));
    ASSERT_TRUE(read.is_object()) << cut;
    EXPECT_FALSE(read.contains("arguments")) << whole.substr(0, cut);
    for (const auto& [key, value] : read.items()) {
      ASSERT_TRUE(complete.contains(key)) << key;
      EXPECT_EQ(value.type_name(), std::string(complete[key].type_name())) << whole.substr(0, cut);
    }
  }
  EXPECT_EQ(ArgumentsObject(whole), complete);
}

}  // namespace
}  // namespace tidepool::service
