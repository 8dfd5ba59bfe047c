// How far a response is generated ahead of its client.
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
  // Before the first token, the maximum size of a token counts.
  EXPECT_GT(run->credit, 100);
  EXPECT_LT(run->credit, CreditWindow::kTokens);
  run->Say({10});
  client.Take();
  EXPECT_EQ(run->credit, 1 + CreditWindow::kTokens);

  // 8 KiB of each: 31 of them, with what else is in a message, are 256 KiB.
  while (run->position < run->credit) run->SayLong(11, 8 << 10);
  const int64_t given = run->credit;
  while (client.writing) client.Take();
  EXPECT_EQ(run->credit, given + 31);
  run->SayLong(12, 8 << 10);
  EXPECT_EQ(run->credit, given + 31);
  client.Take();
  EXPECT_EQ(run->credit, given + 32);

  // However long tokens are, one more may always come.
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
