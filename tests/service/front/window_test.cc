// How many tokens of a response are generated before its client reads them.
#include <gtest/gtest.h>

#include "service/front/credit_window.h"
#include "service/front/generation.h"
#include "tests/service/front/front_fixture.h"

namespace tidepool::service {
namespace {

using WindowTest = FrontTest;

TEST_F(WindowTest, LongTokensAreMadeNoFurtherAheadThanTheirBytesAllow) {
  PuppetLink* worker = AddWorker("a");
  Client client;
  v1::GenerateRequest request = Text();
  request.set_logprobs(true);
  request.set_top_logprobs(20);
  Begin(&client, request);
  worker->AnswerPrepare({1, 2, 3});
  auto run = worker->runs[0];
  // Before the first token arrives, the expected size of a token is used.
  EXPECT_GT(run->credit, 100);
  EXPECT_LT(run->credit, CreditWindow::kTokens);
  run->Say({10});
  client.Take();
  EXPECT_EQ(run->credit, 1 + CreditWindow::kTokens);

  // Each token has 8 KiB of text. With the rest of a message, 31 tokens are 256 KiB.
  while (run->position < run->credit) run->SayLong(11, 8 << 10);
  const int64_t given = run->credit;
  while (client.writing) client.Take();
  EXPECT_EQ(run->credit, given + 31);
  run->SayLong(12, 8 << 10);
  EXPECT_EQ(run->credit, given + 31);
  client.Take();
  EXPECT_EQ(run->credit, given + 32);

  // One more token is always allowed, even if tokens are long.
  run->SayLong(13, 1 << 20);
  while (run->position < run->credit) run->SayLong(14, 1 << 20);
  while (client.writing) client.Take();
  EXPECT_EQ(run->credit, run->position + 1);
  run->Say({15}, v1::STOP);
  client.Take();
  EXPECT_TRUE(client.status->ok());
}

}  // namespace
}  // namespace tidepool::service
