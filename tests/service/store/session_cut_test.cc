#include "service/store/session_cut.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"

namespace tidepool::service {
namespace {

// The first turn has the input [0, 5) and the output [5, 10). The second has the input [10, 14) and
// the output [14, 20).
SessionLogData TwoTurns(SessionKind kind) {
  SessionLogData log;
  log.info = {.session_id = "s", .kind = kind, .token_count = 20, .turn_count = 2};
  log.token_ids.resize(20);
  std::iota(log.token_ids.begin(), log.token_ids.end(), 0);
  log.turns = {{.request_id = "r1",
                .start = 0,
                .output_start = 5,
                .end = 10,
                .response = "abcde",
                .finish = TurnFinish::kStop},
               {.request_id = "r2",
                .start = 10,
                .output_start = 14,
                .end = 20,
                .response = "fghijk",
                .finish = TurnFinish::kLength}};
  return log;
}

SessionLogData Cut(SessionLogData log, int64_t position, std::string response = "") {
  const auto cut = PlanCut(log, position);
  EXPECT_TRUE(cut.ok()) << cut.status();
  CutSession(*cut, std::move(response), &log);
  EXPECT_EQ(log.info.token_count, position);
  EXPECT_EQ(log.token_ids.size(), position);
  EXPECT_EQ(log.info.turn_count, log.turns.size());
  return log;
}

TEST(SessionCutTest, TheWholeLogStays) {
  for (const SessionKind kind : {SessionKind::kTokens, SessionKind::kChat}) {
    EXPECT_EQ(Cut(TwoTurns(kind), 20).turns, TwoTurns(kind).turns);
  }
}

TEST(SessionCutTest, BetweenTurnsTheEarlierOnesStayWhole) {
  const SessionLogData log = Cut(TwoTurns(SessionKind::kChat), 10);
  ASSERT_EQ(log.turns.size(), 1);
  EXPECT_EQ(log.turns[0], TwoTurns(SessionKind::kChat).turns[0]);
  EXPECT_EQ(log.info.kind, SessionKind::kChat);
}

TEST(SessionCutTest, AtZeroTheSessionIsNew) {
  const SessionLogData log = Cut(TwoTurns(SessionKind::kChat), 0);
  EXPECT_TRUE(log.turns.empty());
  EXPECT_EQ(log.info.kind, SessionKind::kNew);
}

TEST(SessionCutTest, AResponseIsCutAsIfCancelled) {
  const SessionLogData whole = TwoTurns(SessionKind::kChat);
  const auto cut = PlanCut(whole, 17);
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_TRUE(cut->last_cut);
  EXPECT_EQ(cut->text_begin, 14);
  const SessionLogData log = Cut(whole, 17, "fgh");
  ASSERT_EQ(log.turns.size(), 2);
  EXPECT_EQ(log.turns[1].end, 17);
  EXPECT_EQ(log.turns[1].output_start, 14);
  EXPECT_EQ(log.turns[1].response, "fgh");
  EXPECT_EQ(log.turns[1].finish, TurnFinish::kCancelled);
  EXPECT_EQ(log.turns[0], whole.turns[0]);
}

TEST(SessionCutTest, TokensAreCutAnywhereAndMessagesAreNot) {
  const SessionLogData log = Cut(TwoTurns(SessionKind::kTokens), 12);
  ASSERT_EQ(log.turns.size(), 2);
  EXPECT_EQ(log.turns[1].output_start, 12);
  EXPECT_EQ(log.turns[1].end, 12);
  EXPECT_EQ(log.turns[1].finish, TurnFinish::kCancelled);
  for (const int64_t position : {11, 14}) {
    const auto refused = PlanCut(TwoTurns(SessionKind::kChat), position);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    for (const char* part : {"inside the messages of turn 1", " 10 ", "15 to 20"}) {
      EXPECT_TRUE(absl::StrContains(refused.status().message(), part)) << refused.status();
    }
  }
}

TEST(SessionCutTest, OutsideTheLogIsRefusedByItsRange) {
  for (const int64_t position : {-1, 21}) {
    const auto refused = PlanCut(TwoTurns(SessionKind::kTokens), position);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(refused.status().message(), "0 to 20")) << refused.status();
  }
}

// The template has left the second turn's response out when it rendered the third turn. So the log
// was truncated at 14.
TEST(SessionCutTest, ATurnThatBranchedIsTakenBackWithoutTheOneItCut) {
  SessionLogData log = TwoTurns(SessionKind::kChat);
  log.turns.push_back({.request_id = "r3",
                       .start = 14,
                       .output_start = 18,
                       .end = 24,
                       .response = "lmnopq",
                       .finish = TurnFinish::kStop});
  log.info.token_count = 24;
  log.info.turn_count = 3;
  log.token_ids.resize(24);
  const SessionLogData before = Cut(log, 14);
  ASSERT_EQ(before.turns.size(), 2);
  EXPECT_EQ(before.turns[1], log.turns[1]);
  // A second cut at the same position changes nothing.
  EXPECT_EQ(Cut(before, 14).turns, before.turns);
  EXPECT_EQ(Cut(before, 10).turns.size(), 1);
  // Position 16 was in the second turn's response. Now it is in the third turn's message.
  EXPECT_FALSE(PlanCut(log, 16).ok());
}

TEST(SessionCutTest, ARunningTurnEndsAtItsCurrentPosition) {
  SessionLogData log = TwoTurns(SessionKind::kChat);
  log.turns[1].finish = TurnFinish::kRunning;
  const SessionLogData cut = Cut(log, 20, "fghijk");
  EXPECT_EQ(cut.turns[1].finish, TurnFinish::kCancelled);
  EXPECT_EQ(cut.turns[1].end, 20);
  EXPECT_EQ(cut.turns[1].response, "fghijk");
}

TEST(SessionCutTest, AResponseIsCutToTheTextOfItsTokens) {
  EXPECT_EQ(CutResponse("Hello there", "Hello"), "Hello");
  // the space is lost because the tokens were decoded alone
  EXPECT_EQ(CutResponse(" Hello there", "Hello"), " Hello");
  EXPECT_EQ(CutResponse("\n Hello", "\n Hello"), "\n Hello");
  EXPECT_EQ(CutResponse("gr\xC3\xBCn", "gr\xEF\xBF\xBD"), "gr");  // half of a character
  EXPECT_EQ(CutResponse("yes", "yes STOP"),
            "yes");  // the stop string was removed from the response
  EXPECT_EQ(CutResponse("abc", ""), "");
  EXPECT_EQ(CutResponse(" Hello", ""), "");  // a control token has no text and no space
  EXPECT_EQ(CutResponse(" Hello", " "), " ");
  EXPECT_EQ(CutResponse("\n\n Hello", "\n"), "\n");
  EXPECT_EQ(CutResponse(" \xC3\xBC", " \xEF\xBF\xBD"), " ");
  EXPECT_EQ(CutResponse("abc", "xyz"), "xyz");
}

}  // namespace
}  // namespace tidepool::service
