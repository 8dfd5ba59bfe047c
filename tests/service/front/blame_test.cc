// Whether a prompt or its worker's link is to blame when workers seem to crash.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/service/front/front_fixture.h"

namespace tidepool::service {
namespace {

class BlameTest : public FrontTest {
 protected:
  BlameTest() {
    uint64_t process_id = 0;
    for (const char* name : {"a", "b", "c"}) {
      workers_.push_back(AddWorker(name));
      workers_.back()->process_id = ++process_id;
      workers_.back()->SayState();
    }
  }

  // The worker where the request runs now; null: it runs nowhere.
  PuppetLink* Running() const {
    for (PuppetLink* worker : workers_) {
      if (!worker->runs.empty() && !worker->runs.back()->gone) return worker;
    }
    return nullptr;
  }

  void BeginRun(Client* client) {
    Begin(client, Text());
    for (PuppetLink* worker : workers_) {
      if (!worker->prepares.empty()) worker->AnswerPrepare({1});
    }
    ASSERT_NE(Running(), nullptr);
  }

  // All streams to the worker break, as they do when it dies or its link is cut.
  PuppetLink* Break() {
    PuppetLink* worker = Running();
    EXPECT_NE(worker, nullptr);
    if (worker == nullptr) return workers_[0];
    worker->runs.back()->events.on_end(absl::UnavailableError("reset"), EndedBy::kCrash);
    worker->lose(absl::UnavailableError("reset"));
    return worker;
  }

  // Long enough for the next attempt to begin.
  void Wait() { loop_.Advance(absl::Milliseconds(500)); }

  static constexpr absl::string_view kPoisoned =
      "2 workers crashed while they computed this prompt, which is refused for 10m; the last: reset";

  std::vector<PuppetLink*> workers_;
};

TEST_F(BlameTest, APoisonedPromptLeavesTheThirdWorkerAlone) {
  const std::vector<PuppetLink*>& workers = workers_;
  for (PuppetLink* worker : workers) worker->process_id = 0, worker->SayState();
  const auto preparing = [&] {
    for (PuppetLink* worker : workers) {
      if (!worker->prepares.empty()) return worker;
    }
    return workers[0];
  };
  Client client;
  Begin(&client, Text());
  preparing()->AnswerPrepare({1});
  int crashes = 0;
  for (int round = 0; round < 4; ++round) {
    for (PuppetLink* worker : workers) {
      if (worker->runs.empty() || worker->runs.back()->gone) continue;
      ++crashes;
      worker->runs.back()->events.on_end(absl::UnavailableError("reset"), EndedBy::kCrash);
      break;
    }
    loop_.Advance(absl::Milliseconds(500));
  }
  EXPECT_EQ(crashes, 2);
  ASSERT_TRUE(client.status.has_value());
  EXPECT_EQ(*client.status, absl::InternalError(kPoisoned));
  // Nobody computes it for the next ten minutes, whoever asks; others are served.
  const size_t prepared = preparing()->prepares.size();
  Client again, other;
  v1::GenerateRequest sampled = Text();
  sampled.mutable_sampling()->set_temperature(1);
  Begin(&again, sampled);
  ASSERT_TRUE(again.status.has_value());
  EXPECT_EQ(again.status->code(), absl::StatusCode::kInternal);
  v1::GenerateRequest sound;
  sound.set_text("sound");
  Begin(&other, sound);
  EXPECT_FALSE(other.status.has_value());
  size_t prepares = 0;
  for (PuppetLink* worker : workers) prepares += worker->prepares.size();
  EXPECT_EQ(prepares, prepared + 1);
  other.generation->Cancel(absl::CancelledError("end of the test"));
  for (PuppetLink* worker : workers) worker->SayState();
  loop_.Advance(absl::Minutes(10));
  Client later;
  Begin(&later, Text());
  EXPECT_FALSE(later.status.has_value());
  later.generation->Cancel(absl::CancelledError("end of the test"));
}

TEST_F(BlameTest, TheMiddleOfAnAnswerCanBePoisonedToo) {
  for (const std::vector<int32_t>& lost : {std::vector<int32_t>(), std::vector<int32_t>{1, 2, 3}}) {
    for (PuppetLink* worker : workers_) worker->SayState();
    Client client;
    v1::GenerateRequest request;
    request.set_text(lost.empty() ? "one" : "other");
    Begin(&client, request);
    for (PuppetLink* worker : workers_) {
      if (!worker->prepares.empty()) worker->AnswerPrepare({1}), worker->prepares.clear();
    }
    ASSERT_NE(Running(), nullptr);
    Running()->runs.back()->Say(std::vector<int32_t>(20, 7));
    client.Take();
    Break();
    Wait();
    ASSERT_NE(Running(), nullptr);
    // What the first one made of these was lost with it.
    if (!lost.empty()) Running()->runs.back()->Say(lost), client.Take();
    Break();
    loop_.Advance(absl::Seconds(3));
    EXPECT_EQ(Running(), nullptr) << "the third is left alone";
    ASSERT_TRUE(client.status.has_value());
    EXPECT_EQ(*client.status, absl::InternalError(kPoisoned));
    Client again;
    Begin(&again, request);
    ASSERT_TRUE(again.status.has_value());
    EXPECT_EQ(again.status->code(), absl::StatusCode::kInternal);
    for (PuppetLink* worker : workers_) ++worker->process_id;
  }
}

TEST_F(BlameTest, AnAnswerThatCrashesAWorkerNowAndThenEnds) {
  Client client;
  BeginRun(&client);
  size_t crashes = 0;
  while (!client.status.has_value()) {
    ASSERT_LT(crashes, AttemptRecord::kMostCrashes);
    ASSERT_NE(Running(), nullptr);
    Running()->runs.back()->Say(std::vector<int32_t>(9, 7));
    client.Take();
    PuppetLink* crashed = Break();
    ++crashes;
    Wait();
    ++crashed->process_id;
    crashed->SayState();
    loop_.Advance(absl::Seconds(2));
    for (PuppetLink* worker : workers_) worker->SayState();
    loop_.RunAll();
  }
  EXPECT_EQ(crashes, AttemptRecord::kMostCrashes);
  EXPECT_EQ(*client.status,
            absl::InternalError("8 workers crashed while they computed this prompt, which is "
                                "refused for 10m; the last: reset"));
}

// Whoever ran beside it goes on, and meets it nowhere before it is known.
TEST_F(BlameTest, OneCrashMoreIsHeldAgainstOneStreamAlone) {
  constexpr size_t kStreams = 4;
  PuppetLink* first = workers_[0];
  for (size_t i : {1, 2}) workers_[i]->lose(absl::UnavailableError("reset"));
  std::vector<Client> clients(kStreams);
  for (size_t i = 0; i < kStreams; ++i) {
    v1::GenerateRequest request;
    request.set_text(std::string(i + 1, 'x'));
    Begin(&clients[i], request);
    first->AnswerPrepare({1, static_cast<int32_t>(i)});
    first->runs.back()->Say(std::vector<int32_t>(20 + i, 7));
    clients[i].Take();
  }
  for (size_t i : {1, 2}) workers_[i]->SayState();
  first->lose(absl::UnavailableError("reset"));
  for (const auto& run : first->runs) {
    run->events.on_end(absl::UnavailableError("reset"), EndedBy::kCrash);
  }
  Wait();
  for (size_t i : {1, 2}) ASSERT_EQ(workers_[i]->runs.size(), 1) << i;
  PuppetLink* second = workers_[1];
  // One of the two kills again. The other gets past its place, and the next one follows.
  ++second->process_id;
  second->lose(absl::UnavailableError("reset"));
  second->runs[0]->events.on_end(absl::UnavailableError("reset"), EndedBy::kCrash);
  PuppetLink* third = workers_[2];
  third->SayState();
  loop_.Advance(absl::Seconds(2));
  for (size_t sound = 1; sound < kStreams; ++sound) {
    ASSERT_EQ(third->runs.size(), sound);
    third->runs.back()->Say(std::vector<int32_t>(7, 8));
    third->SayState();
    Wait();
    EXPECT_EQ(third->runs.size(), sound) << "it may crash yet";
    third->runs.back()->Say({8});
    third->SayState();
    Wait();
  }
  size_t ended = 0;
  for (Client& client : clients) {
    if (client.status.has_value()) {
      ++ended;
      EXPECT_EQ(client.status->code(), absl::StatusCode::kInternal);
    } else {
      client.generation->Cancel(absl::CancelledError("end of the test"));
    }
  }
  EXPECT_EQ(ended, 1);
}

// A cut link ends a run as a crash does; but then the same process answers again.
TEST_F(BlameTest, WhoAnswersAgainHasNotCrashed) {
  Client client;
  BeginRun(&client);
  PuppetLink* cut = Break();
  Wait();
  cut->SayState();
  Break();
  Wait();
  EXPECT_FALSE(client.status.has_value()) << *client.status;
  ASSERT_NE(Running(), nullptr);
  Running()->runs.back()->Say({7}, v1::LENGTH);
  client.Take();
  EXPECT_TRUE(client.status->ok());
}

TEST_F(BlameTest, TheSecondOneHasAMomentToAnswerAgain) {
  Client client;
  BeginRun(&client);
  Break();
  Wait();
  PuppetLink* second = Break();
  Wait();
  ASSERT_FALSE(client.status.has_value()) << *client.status;
  EXPECT_EQ(Running(), nullptr) << "the third is spared until it is known";
  second->SayState();
  Wait();
  EXPECT_FALSE(client.status.has_value()) << *client.status;
  ASSERT_NE(Running(), nullptr);
  // It goes on, and nothing begins it again when the time for a sign of life is over.
  PuppetLink* running = Running();
  const size_t runs = running->runs.size();
  loop_.Advance(absl::Seconds(3));
  EXPECT_EQ(Running(), running);
  EXPECT_EQ(running->runs.size(), runs);
  // Cuts are failures all the same, of which there are three.
  PuppetLink* third = Break();
  third->SayState();
  Wait();
  ASSERT_TRUE(client.status.has_value());
  EXPECT_EQ(*client.status,
            absl::InternalError("3 attempts at this request failed; the last: reset"));
  Client again;
  Begin(&again, Text());
  EXPECT_FALSE(again.status.has_value()) << "the prompt is not refused";
  again.generation->Cancel(absl::CancelledError("end of the test"));
}

// As behind a proxy that ends streams which say nothing for long, and no others.
TEST_F(BlameTest, WhoSaysItsStateOnHasNotCrashed) {
  Client client;
  BeginRun(&client);
  for (int broken = 0; broken < 2; ++broken) {
    PuppetLink* worker = Running();
    ASSERT_NE(worker, nullptr);
    worker->runs.back()->events.on_end(absl::UnavailableError("reset"), EndedBy::kCrash);
    for (int i = 0; i < 10; ++i) {
      loop_.Advance(absl::Milliseconds(250));
      for (PuppetLink* other : workers_) other->SayState();
    }
  }
  EXPECT_FALSE(client.status.has_value()) << *client.status;
  ASSERT_NE(Running(), nullptr);
  Running()->runs.back()->Say({7}, v1::LENGTH);
  client.Take();
  EXPECT_TRUE(client.status->ok());
}

TEST_F(BlameTest, ProcessesThatWereReplacedHaveCrashed) {
  Client client;
  BeginRun(&client);
  PuppetLink* first = Break();
  Wait();
  PuppetLink* second = Break();
  for (PuppetLink* worker : {first, second}) {
    worker->process_id += 100;
    worker->SayState();
  }
  loop_.RunAll();
  ASSERT_TRUE(client.status.has_value());
  EXPECT_EQ(*client.status, absl::InternalError(kPoisoned));
}

TEST_F(BlameTest, WhoIsNotHeardOfAgainHasCrashed) {
  Client client;
  BeginRun(&client);
  Break();
  Wait();
  Break();
  loop_.Advance(absl::Milliseconds(1900));
  EXPECT_FALSE(client.status.has_value());
  loop_.Advance(absl::Milliseconds(200));
  ASSERT_TRUE(client.status.has_value());
  EXPECT_EQ(*client.status, absl::InternalError(kPoisoned));
}

// What a dead process has sent before can come after the end of its run.
TEST_F(BlameTest, AStateOfTheStreamThatBreaksIsNoSignOfLife) {
  Client client;
  BeginRun(&client);
  for (int crash = 0; crash < 2; ++crash) {
    PuppetLink* worker = Running();
    ASSERT_NE(worker, nullptr);
    worker->runs.back()->events.on_end(absl::UnavailableError("reset"), EndedBy::kCrash);
    worker->SayState();
    worker->lose(absl::UnavailableError("reset"));
    Wait();
  }
  loop_.Advance(absl::Seconds(2));
  ASSERT_TRUE(client.status.has_value());
  EXPECT_EQ(*client.status, absl::InternalError(kPoisoned));
}

}  // namespace
}  // namespace tidepool::service
