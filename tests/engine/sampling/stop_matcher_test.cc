#include "engine/sampling/stop_matcher.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace tidepool::engine {
namespace {

// Feeds `text` in pieces of these sizes, and repeats the last size. Returns the output, including
// text that was held back.
std::pair<std::string, bool> Feed(StopMatcher matcher, const std::string& text,
                                  const std::vector<size_t>& sizes) {
  std::string out;
  size_t at = 0;
  for (size_t i = 0; at < text.size(); ++i) {
    const size_t size = sizes[std::min(i, sizes.size() - 1)];
    const StopMatcher::Result result = matcher.Append(text.substr(at, size));
    out += result.text;
    if (result.stopped) return {out, true};
    at += size;
  }
  return {out + matcher.TakeHeld(), false};
}

TEST(StopMatcherTest, WithoutStopStringsAllGoesThrough) {
  StopMatcher matcher({}, StopText::kDrop);
  EXPECT_EQ(matcher.Append("abc").text, "abc");
  EXPECT_EQ(matcher.TakeHeld(), "");
}

TEST(StopMatcherTest, HoldsBackTextThatMayBeginAStopString) {
  StopMatcher matcher({"\n\nUser:"}, StopText::kDrop);
  EXPECT_EQ(matcher.Append("Hello\n").text, "Hello");
  EXPECT_EQ(matcher.Append("you").text, "\nyou");
  EXPECT_EQ(matcher.Append("\n").text, "");
  EXPECT_EQ(matcher.Append("\n").text, "");
  EXPECT_EQ(matcher.Append("\n").text, "\n");  // the last two characters may begin the stop string
  EXPECT_EQ(matcher.TakeHeld(), "\n\n");
}

TEST(StopMatcherTest, TheFirstToEndWins) {
  const StopMatcher matcher({"bcde", "cd", "zz"}, StopText::kKeep);
  EXPECT_EQ(Feed(matcher, "abcdef", {100}), (std::pair<std::string, bool>("abcd", true)));
  const StopMatcher equal_ends({"cd", "bcd"}, StopText::kDrop);
  EXPECT_EQ(Feed(equal_ends, "abcdef", {100}), (std::pair<std::string, bool>("a", true)));
}

// Computes the output with a simple implementation of the definition, character by character.
std::pair<std::string, bool> Expected(const std::vector<std::string>& stops,
                                      const std::string& text, StopText stop_text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> begin;
    for (const std::string& stop : stops) {
      if (stop.size() > end || text.compare(end - stop.size(), stop.size(), stop) != 0) continue;
      begin = std::min(begin.value_or(end), end - stop.size());
    }
    if (!begin.has_value()) continue;
    return {text.substr(0, stop_text == StopText::kKeep ? end : *begin), true};
  }
  return {text, false};
}

TEST(StopMatcherTest, PiecesDoNotMatter) {
  std::mt19937 random(7);
  const auto letters = [&](size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += static_cast<char>('a' + random() % 2);
    return text;
  };
  int stopped = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = 0; i < 1 + random() % 3; ++i) stops.push_back(letters(1 + random() % 7));
    const std::string text = letters(random() % 40);
    const StopText stop_text = round % 2 == 0 ? StopText::kKeep : StopText::kDrop;
    const auto expected = Expected(stops, text, stop_text);
    stopped += expected.second;
    for (const size_t size : {1, 2, 3, 100}) {
      EXPECT_EQ(Feed(StopMatcher(stops, stop_text), text, {size}), expected);
    }
  }
  EXPECT_GT(stopped, 500);
  EXPECT_LT(stopped, 1900);
}

// Output is never taken back, and no more text is held back than necessary.
TEST(StopMatcherTest, HoldsNoMoreThanNeeded) {
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    std::string stop;
    for (size_t i = 0; i < 2 + random() % 5; ++i) stop += static_cast<char>('a' + random() % 2);
    StopMatcher matcher({stop}, StopText::kDrop);
    std::string in;
    std::string out;
    for (int i = 0; i < 30; ++i) {
      in += static_cast<char>('a' + random() % 2);
      const StopMatcher::Result result = matcher.Append(in.substr(in.size() - 1));
      out += result.text;
      if (result.stopped) break;
      ASSERT_EQ(in.compare(0, out.size(), out), 0);
      const std::string held = in.substr(out.size());
      EXPECT_EQ(stop.compare(0, held.size(), held), 0) << stop << " of " << in;
    }
  }
}

}  // namespace
}  // namespace tidepool::engine
