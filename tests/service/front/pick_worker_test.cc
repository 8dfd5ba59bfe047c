#include "service/front/pick_worker.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tidepool::service {
namespace {

WorkerView Worker(const std::string& name) {
  return {.name = name,
          .health = WorkerHealth::kServing,
          .model = "m",
          .model_digest = "d",
          .numerics_id = "n",
          .prefill_tokens_per_second = 100};
}

PickRequest Request() { return {.model_digest = "d", .prompt_tokens = 320}; }

TEST(PickWorkerTest, NoneCanTakeIt) {
  EXPECT_EQ(PickWorker({}, Request()), std::nullopt);
  std::vector<WorkerView> workers = {Worker("a"), Worker("b"), Worker("c")};
  workers[0].health = WorkerHealth::kDown;
  workers[1].health = WorkerHealth::kDraining;
  workers[2].model_digest = "other";
  EXPECT_EQ(PickWorker(workers, Request()), std::nullopt);
}

// Workers of earlier releases do not report the content digest.
TEST(PickWorkerTest, ContentDigestsDecideWhereBothAreKnown) {
  std::vector<WorkerView> workers = {Worker("a"), Worker("b")};
  workers[0].model_digest = "d:1";
  workers[1].model_digest = "d:2";
  PickRequest request = Request();
  EXPECT_EQ(PickWorker(workers, request), 0);
  request.model_digest = "d:2";
  EXPECT_EQ(PickWorker(workers, request), 1);
  request.model_digest = "d:3";
  EXPECT_EQ(PickWorker(workers, request), std::nullopt);
  workers[1].model_digest = "d";
  EXPECT_EQ(PickWorker(workers, request), 1);
  request.model_digest = "e:2";
  EXPECT_EQ(PickWorker(workers, request), std::nullopt);
}

TEST(PickWorkerTest, TheLeastWorkWins) {
  std::vector<WorkerView> workers = {Worker("a"), Worker("b"), Worker("c")};
  workers[0].queued_prompt_tokens = 1000;
  workers[1].queued_prompt_tokens = 200;
  workers[2].queued_prompt_tokens = 500;
  EXPECT_EQ(PickWorker(workers, Request()), 1);
  // A worker that is four times as fast may have more work.
  workers[0].prefill_tokens_per_second = 400;
  EXPECT_EQ(PickWorker(workers, Request()), 0);
}

TEST(PickWorkerTest, CachedTokensCountAsDone) {
  std::vector<WorkerView> workers = {Worker("a"), Worker("b")};
  PickRequest request = Request();
  request.block_hashes = {11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
  workers[1].prefixes =
      std::make_shared<const std::unordered_set<uint64_t>>(std::unordered_set<uint64_t>{15, 99});
  EXPECT_EQ(CachedTokens(workers[0], request), 0);
  EXPECT_EQ(CachedTokens(workers[1], request), 160);
  EXPECT_EQ(PickWorker(workers, request), 1);
  // The worker is preferred until its queue costs more time than its cache saves.
  workers[1].queued_prompt_tokens = 200;
  EXPECT_EQ(PickWorker(workers, request), 0);
}

TEST(PickWorkerTest, SuspectAndAvoidedComeLast) {
  std::vector<WorkerView> workers = {Worker("a"), Worker("b")};
  workers[0].health = WorkerHealth::kSuspect;
  workers[1].queued_prompt_tokens = 100'000;
  EXPECT_EQ(PickWorker(workers, Request()), 1);
  workers[1].health = WorkerHealth::kDown;
  EXPECT_EQ(PickWorker(workers, Request()), 0);

  workers = {Worker("a"), Worker("b")};
  workers[1].queued_prompt_tokens = 100'000;
  PickRequest avoiding = Request();
  avoiding.avoid = {"a"};
  EXPECT_EQ(PickWorker(workers, avoiding), 1);
  avoiding.avoid = {"a", "b"};
  EXPECT_EQ(PickWorker(workers, avoiding), 0);
}

TEST(PickWorkerTest, EqualNumericsArePreferred) {
  std::vector<WorkerView> workers = {Worker("a"), Worker("b")};
  workers[0].numerics_id = "other";
  workers[1].queued_prompt_tokens = 5000;
  PickRequest request = Request();
  EXPECT_EQ(PickWorker(workers, request), 0);
  request.preferred_numerics_id = "n";
  EXPECT_EQ(PickWorker(workers, request), 1);
}

TEST(PickWorkerTest, PrefersAWorkerWhereThisOneFailedToOneWithASuspect) {
  const std::vector<WorkerView> workers = {Worker("a"), Worker("b"), Worker("c")};
  PickRequest request = Request();
  request.spare = {"a", "b"};
  EXPECT_EQ(PickWorker(workers, request), 2);
  request.avoid = {"c"};
  EXPECT_EQ(PickWorker(workers, request), 2);
  request.avoid = {"b", "c"};
  request.spare = {"a", "b", "c"};
  EXPECT_EQ(PickWorker(workers, request), 0);
}

TEST(PickWorkerTest, AffinityBreaksTies) {
  const std::vector<WorkerView> workers = {Worker("a"), Worker("b"), Worker("c"), Worker("d")};
  std::map<std::string, int> counts;
  for (int i = 0; i < 400; ++i) {
    PickRequest request = Request();
    request.affinity = absl::StrCat("session-", i);
    const auto picked = PickWorker(workers, request);
    ASSERT_TRUE(picked.has_value());
    EXPECT_EQ(PickWorker(workers, request), picked);
    ++counts[workers[*picked].name];
  }
  for (const auto& [name, count] : counts) EXPECT_GT(count, 50) << name;

  // If a worker leaves, only the sessions on it move to another worker.
  const std::vector<WorkerView> fewer = {workers[0], workers[1], workers[2]};
  for (int i = 0; i < 400; ++i) {
    PickRequest request = Request();
    request.affinity = absl::StrCat("session-", i);
    const size_t before = *PickWorker(workers, request);
    if (before < 3) {
      EXPECT_EQ(PickWorker(fewer, request), before);
    }
  }
}

TEST(PickWorkerTest, TheTokensOfASessionCountAsCached) {
  std::vector<WorkerView> workers = {Worker("a"), Worker("b")};
  PickRequest request = {.model_digest = "d", .prompt_tokens = 320, .affinity = "s"};
  const size_t other = 1 - *PickWorker(workers, request);
  workers[other].session_tokens = 300;
  EXPECT_EQ(CachedTokens(workers[other], request), 288);  // only whole blocks count
  EXPECT_EQ(PickWorker(workers, request), other);
  // The result is never more than the number of the prompt's tokens.
  workers[other].session_tokens = 4000;
  EXPECT_EQ(CachedTokens(workers[other], request), 320);
}

TEST(PickWorkerTest, AWorkerThatNeverRanCountsAsTheOthersDo) {
  std::vector<WorkerView> workers = {Worker("a"), Worker("b")};
  PickRequest request = {.model_digest = "d", .prompt_tokens = 320, .affinity = "s"};
  const size_t home = *PickWorker(workers, request);
  workers[1 - home].prefill_tokens_per_second = 0;
  EXPECT_EQ(PickWorker(workers, request), home);
  workers[home].queued_prompt_tokens = 320;
  EXPECT_EQ(PickWorker(workers, request), 1 - home);
}

TEST(PickWorkerTest, NoiseBreaksNoAffinity) {
  std::vector<WorkerView> workers = {Worker("a"), Worker("b")};
  PickRequest request = {.model_digest = "d", .prompt_tokens = 40, .affinity = "s"};
  const size_t home = *PickWorker(workers, request);
  workers[home].prefill_tokens_per_second = 8000;  // takes 5 ms
  workers[1 - home].prefill_tokens_per_second = 40'000;
  EXPECT_EQ(PickWorker(workers, request), home);
  request.prompt_tokens = 4000;  // takes half a second
  EXPECT_EQ(PickWorker(workers, request), 1 - home);
}

TEST(PickWorkerTest, AffinityYieldsToLoad) {
  std::vector<WorkerView> workers = {Worker("a"), Worker("b"), Worker("c")};
  PickRequest request = {.model_digest = "d", .prompt_tokens = 100'000, .affinity = "s"};
  const size_t home = *PickWorker(workers, request);
  // The worker's time is within 20 %, but it has many more sequences than the others.
  workers[home].sequences = 40;
  workers[(home + 1) % 3].sequences = 10;
  workers[(home + 2) % 3].sequences = 10;
  EXPECT_NE(PickWorker(workers, request), home);
  workers[home].sequences = 12;
  EXPECT_EQ(PickWorker(workers, request), home);
  // A worker that is more than 20 % slower is not preferred.
  workers[home].queued_prompt_tokens = 30'000;
  EXPECT_NE(PickWorker(workers, request), home);
}

}  // namespace
}  // namespace tidepool::service
