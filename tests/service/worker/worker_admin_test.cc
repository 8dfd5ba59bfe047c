// WorkerAdmin with real experts in a pack file.
#include "service/worker/worker_admin.h"

#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/loading/model_bundle.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "tools/synthetic/checkpoint.h"
#include "tools/synthetic/shape.h"

namespace tidepool::service {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Makes a call and waits for its result.
template <typename Response, typename Request>
absl::StatusOr<Response> Ask(WorkerAdmin* admin,
                             void (WorkerAdmin::*call)(const Request&, WorkerAdmin::Done<Response>),
                             const Request& request) {
  auto promise = std::make_shared<std::promise<absl::StatusOr<Response>>>();
  (admin->*call)(request, [promise](absl::StatusOr<Response> result) {
    promise->set_value(std::move(result));
  });
  return promise->get_future().get();
}

class WorkerAdminTest : public testing::Test {
 protected:
  WorkerAdminTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    const std::string path = folder_ + "/model.gguf";
    CHECK_OK(tools::WriteSynthetic(*tools::FindShape("tiny-moe"), path, {.seed = 3}).status());
    engine::LoadOptions load = {.threads = 1};
    load.experts.memory = {.kind = engine::ExpertMemoryKind::kShare, .share = 0.5};
    auto bundle = engine::LoadModel(path, load);
    CHECK_OK(bundle.status());
    bundle_ = *std::move(bundle);
    auto engine = engine::Engine::Create(
        bundle_->model.get(), bundle_->tokenizer.get(), &base::Clock::Real(),
        {.context_length = 64, .kv_memory_bytes = 4 << 20, .cache_seed = "t"});
    CHECK_OK(engine.status());
    engine_ = *std::move(engine);
    admin_ = std::make_unique<WorkerAdmin>(
        "w1", engine_.get(),
        WorkerAdmin::Process{.available_memory = [this] { return available_; },
                             .drain = [this] { ++drains_; }});
  }
  ~WorkerAdminTest() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<v1::SetOffloadResponse> Set(const v1::SetOffloadRequest& request) {
    return Ask(admin_.get(), &WorkerAdmin::SetOffload, request);
  }

  const std::string folder_ = testing::TempDir() + "/worker_admin_test";
  std::optional<int64_t> available_;
  int drains_ = 0;
  std::unique_ptr<engine::ModelBundle> bundle_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<WorkerAdmin> admin_;
};

TEST_F(WorkerAdminTest, SetsTheGivenFieldsAndReportsAll) {
  v1::SetOffloadRequest request;
  auto answer = Set(request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  ASSERT_EQ(answer->workers_size(), 1);
  EXPECT_EQ(answer->workers(0).worker_id(), "w1");
  const v1::OffloadSettings before = answer->workers(0).settings();
  EXPECT_EQ(before.policy(), "adaptive");
  EXPECT_EQ(before.experts(), 48);
  EXPECT_EQ(before.slots(), 24 - 8);
  EXPECT_EQ(before.staging_records(), 8);
  EXPECT_EQ(before.expert_memory_bytes(), 24 * before.record_bytes());
  EXPECT_TRUE(before.prefetch());

  request.set_worker_id("w1");
  request.set_policy("tide");
  request.set_refresh_interval(4);
  request.set_prefetch(false);
  answer = Set(request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  v1::OffloadSettings after = answer->workers(0).settings();
  EXPECT_EQ(after.policy(), "tide");
  EXPECT_EQ(after.refresh_interval(), 4);
  EXPECT_FALSE(after.prefetch());
  EXPECT_EQ(after.slots(), before.slots());

  v1::SetOffloadRequest memory;
  memory.set_expert_memory_bytes(30 * before.record_bytes());
  after = Set(memory)->workers(0).settings();
  EXPECT_EQ(after.slots(), 22);
  EXPECT_EQ(after.policy(), "tide");
  memory.Clear();
  memory.set_expert_memory_share(0.4);
  EXPECT_EQ(Set(memory)->workers(0).settings().slots(), 19 - 8);
}

TEST_F(WorkerAdminTest, ErrorsNameTheWorker) {
  const auto refused = [&](const v1::SetOffloadRequest& request) {
    const absl::Status status = Set(request).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("worker 'w1': "));
    return status;
  };
  v1::SetOffloadRequest request;
  request.set_policy("fifo");
  absl::Status status = refused(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("policy: "), HasSubstr("\"fifo\""), HasSubstr("adaptive, tide")));
  request.Clear();
  request.set_expert_memory_bytes(4096);
  status = refused(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("expert_memory_bytes is 4096; accepted: "));
  available_ = 5000;
  request.set_expert_memory_bytes(int64_t{1} << 40);
  status = refused(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  request.Clear();
  request.set_refresh_interval(-1);
  EXPECT_EQ(refused(request).code(), absl::StatusCode::kInvalidArgument);
  request.Clear();
  request.set_policy("static");
  EXPECT_EQ(refused(request).code(), absl::StatusCode::kFailedPrecondition);
}

// The machine counts memory that is reserved for KV as free until it is used.
TEST_F(WorkerAdminTest, GrowthLeavesTheKvTheRestOfItsBudget) {
  v1::SetOffloadRequest request;
  const v1::OffloadSettings before = Set(request)->workers(0).settings();
  const int64_t untouched = engine_->Stats().untouched_bytes;
  // This is all KV memory, except for a part of a block.
  EXPECT_GE(untouched, (4 << 20) - (1 << 16));
  const int64_t more = 10 * before.record_bytes();
  request.set_expert_memory_bytes(before.expert_memory_bytes() + more);
  // The sixteen resident experts are already in memory.
  const int64_t need = request.expert_memory_bytes() - 16 * before.record_bytes();
  available_ = untouched + need - 1;
  const absl::Status status = Set(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("KV"));
  available_ = untouched + need;
  EXPECT_TRUE(Set(request).ok());
  available_ = 0;
  request.set_expert_memory_bytes(request.expert_memory_bytes() + before.record_bytes());
  EXPECT_EQ(Set(request).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(WorkerAdminTest, AnotherWorkersIdIsNotFound) {
  v1::SetOffloadRequest set;
  set.set_worker_id("w2");
  v1::RefreshExpertsRequest refresh;
  refresh.set_worker_id("w2");
  v1::GetPlacementRequest get;
  get.set_worker_id("w2");
  EXPECT_TRUE(absl::IsNotFound(Set(set).status()));
  EXPECT_TRUE(absl::IsNotFound(Ask(admin_.get(), &WorkerAdmin::RefreshExperts, refresh).status()));
  const absl::Status status = Ask(admin_.get(), &WorkerAdmin::GetPlacement, get).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("'w2'"), HasSubstr("'w1'")));
}

TEST_F(WorkerAdminTest, ThePlacementHasEveryLayerAndExpert) {
  const auto answer = Ask(admin_.get(), &WorkerAdmin::GetPlacement, v1::GetPlacementRequest());
  ASSERT_TRUE(answer.ok()) << answer.status();
  const v1::WorkerPlacement& worker = answer->workers(0);
  EXPECT_EQ(worker.worker_id(), "w1");
  ASSERT_EQ(worker.layers_size(), 3);
  int residents = 0;
  for (int i = 0; i < 3; ++i) {
    const v1::LayerPlacement& layer = worker.layers(i);
    EXPECT_EQ(layer.layer(), i);
    EXPECT_EQ(layer.uses_total_size(), 16);
    EXPECT_EQ(layer.uses_window_size(), 16);
    residents += layer.resident_experts_size();
    for (int e = 0; e < layer.resident_experts_size(); ++e) {
      EXPECT_GE(layer.resident_experts(e), e);
      EXPECT_LT(layer.resident_experts(e), 16);
    }
  }
  EXPECT_EQ(residents, 16);
  const auto refreshed =
      Ask(admin_.get(), &WorkerAdmin::RefreshExperts, v1::RefreshExpertsRequest());
  ASSERT_TRUE(refreshed.ok());
  EXPECT_EQ(refreshed->workers(0).settings().policy(), "adaptive");
}

TEST_F(WorkerAdminTest, DrainsItsProcess) {
  v1::DrainRequest request;
  request.set_worker_id("w2");
  EXPECT_TRUE(absl::IsNotFound(Ask(admin_.get(), &WorkerAdmin::Drain, request).status()));
  EXPECT_EQ(drains_, 0);
  request.set_worker_id("w1");
  const auto answer = Ask(admin_.get(), &WorkerAdmin::Drain, request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->workers(0).worker_id(), "w1");
  EXPECT_EQ(drains_, 1);

  WorkerAdmin guest("w1", engine_.get(), {});
  EXPECT_TRUE(absl::IsFailedPrecondition(Ask(&guest, &WorkerAdmin::Drain, request).status()));
}

}  // namespace
}  // namespace tidepool::service
