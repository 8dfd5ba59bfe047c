#include "service/base/trace_context.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace tidepool::service {
namespace {

constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr char kSpan[] = "00f067aa0ba902b7";

std::string Header(absl::string_view version = "00", absl::string_view flags = "01") {
  return absl::StrCat(version, "-", kTrace, "-", kSpan, "-", flags);
}

TEST(TraceContextTest, ReadsTheExamplesOfTheSpecification) {
  const auto context = ParseTraceContext(Header(), "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE");
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(context->trace_id, kTrace);
  EXPECT_EQ(context->span_id, kSpan);
  EXPECT_TRUE(context->sampled);
  EXPECT_EQ(context->state, "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE");
  EXPECT_EQ(Traceparent(*context), Header());
}

TEST(TraceContextTest, OnlyTheLowestFlagIsKnown) {
  EXPECT_FALSE(ParseTraceContext(Header("00", "fe"), "")->sampled);
  EXPECT_EQ(Traceparent(*ParseTraceContext(Header("00", "ff"), "")), Header("00", "01"));
}

TEST(TraceContextTest, LaterVersionsMayHaveMore) {
  EXPECT_TRUE(ParseTraceContext(Header("cc"), "").has_value());
  EXPECT_TRUE(ParseTraceContext(Header("cc") + "-what-comes", "").has_value());
  EXPECT_FALSE(ParseTraceContext(Header("cc") + ".what-comes", "").has_value());
  EXPECT_FALSE(ParseTraceContext(Header("00") + "-what-comes", "").has_value());
  EXPECT_FALSE(ParseTraceContext(Header("ff"), "").has_value());
}

TEST(TraceContextTest, RefusesMalformedHeaders) {
  const std::string zeros(32, '0');
  for (const std::string& wrong : {
           std::string(),
           Header().substr(1),
           Header().substr(0, 54),
           absl::StrCat(" ", Header()),
           absl::StrCat(Header(), " "),
           absl::StrCat(Header(), ",", Header()),
           Header("0x"),
           Header("00", "0g"),
           Header("00", "0A"),
           absl::StrCat("00-", "4BF92F3577B34DA6A3CE929D0E0E4736", "-", kSpan, "-01"),
           absl::StrCat("00-", zeros, "-", kSpan, "-01"),
           absl::StrCat("00-", kTrace, "-", zeros.substr(16), "-01"),
           absl::StrCat("00_", kTrace, "-", kSpan, "-01"),
           absl::StrCat("00-", kTrace, "_", kSpan, "-01"),
           absl::StrCat("00-", kTrace, "-", kSpan, "_01"),
       }) {
    EXPECT_FALSE(ParseTraceContext(wrong, "a=b").has_value()) << wrong;
  }
}

std::string StateOf(absl::string_view state) { return ParseTraceContext(Header(), state)->state; }

TEST(TraceStateTest, OnesThatAreNoneAreLeftOut) {
  EXPECT_EQ(StateOf(" a=1 ,\t,b@c=2 3, "), "a=1,b@c=2 3");
  for (const char* wrong :
       {"a", "=1", "a=", "A=1", "a=1,a=2", "a b=1", "a=1=2", "a@b@c=1", "a=\x01", "a=\xc3\xa9"}) {
    EXPECT_EQ(StateOf(wrong), "") << wrong;
  }
  std::string many = "k0=v";
  for (int i = 1; i < 33; ++i) absl::StrAppend(&many, ",k", i, "=v");
  EXPECT_EQ(StateOf(many), "");
}

TEST(TraceStateTest, LongOnesLoseWholeEntries) {
  const std::string large = absl::StrCat("large=", std::string(200, 'x'));
  std::string small;
  for (int i = 0; i < 10; ++i) {
    absl::StrAppend(&small, i == 0 ? "" : ",", "k", i, "=", std::string(44, 'y'));
  }
  ASSERT_LE(small.size(), kMaxTraceStateBytes);
  EXPECT_EQ(StateOf(absl::StrCat(large, ",", small)), small);
  const std::string more = absl::StrCat(small, ",last=", std::string(44, 'z'));
  EXPECT_EQ(StateOf(more), small);
}

TEST(SpanTest, AChildKeepsTheTraceAndHasItsOwnId) {
  const TraceSpan child = BeginSpan(ParseTraceContext(Header(), "a=b"));
  EXPECT_EQ(child.context.trace_id, kTrace);
  EXPECT_EQ(child.parent_span, kSpan);
  EXPECT_NE(child.context.span_id, kSpan);
  EXPECT_TRUE(child.context.sampled);
  EXPECT_EQ(child.context.state, "a=b");
  const auto read = ParseTraceContext(Traceparent(child.context), "");
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->span_id, child.context.span_id);
}

TEST(SpanTest, WithoutAParentATraceBegins) {
  const TraceSpan one = BeginSpan(std::nullopt), other = BeginSpan(std::nullopt);
  EXPECT_EQ(one.parent_span, "");
  EXPECT_NE(one.context.trace_id, other.context.trace_id);
  const auto read = ParseTraceContext(Traceparent(one.context), "");
  ASSERT_TRUE(read.has_value());
  EXPECT_FALSE(read->sampled);
  EXPECT_EQ(Traceparent({}), "");
}

}  // namespace
}  // namespace tidepool::service
