// Templates that would run without end, or fill the memory, fail with an error that names the
// limit.
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/chat_template/chat_template.h"
#include "gtest/gtest.h"

namespace tidepool::engine {
namespace {

using Json = nlohmann::ordered_json;

absl::Status StatusOf(const std::string& source, const ChatTemplateLimits& limits) {
  const auto chat = ChatTemplate::Parse(source);
  if (!chat.ok()) return chat.status();
  ChatInputs inputs;
  inputs.messages = Json::array({{{"role", "user"}, {"content", "0123456789"}}});
  return chat->RenderText(inputs, limits).status();
}

void ExpectExhausted(const std::string& source, const std::string& limit,
                     const ChatTemplateLimits& limits = ChatTemplateLimits()) {
  const absl::Status status = StatusOf(source, limits);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << source << "\n" << status;
  EXPECT_TRUE(absl::StrContains(status.message(), limit)) << source << "\n" << status;
  EXPECT_TRUE(absl::StartsWith(status.message(), "chat template, line ")) << status;
}

// Returns a template with a loop that repeats `body` very often, after `before`.
std::string Forever(const std::string& before, const std::string& body) {
  return absl::StrCat(before,
                      "{% for i in range(100000) %}{% for j in range(100000) %}"
                      "{% for k in range(100000) %}",
                      body, "{% endfor %}{% endfor %}{% endfor %}");
}

TEST(JinjaLimitsTest, StepsAreBounded) {
  const std::string limit = "the limit of 2000000 steps";
  ExpectExhausted(Forever("", ""), limit);
  ExpectExhausted(Forever("{% set ns = namespace(n=0) %}", "{% set ns.n = ns.n + 1 %}"), limit);
  ExpectExhausted(
      "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}"
      "{% endmacro %}{{ f(100) }}",
      limit);
  ExpectExhausted(
      "{% for x in [1] recursive %}{% for i in range(9) %}{% endfor %}"
      "{% if loop.depth < 90 %}{{ loop([1, 2]) }}{% endif %}{% endfor %}",
      limit);
  ExpectExhausted(Forever("", "{% if 'a' in ['b', 'c'] %}{% endif %}"), limit);
}

TEST(JinjaLimitsTest, OutputIsBounded) {
  const ChatTemplateLimits small = {1000, 10000, 1000000, 10000};
  EXPECT_TRUE(StatusOf("{% for i in range(50) %}0123456789{% endfor %}", small).ok());
  ExpectExhausted("{% for i in range(200) %}0123456789{% endfor %}", "the limit of 1000 bytes",
                  small);
  ExpectExhausted(Forever("", "0123456789012345678901234567890123456789"), "the limit");
}

TEST(JinjaLimitsTest, ValuesAreBounded) {
  const std::string bytes = "134217728 bytes of values";
  const std::string one = "the limit of 33554432";
  ExpectExhausted(
      "{% set ns = namespace(s='x') %}{% for i in range(100) %}"
      "{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
      "exceeds the limit");
  ExpectExhausted(Forever("{% set s = 'x' * 1000000 %}", "{% if 'y' in s %}{% endif %}"), bytes);
  ExpectExhausted("{{ 'x' * 100000000 }}", one);
  ExpectExhausted("{{ 'x' * 99999999999 }}", "repeated 99999999999 times");
  ExpectExhausted("{{ [1] * 2000000000 }}", "the limit");
  ExpectExhausted("{{ ('a' * 100000).replace('', 'b' * 100000) }}", one);
  ExpectExhausted("{{ ('a' * 100000) | replace('a', 'b' * 100000) }}", one);
  ExpectExhausted("{{ '%999999999d' % 1 }}", one);
  ExpectExhausted("{{ '%99999999999d' % 1 }}", "width is too large");
  ExpectExhausted("{{ '%*d' % (999999999999, 1) }}", one);
  ExpectExhausted("{{ '%.99999f' % 1 }}", "precision");
  ExpectExhausted("{{ '{:999999999}'.format('x') }}", one);
  ExpectExhausted("{{ 'x'.center(999999999) }}", one);
  ExpectExhausted("{{ 'x' | center(9223372036854775807) }}", one);
  ExpectExhausted("{{ 'x'.zfill(999999999) }}", one);
  ExpectExhausted("{{ 'x\ty'.expandtabs(999999999) }}", one);
  ExpectExhausted("{{ 'x' | indent(999999999, true) }}", one);
  ExpectExhausted("{{ range(100000) | join('y' * 10000) }}", one);
  ExpectExhausted("{{ ('y' * 3000000) | list | map('upper') | map('lower') | list }}", "the limit");
  ExpectExhausted("{{ [1] | batch(999999999, 'x') | list }}", "the limit");
  ExpectExhausted("{{ [1] | slice(999999999, 'x') | list }}", "the limit");
  ExpectExhausted(
      "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}"
      "{% set ns.l = ns.l + ns.l %}{% endfor %}",
      "the limit");
}

// A list contains another list twice, which contains a third list twice, and so on a hundred times.
// The lists use little memory, but traversing all of them would not end.
TEST(JinjaLimitsTest, SharedValuesAreBounded) {
  const std::string doubled =
      "{% set ns = namespace(a=[1], b=[1], c=(1,)) %}{% for i in range(100) %}"
      "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% set ns.c = (ns.c, ns.c) %}"
      "{% endfor %}";
  for (const std::string use :
       {"{{ ns.a }}", "{{ ns.a == ns.b }}", "{{ ns.a < ns.b }}", "{{ ns.a | tojson }}",
        "{{ [ns.a] | sort }}", "{{ [ns.a, ns.b] | max }}", "{{ ns.a in [ns.b] }}",
        "{{ {ns.c: 1} }}", "{{ ns.a ~ '' }}", "{{ '%s' % [ns.a] }}", "{{ '{}'.format(ns.a) }}",
        "{{ [ns.c, ns.c] | unique | list }}", "{{ xs[ns.c] if ns.c is eq ns.c }}",
        "{{ [ns.a] | join }}", "{{ raise_exception(ns.a) }}", "{{ [ns.b].index(ns.a) }}",
        "{{ ns.a is sameas ns.b }}", "{% for x in [1, 2] %}{{ loop.changed(ns.c) }}{% endfor %}"}) {
    ExpectExhausted(doubled + use, "the limit");
  }
}

TEST(JinjaLimitsTest, RangesAreBounded) {
  ExpectExhausted("{{ range(1000000000000) }}", "the limit of 100000 items");
  ExpectExhausted("{{ range(0, 9223372036854775807, 2) }}", "the limit of 100000 items");
  EXPECT_TRUE(StatusOf("{{ range(100000) | length }}", {}).ok());
  EXPECT_TRUE(StatusOf("{{ range(9223372036854775806, 9223372036854775807, 5) }}", {}).ok());
}

TEST(JinjaLimitsTest, DepthIsBounded) {
  ExpectExhausted("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", "deeper than 1000");
  ExpectExhausted(
      "{% macro f() %}{{ caller() }}{% call f() %}x{% endcall %}{% endmacro %}"
      "{% call f() %}{% endcall %}",
      "deeper than 1000");
  ExpectExhausted("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "deeper than 1000");
  ExpectExhausted(
      "{% set ns = namespace(a=[]) %}{% for i in range(100000) %}"
      "{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a }}",
      "deeper than 200");
  ExpectExhausted(
      "{% set ns = namespace(a={}) %}{% for i in range(100000) %}"
      "{% set ns.a = {'k': ns.a} %}{% endfor %}",
      "deeper than 200");
}

// Namespaces and macros that refer to each other, in cycles and long chains, neither overflow the
// stack nor leak (ASan would detect the leak).
TEST(JinjaLimitsTest, RingsAndChainsEnd) {
  for (const std::string source :
       {"{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.l = [ns] %}{{ ns }}{{ ns.l }}",
        "{% set ns = namespace() %}{% for i in range(50000) %}{% set ns.next = "
        "namespace(p=ns.next) %}"
        "{% endfor %}",
        "{% macro make(prev) %}{% macro g() %}{{ prev }}{% endmacro %}{% set ns.m = g %}{% "
        "endmacro %}"
        "{% set ns = namespace() %}{% for i in range(50000) %}{{ make(ns.m) }}{% endfor %}",
        "{% set ns = namespace() %}{% for x in [1] recursive %}{% set ns.l = loop %}{% endfor "
        "%}"}) {
    EXPECT_TRUE(StatusOf(source, {}).ok()) << source << StatusOf(source, {});
  }
}

TEST(JinjaLimitsTest, DeepTemplatesAreRefused) {
  std::string brackets;
  std::string tags;
  std::string targets;
  std::string sum = "{{ 1";
  std::string filters = "{{ 1";
  std::string dots = "{{ a";
  constexpr int kMany = 50'000;
  for (int i = 0; i < kMany; ++i) {
    brackets += "(";
    tags += "{% if 1 %}";
    targets += "(";
    sum += " + 1";
    filters += "|e";
    dots += ".a";
  }
  const std::string closing(brackets.size(), ')');
  for (const std::string& source :
       {"{{ " + brackets + "1" + closing + " }}",
        "{{ " + std::string(kMany, '[') + std::string(kMany, ']') + " }}", tags, sum + " }}",
        filters + " }}", dots + " }}", "{{ " + std::string(kMany, '-') + "1 }}",
        "{% set " + targets + "a" + closing + " = 1 %}"}) {
    const auto chat = ChatTemplate::Parse(source);
    EXPECT_EQ(chat.status().code(), absl::StatusCode::kInvalidArgument) << chat.status();
    EXPECT_TRUE(absl::StrContains(chat.status().message(), "deeper than")) << chat.status();
  }
  const auto named = ChatTemplate::Parse(absl::StrCat("{{ ", std::string(1001, 'x'), " }}"));
  EXPECT_EQ(named.status().code(), absl::StatusCode::kInvalidArgument) << named.status();
  EXPECT_TRUE(absl::StrContains(named.status().message(), "the limit is 1000 bytes"))
      << named.status();
  EXPECT_TRUE(ChatTemplate::Parse(absl::StrCat("{{ ", std::string(1000, 'x'), " }}")).ok());
  const auto chat = ChatTemplate::Parse(std::string((1 << 20) + 1, 'x'));
  EXPECT_TRUE(absl::StrContains(chat.status().message(), "at most 1048576")) << chat.status();
}

}  // namespace
}  // namespace tidepool::engine
