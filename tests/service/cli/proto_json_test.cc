#include "service/cli/proto_json.h"

#include "gtest/gtest.h"
#include "tidepool/v1/admin.pb.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {
namespace {

TEST(ProtoJsonTest, NumbersAreNumbersAndEveryKeyIsThere) {
  v1::GetStatsResponse response;
  v1::WorkerStats* worker = response.add_workers();
  worker->set_worker_id("w\"1");
  worker->set_generated_tokens_total(int64_t{1} << 60);
  worker->set_progress(~uint64_t{0});
  worker->set_uptime_seconds(0.5);
  const Json json = ToJson(response);
  EXPECT_TRUE(json["front"].is_null());
  const Json& first = json["workers"][0];
  EXPECT_EQ(first["worker_id"], "w\"1");
  EXPECT_EQ(first["generated_tokens_total"].get<int64_t>(), int64_t{1} << 60);
  EXPECT_EQ(first["progress"].get<uint64_t>(), ~uint64_t{0});
  EXPECT_EQ(first["uptime_seconds"].get<double>(), 0.5);
  EXPECT_EQ(first["preemptions_total"].get<int64_t>(), 0);
  EXPECT_EQ(first.size(), static_cast<size_t>(v1::WorkerStats::descriptor()->field_count()));
}

TEST(ProtoJsonTest, EnumeratorsAreNamesAndListsAreLists) {
  v1::GenerateResponse response;
  response.add_token_ids(3);
  response.add_token_ids(-1);
  response.set_finish_reason(v1::STOP_STRING);
  response.add_logprobs()->set_logprob(-0.25f);
  const Json json = ToJson(response);
  EXPECT_EQ(json["token_ids"], Json({3, -1}));
  EXPECT_EQ(json["finish_reason"], "STOP_STRING");
  EXPECT_EQ(json["logprobs"][0]["logprob"].get<float>(), -0.25f);
  EXPECT_EQ(json["logprobs"][0]["top"], Json::array());
}

}  // namespace
}  // namespace tidepool::service
