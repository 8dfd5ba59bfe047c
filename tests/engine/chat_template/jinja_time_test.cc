// The time that a hostile template can take. An endless loop reaches a limit in less than a second,
// whatever it does in each step. If it processes megabytes, it takes less than two seconds. So each
// step or byte of the limits allows only a bounded amount of work. The test measures CPU time of
// this thread, which hardly depends on other load.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/chat_template/chat_template.h"
#include "gtest/gtest.h"
#include "kernels/base/background_thread.h"

namespace tidepool::engine {
namespace {

#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr double kSlower = 1;
#else
constexpr double kSlower = 20;  // factor without optimisation, or with a sanitizer
#endif
constexpr double kStepSeconds = 1;  // for an endless loop
constexpr double kByteSeconds = 2;  // for a loop over megabytes

double ThreadSeconds() { return absl::ToDoubleSeconds(base::ThreadCpuTime()); }

// Expects that the template exceeds a limit that the message names.
void ExpectEnd(const std::string& source, double max_seconds) {
  SCOPED_TRACE(source.substr(source.size() - std::min<size_t>(source.size(), 300)));
  const auto chat = ChatTemplate::Parse(source);
  ASSERT_TRUE(chat.ok()) << chat.status();
  const double begin = ThreadSeconds();
  const absl::Status status = chat->RenderText({}).status();
  const double seconds = ThreadSeconds() - begin;
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "limit")) << status;
  EXPECT_LT(seconds, kSlower * max_seconds) << status;
}

// Repeats `body` as often as the limits allow, after `before`.
void ExpectLoopEnds(const std::string& before, const std::string& body, double max_seconds) {
  ExpectEnd(absl::StrCat(before,
                         "{% for i in range(100000) %}{% for j in range(100000) %}"
                         "{% for k in range(100000) %}",
                         body, "{% endfor %}{% endfor %}{% endfor %}"),
            max_seconds);
}

// Returns an expression for a string of `thousands` times a thousand "a".
std::string Letters(int thousands) { return absl::StrCat("(('a' * 1000) * ", thousands, ")"); }

TEST(JinjaTimeTest, StepsAreShort) {
  const std::string nothing;
  for (const std::string body :
       {"", "{{ i }}", "{% if loop.first and not loop.last %}{% endif %}",
        "{% set x = i + j * k %}", "{% set x = [1, {'a': 1, 'b': [i, j]}, (k,)] %}",
        "{% set x = dict(a=1) %}", "{% set x = namespace(a=1) %}", "{{ 'abc'.upper().split('B') }}",
        "{% set x = [3, 1, 2] | sort | map('string') | list %}",
        "{{ '%s %d %.3f' % ('a', 1, 2.5) }}{{ '{} {:>9}'.format(1, 'b') }}",
        "{{ {'a': [1, 2.5, 'x']} | tojson }}", "{% set x %}{{ i }}{% endset %}",
        "{% for x in [i] recursive %}{% if j < 9 %}{{ loop([]) }}{% endif %}{% endfor %}",
        "{% with a = i, b = j %}{{ a }}{% endwith %}", "{{ missing }}"}) {
    ExpectLoopEnds(nothing, body, kStepSeconds);
  }
  ExpectLoopEnds("{% set ns = namespace(n=0) %}", "{% set ns.n = ns.n + 1 %}", kStepSeconds);
  ExpectLoopEnds("{% macro f(a, b=2) %}{{ a }}{% endmacro %}", "{{ f(1, b=3) }}", kStepSeconds);
}

TEST(JinjaTimeTest, ItemsAreQuick) {
  for (const std::string body :
       {"xs | sort", "-1 in xs", "xs | map('string') | unique | list", "xs | tojson", "xs ~ ''",
        "xs + xs", "xs[::-1]", "xs | max", "xs == (xs + [])", "xs | groupby('x', default=1)",
        "xs | select('odd') | list", "xs | batch(2) | list", "xs | join(',')", "xs | sum",
        "xs | reverse | list"}) {
    ExpectLoopEnds("{% set xs = range(100000) | list %}", absl::StrCat("{% set x = ", body, " %}"),
                   kByteSeconds);
  }
}

TEST(JinjaTimeTest, BytesAreQuick) {
  for (const std::string body : {"s | upper",
                                 "s | title",
                                 "s | escape",
                                 "s | tojson",
                                 "s | urlencode",
                                 "s | wordcount",
                                 "s | indent",
                                 "s | trim('ab')",
                                 "s | list",
                                 "s[::-1]",
                                 "s[-1]",
                                 "s[1:]",
                                 "s.isalpha()",
                                 "s.splitlines()",
                                 "s.split()",
                                 "s.count('ab')",
                                 "s.replace('aab', 'c')",
                                 "'aab' in s",
                                 "s.replace('a', 'b')",
                                 "s.split('a')",
                                 "s.rsplit('a')",
                                 "s | length",
                                 "s ~ s",
                                 "'%s' % s",
                                 "s.swapcase()",
                                 "s | truncate(9)",
                                 "s.expandtabs()",
                                 "s | center(2000000)",
                                 "[s] | string",
                                 "[s, s] | sort"}) {
    ExpectLoopEnds(absl::StrCat("{% set s = ", Letters(1000), " %}"),
                   absl::StrCat("{% set x = ", body, " %}"), kByteSeconds);
    ExpectLoopEnds("{% set s = ('\u00e9\u4e2d \n' * 100) * 1000 %}",
                   absl::StrCat("{% set x = ", body, " %}"), kByteSeconds);
  }
}

// Strings that contain the beginning of the other string at every position.
TEST(JinjaTimeTest, SearchIsLinear) {
  const std::string before =
      absl::StrCat("{% set s = ", Letters(8000), " %}{% set t = ", Letters(4000), " ~ 'b' %}",
                   "{% set u = 'b' ~ ", Letters(4000), " %}");
  for (const std::string body :
       {"t in s", "s.find(t)", "s.rfind(u)", "s.count(t)", "s.replace(t, '')", "s.split(t)",
        "s.rsplit(u, 5)", "s.partition(t)", "s.rpartition(u)", "s | replace(t, '')"}) {
    ExpectLoopEnds(before, absl::StrCat("{% set x = ", body, " %}"), kByteSeconds);
  }
}

// Operations that could take time for each pair of two large inputs.
TEST(JinjaTimeTest, NothingTakesTheProductOfTwoSizes) {
  const std::string ends =
      absl::StrCat("{% set s = ", Letters(1000), " %}{% set c = ('b' * 1000) * 1000 ~ 'a' %}");
  ExpectLoopEnds(ends, "{% set x = s.strip(c) %}", kByteSeconds);
  ExpectLoopEnds(ends, "{% set x = s | trim(c) %}", kByteSeconds);
  ExpectLoopEnds("{% set s = ('a ' * 1000) * 1000 %}", "{% set x = s.rsplit(none, 10000) %}",
                 kByteSeconds);
  std::string variables;
  std::string parameters;
  std::string keys;
  for (int i = 0; i < 30'000; ++i) {
    absl::StrAppend(&variables, "{% set v", i, " = 1 %}");
    absl::StrAppend(&parameters, i == 0 ? "" : ",", "v", i);
    absl::StrAppend(&keys, i == 0 ? "" : ",", "'w", i, "':1");
  }
  ExpectLoopEnds(variables, "{% if v29999 %}{% endif %}", kByteSeconds);
  ExpectLoopEnds(variables, "{% set v29999 = i %}", kByteSeconds);
  const std::string macro =
      absl::StrCat("{% macro f(", parameters, ") %}{{ kwargs }}{% endmacro %}");
  ExpectLoopEnds(macro, "{{ f() }}", kByteSeconds);
  ExpectLoopEnds(absl::StrCat(macro, "{% set d = {", keys, "} %}"), "{{ f(**d) }}", kByteSeconds);
  ExpectLoopEnds("{% set c = cycler(*range(100000)) %}", "{% set x = c %}", kByteSeconds);
  const std::string key = absl::StrCat("{% set d = {", Letters(8000), ": 1} %}");
  ExpectLoopEnds(key, "{% set x = dict(d) %}", kByteSeconds);
  ExpectLoopEnds(absl::StrCat(key, "{% macro f() %}{{ kwargs }}{% endmacro %}"),
                 "{% set x = f(**d) %}", kByteSeconds);
  ExpectLoopEnds(key, "{% set x = d == dict(d) %}", kByteSeconds);
  ExpectLoopEnds(absl::StrCat("{% set xs = [", Letters(1000), "] * 50000 %}"),
                 "{% set x = xs | map(attribute=0) | list %}", kByteSeconds);
  ExpectLoopEnds("{% set xs = [[1]] * 100000 %}{% set p = ('0.' * 1000) * 100 ~ '0' %}",
                 "{% set x = xs | map(attribute=p, default=1) | list %}", kByteSeconds);
  const std::string nested =
      absl::StrCat("{% set ns = namespace(t=(", Letters(1000), ",), u=(", Letters(1000),
                   ",)) %}{% for i in range(150) %}"
                   "{% set ns.t = (ns.t,) %}{% set ns.u = (ns.u,) %}{% endfor %}{% set t = ns.t "
                   "%}{% set u = ns.u %}");
  ExpectLoopEnds(nested, "{% set x = {t: 1} %}", kByteSeconds);
  ExpectLoopEnds(nested, "{% set x = t < u %}", kByteSeconds);
}

// Such operations cannot fill the memory either: each part is charged before it is created.
TEST(JinjaTimeTest, PartsArePaidForOneByOne) {
  ExpectEnd(absl::StrCat("{{ ", Letters(30'000), ".split('a') | length }}"), kByteSeconds);
  ExpectEnd("{{ (('a ' * 1000) * 15000).split() | length }}", kByteSeconds);
  ExpectEnd("{{ (('\\n' * 1000) * 30000).splitlines() | length }}", kByteSeconds);
}

}  // namespace
}  // namespace tidepool::engine
