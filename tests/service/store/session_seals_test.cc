#include "service/store/session_seals.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "absl/strings/match.h"

namespace tidepool::service {
namespace {

SessionRow Sealed() {
  SessionRow row = {.key = 4, .lease_request = "request", .lease_body = "body"};
  row.info.session_id = "s";
  row.info.principal = "ann";
  row.info.model = "model";
  row.info.model_digest = "digest";
  row.info.create_time = absl::FromUnixSeconds(1);
  row.info.update_time = absl::FromUnixSeconds(2);
  row.seal = SealOf(row);
  return row;
}

TEST(SessionSealsTest, TheSealCoversEveryStoredColumnExceptTheEndOfTheLease) {
  const std::vector<std::function<void(SessionRow*)>> changes = {
      [](SessionRow* row) { row->key = 5; },
      [](SessionRow* row) { row->lease_request = "another"; },
      [](SessionRow* row) { row->lease_body = "another"; },
      [](SessionRow* row) { row->info.session_id = "t"; },
      [](SessionRow* row) { row->info.principal = "ben"; },
      [](SessionRow* row) { row->info.model = "another"; },
      [](SessionRow* row) { row->info.model_digest = "another"; },
      [](SessionRow* row) { row->info.kind = SessionKind::kChat; },
      [](SessionRow* row) { row->info.create_time += absl::Microseconds(1); },
      [](SessionRow* row) { row->info.update_time += absl::Microseconds(1); },
      [](SessionRow* row) { row->info.token_count = 1; },
      [](SessionRow* row) { row->info.turn_count = 1; },
      [](SessionRow* row) { row->info.epoch = 1; },
      [](SessionRow* row) { row->log_hash.low = 1; },
      [](SessionRow* row) { row->turns_hash.low = 1; },
      [](SessionRow* row) { row->seal.low ^= 1; },
      [](SessionRow* row) { row->classes_fit = false; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    SessionRow row = Sealed();
    EXPECT_TRUE(CheckSeal(row).ok());
    changes[i](&row);
    const absl::Status damaged = CheckSeal(row);
    EXPECT_TRUE(absl::IsDataLoss(damaged)) << "change " << i;
    EXPECT_TRUE(absl::StrContains(damaged.message(), "is damaged in the session store"));
  }
  SessionRow leased = Sealed();
  leased.lease_until_us = 1;
  leased.info.busy = true;
  EXPECT_TRUE(CheckSeal(leased).ok());
}

TEST(SessionSealsTest, ChainsDependOnTheSessionTheRowAndAllRowsBefore) {
  EXPECT_NE(ChunksStart("a"), ChunksStart("b"));
  EXPECT_NE(ChunksStart("a"), TurnsStart("a"));
  const Hash128 start = ChunksStart("a");
  const ChunkRow chunk = {.start = 0, .tokens = "1234", .text = "t"};
  EXPECT_EQ(HashOf(start, chunk), HashOf(start, chunk));
  EXPECT_NE(HashOf(start, chunk), HashOf(ChunksStart("b"), chunk));
  EXPECT_NE(HashOf(start, chunk), HashOf(start, {.start = 1, .tokens = "1234", .text = "t"}));
  // Each value is hashed with its length. So text cannot move from one column to the next without
  // changing the hash.
  EXPECT_NE(HashOf(start, chunk), HashOf(start, {.start = 0, .tokens = "1234t", .text = ""}));
  const TurnRow turn = {.turn = {.request_id = "r"}, .messages = "[]"};
  EXPECT_NE(HashOf(start, 0, turn), HashOf(start, 1, turn));
  TurnRow answered = turn;
  answered.turn.response = "a";
  EXPECT_NE(HashOf(start, 0, turn), HashOf(start, 0, answered));
}

}  // namespace
}  // namespace tidepool::service
