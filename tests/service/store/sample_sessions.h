// Sample sessions of all kinds, for tests that damage a store, and the possible outcomes of the
// damage.
#ifndef TIDEPOOL_TESTS_SERVICE_STORE_SAMPLE_SESSIONS_H_
#define TIDEPOOL_TESTS_SERVICE_STORE_SAMPLE_SESSIONS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "service/store/session_json.h"
#include "tests/service/store/store_calls.h"

namespace tidepool::service {

inline constexpr int kSamples = 12;

// Returns the session as a client sees it. The epoch of the lease is not included.
inline std::string Told(const SessionLogData& log) { return SessionToJson(log); }

inline std::string SampleId(int i) { return absl::StrCat("session-", i); }
inline std::string SampleOwner(int i) { return i % 3 == 0 ? "ann" : "ben"; }

inline void Converse(SessionStore* store, int i, int turn) {
  Answer<OpenTurn> begun;
  const std::string request = absl::StrCat("request-", turn);
  store->BeginTurn({.session_id = SampleId(i), .principal = SampleOwner(i), .request_id = request},
                   begun.Taker());
  const auto open = begun.Get();
  ASSERT_TRUE(open.ok()) << open.status();
  const int64_t length = open->log.info.token_count;
  std::vector<int32_t> input(120 + i);
  for (size_t t = 0; t < input.size(); ++t) input[t] = static_cast<int32_t>(t * 7 + i + turn);
  const bool chat = i % 2 == 0;
  AppendRequest append = {
      .session_id = SampleId(i),
      .epoch = open->epoch,
      .expected_length = length,
      .begin = TurnStart{.request_id = request,
                         .kind = chat ? SessionKind::kChat : SessionKind::kTokens,
                         .kept = turn == 2 ? length - 5 : length,
                         .input_ids = input,
                         .messages = {},
                         .body_digest = absl::StrCat("digest-", turn)},
      .output_ids = {turn, i},
      .output_text = "first words",
      .numerics_id = "avx2"};
  if (chat) append.begin->messages = {{.role = "user", .content = "What is a tide pool?"}};
  ASSERT_TRUE(Append(*store, append).ok());
  int64_t logged = append.begin->kept + static_cast<int64_t>(input.size()) + 2;
  for (int step = 0; step < 6; ++step) {
    const bool last = step == 5;
    ASSERT_TRUE(Append(*store, {.session_id = SampleId(i),
                                .epoch = open->epoch,
                                .expected_length = logged,
                                .output_ids = last ? std::vector<int32_t>{}
                                                   : std::vector<int32_t>{step, turn, 500 + i},
                                .output_text = " and more",
                                .finish = last ? TurnFinish::kStop : TurnFinish::kRunning})
                    .ok());
    if (!last) logged += 3;
  }
}

// Fills the store with turns of all kinds, logs that were cut, and branches that were inserted.
inline void FillStore(SessionStore* store, int turns) {
  for (int i = 0; i < kSamples; ++i) {
    if (i % 4 == 3) {
      SessionLogData copy = *Get(*store, SampleId(i - 1), std::nullopt);
      copy.info.session_id = SampleId(i);
      copy.info.principal = SampleOwner(i);
      ASSERT_TRUE(Insert(*store, copy).ok());
      continue;
    }
    ASSERT_TRUE(Create(*store, SampleId(i), SampleOwner(i)).ok());
    for (int turn = 0; turn < turns; ++turn) Converse(store, i, turn);
  }
}

enum class Outcome : uint8_t { kNoEffect, kNoticed, kSilent };

// Prints a line with the number of each outcome.
inline void Report(const char* what, const std::map<Outcome, int>& outcomes) {
  const auto count = [&](Outcome outcome) {
    const auto found = outcomes.find(outcome);
    return found == outcomes.end() ? 0 : found->second;
  };
  std::cout << what << ": " << count(Outcome::kNoEffect) << " without effect, "
            << count(Outcome::kNoticed) << " noticed, " << count(Outcome::kSilent) << " silent\n";
  EXPECT_EQ(count(Outcome::kSilent), 0);
  EXPECT_GT(count(Outcome::kNoticed), 0);
}

}  // namespace tidepool::service

#endif  // TIDEPOOL_TESTS_SERVICE_STORE_SAMPLE_SESSIONS_H_
