// The requests and workers of a front in Prometheus's format.
#include "service/http/metrics_page.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/fakes/manual_clock.h"

namespace tidepool::service {
namespace {

class NullSink final : public GenerationSink {
 public:
  void Write(v1::GenerateResponse) override { ++writes; }
  void Finish(absl::Status end) override { status = std::move(end); }
  int writes = 0;
  absl::Status status = absl::UnknownError("not finished");
};

v1::GenerateResponse Tokens(int count, v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED) {
  v1::GenerateResponse response;
  for (int i = 0; i < count; ++i) response.add_token_ids(i);
  response.set_finish_reason(finish);
  return response;
}

class RequestMetricsTest : public testing::Test {
 protected:
  MeasuredSink Measure(const std::string& model = "m") {
    return MeasuredSink(&sink_, &clock_, &metrics_, [model] { return model; });
  }

  fakes::ManualClock clock_;
  RequestMetricsMap metrics_;
  NullSink sink_;
};

TEST_F(RequestMetricsTest, TimesAreTheClients) {
  MeasuredSink measured = Measure();
  clock_.Advance(absl::Milliseconds(30));
  measured.Write(Tokens(1));
  clock_.Advance(absl::Milliseconds(20));
  measured.Write(Tokens(0));  // text without tokens is not counted
  clock_.Advance(absl::Milliseconds(40));
  measured.Write(Tokens(3));
  clock_.Advance(absl::Milliseconds(10));
  v1::GenerateResponse last = Tokens(1, v1::LENGTH);
  last.mutable_usage()->set_prompt_tokens(7);
  last.mutable_usage()->set_completion_tokens(5);
  last.mutable_usage()->set_queue_seconds(0.25);
  measured.Write(last);
  measured.Finish(absl::OkStatus());
  EXPECT_EQ(sink_.writes, 4);
  EXPECT_TRUE(sink_.status.ok());

  const RequestMetrics& metrics = metrics_.at("m");
  EXPECT_EQ(metrics.time_to_first_token.count(), 1);
  EXPECT_NEAR(metrics.time_to_first_token.sum(), 0.030, 1e-9);
  EXPECT_EQ(metrics.inter_token_latency.count(), 4);
  EXPECT_NEAR(metrics.inter_token_latency.sum(), 0.070, 1e-9);
  EXPECT_NEAR(metrics.e2e_latency.sum(), 0.100, 1e-9);
  EXPECT_NEAR(metrics.queue_time.sum(), 0.25, 1e-9);
  EXPECT_EQ(metrics.prompt_tokens.sum(), 7);
  EXPECT_EQ(metrics.generation_tokens.sum(), 5);
  EXPECT_EQ(metrics.ends[static_cast<int>(RequestEnd::kLength)], 1);
}

TEST_F(RequestMetricsTest, CountsEndsByReason) {
  const std::pair<absl::Status, RequestEnd> table[] = {
      {absl::CancelledError("gone"), RequestEnd::kAbort},
      {absl::ResourceExhaustedError("full"), RequestEnd::kError},
      {absl::OkStatus(), RequestEnd::kStop}};
  for (const auto& [status, end] : table) {
    MeasuredSink measured = Measure();
    measured.Finish(status);
    EXPECT_EQ(sink_.status, status);
    EXPECT_EQ(metrics_.at("m").ends[static_cast<int>(end)], 1) << status;
  }
  // Unknown model names that clients send do not become labels.
  MeasuredSink unknown = Measure("");
  unknown.Write(Tokens(1));
  unknown.Finish(absl::NotFoundError("no such model"));
  EXPECT_EQ(metrics_.size(), 1);
}

TEST(PrincipalUsageTest, PrincipalsAboveTheMaximumAreCountedTogether) {
  PrincipalUsageMap all;
  for (size_t i = 0; i < kMaxPrincipals + 5; ++i) {
    AddUsage(absl::StrCat("p", i), {.requests = 1, .generation_tokens = 2}, &all);
  }
  AddUsage("p0", {.requests = 1, .prompt_tokens = 7, .cached_tokens = 3}, &all);
  EXPECT_EQ(all.size(), kMaxPrincipals + 1);
  EXPECT_EQ(all.at(kOtherPrincipals).requests, 5);
  EXPECT_EQ(all.at("p0").requests, 2);
  const std::string page = MetricsPage({}, {}, {{"alice", all.at("p0")}});
  for (const char* line : {"tidepool:principal_requests_total{principal=\"alice\"} 2\n",
                           "tidepool:principal_prompt_tokens_total{principal=\"alice\"} 7\n",
                           "tidepool:principal_cached_tokens_total{principal=\"alice\"} 3\n",
                           "tidepool:principal_generation_tokens_total{principal=\"alice\"} 2\n"}) {
    EXPECT_TRUE(absl::StrContains(page, line)) << page;
  }
}

TEST(HistogramTest, BoundsAreInclusive) {
  static constexpr double kBounds[] = {1, 2};
  Histogram histogram(kBounds);
  histogram.Observe(0);
  histogram.Observe(1);
  histogram.Observe(1.5, 3);
  histogram.Observe(2);
  histogram.Observe(9);
  EXPECT_EQ(histogram.counts(), absl::MakeConstSpan({int64_t{2}, int64_t{4}, int64_t{1}}));
  EXPECT_EQ(histogram.count(), 7);
  EXPECT_EQ(histogram.sum(), 16.5);
}

v1::GetStatsResponse Stats() {
  v1::GetStatsResponse stats;
  stats.mutable_front()->set_requests_total(9);
  stats.mutable_front()->set_migrations_total(6);
  stats.mutable_front()->set_numerics_changed_total(3);
  stats.mutable_front()->set_failovers_waiting(4);
  stats.mutable_front()->set_poisoned_prompts_refused_total(2);
  stats.mutable_front()->set_log_lines_dropped_total(8);
  v1::WorkerStats* worker = stats.add_workers();
  worker->set_worker_id("w\"1\n");
  worker->set_model("m");
  worker->set_sequences_running(2);
  worker->set_kv_blocks_total(8);
  worker->set_kv_blocks_free(6);
  worker->set_kv_state_bytes(5000);
  worker->set_kv_checkpoints(7);
  worker->set_deadline_refusals_total(6);
  worker->set_log_lines_dropped_total(5);
  worker->set_prompt_tokens_total(100);
  worker->set_cached_prompt_tokens_total(25);
  v1::LayerCounters* layer = worker->mutable_offload()->mutable_total()->add_layers();
  layer->set_layer(3);
  layer->set_hits(5);
  layer->set_misses(2);
  worker->mutable_offload()->mutable_total()->set_stall_seconds(1.5);
  worker->mutable_kv_disk()->set_used_bytes(4096);
  worker->mutable_kv_disk()->set_restored_tokens_total(64);
  v1::WorkerStats* gone = stats.add_workers();
  gone->set_worker_id("w2");
  gone->set_status_code(14);
  return stats;
}

TEST(MetricsPageTest, NamesAndLabels) {
  RequestMetricsMap requests;
  requests["m"].time_to_first_token.Observe(0.015);
  requests["m"].ends[0] = 3;
  const std::string page = MetricsPage(Stats(), requests, {});
  const std::string worker = R"({model_name="m",worker="w\"1\n"} )";
  const std::string layer = R"({model_name="m",worker="w\"1\n",layer="3",tier="memory"} )";
  for (const std::string& line :
       {std::string("# TYPE tidepool:requests_total counter\n"),
        std::string("tidepool:requests_total 9\n"),
        std::string("tidepool:migrations_total 6\n"),
        std::string("tidepool:numerics_changed_total 3\n"),
        std::string("tidepool:failovers_waiting 4\n"),
        std::string("tidepool:poisoned_prompts_refused_total 2\n"),
        std::string("tidepool:log_lines_dropped_total 8\n"),
        "tidepool:deadline_refusals_total" + worker + "6\n",
        "tidepool:worker_log_lines_dropped_total" + worker + "5\n",
        "tidepool:num_requests_running" + worker + "2\n",
        "tidepool:kv_cache_usage_perc" + worker + "0.25\n",
        "tidepool:kv_state_bytes" + worker + "5000\n",
        "tidepool:kv_checkpoints" + worker + "7\n",
        "tidepool:prompt_tokens_total" + worker + "100\n",
        "tidepool:prefix_cache_hits_total" + worker + "25\n",
        "tidepool:expert_hits_total" + layer + "5\n",
        "tidepool:expert_misses_total" + layer + "2\n",
        "tidepool:expert_stall_seconds_total" + worker + "1.5\n",
        "tidepool:kv_disk_used_bytes" + worker + "4096\n",
        "tidepool:kv_disk_restored_tokens_total" + worker + "64\n",
        std::string("tidepool:worker_up{worker=\"w2\"} 0\n"),
        std::string(
            "tidepool:request_success_total{model_name=\"m\",finished_reason=\"stop\"} 3\n"),
        std::string("# TYPE tidepool:time_to_first_token_seconds histogram\n"),
        std::string(
            "tidepool:time_to_first_token_seconds_bucket{model_name=\"m\",le=\"0.01\"} 0\n"),
        std::string(
            "tidepool:time_to_first_token_seconds_bucket{model_name=\"m\",le=\"0.02\"} 1\n"),
        std::string(
            "tidepool:time_to_first_token_seconds_bucket{model_name=\"m\",le=\"+Inf\"} 1\n"),
        std::string("tidepool:time_to_first_token_seconds_count{model_name=\"m\"} 1\n")}) {
    EXPECT_TRUE(absl::StrContains(page, line)) << line << page;
  }
}

// Each value is a different number, so that the test detects mixed-up values.
v1::GetStatsResponse OffloadedStats() {
  v1::GetStatsResponse stats;
  v1::WorkerStats* worker = stats.add_workers();
  worker->set_worker_id("w");
  worker->set_model("m");
  v1::OffloadStats* offload = worker->mutable_offload();
  offload->set_slots(101);
  offload->set_experts(102);
  offload->set_staging_records(103);
  offload->set_resident_bytes(104);
  offload->set_capacity_bytes(105);
  offload->set_record_bytes(106);
  v1::OffloadCounters* total = offload->mutable_total();
  total->set_hits(107);
  total->set_misses(108);
  total->set_promotions(109);
  total->set_pass_throughs(110);
  total->set_demand_bytes(111);
  total->set_prefetch_bytes(112);
  total->set_prefetch_used_bytes(113);
  total->set_prefetch_wasted_bytes(114);
  total->set_failed_reads(115);
  total->set_rebuilt_records(118);
  total->set_failed_record_writes(119);
  offload->set_lost_records(120);
  total->set_stall_seconds(116.5);
  total->set_hidden_seconds(117.5);
  for (const int number : {2, 3}) {
    v1::LayerCounters* layer = total->add_layers();
    layer->set_layer(number);
    layer->set_hits(200 + number);
    layer->set_misses(300 + number);
  }
  // These values are not on the page.
  offload->mutable_window()->CopyFrom(*total);
  offload->mutable_window()->set_demand_bytes(400);
  return stats;
}

TEST(MetricsPageTest, ExpertsUnderABudget) {
  const std::string page = MetricsPage(OffloadedStats(), {}, {});
  struct Line {
    const char* name;
    const char* type;
    const char* value;
  };
  constexpr Line kLines[] = {{"slots", "gauge", "101"},
                             {"resident_bytes", "gauge", "104"},
                             {"capacity_bytes", "gauge", "105"},
                             {"promotions_total", "counter", "109"},
                             {"pass_throughs_total", "counter", "110"},
                             {"demand_bytes_total", "counter", "111"},
                             {"prefetch_bytes_total", "counter", "112"},
                             {"prefetch_used_bytes_total", "counter", "113"},
                             {"prefetch_wasted_bytes_total", "counter", "114"},
                             {"failed_reads_total", "counter", "115"},
                             {"rebuilt_records_total", "counter", "118"},
                             {"failed_record_writes_total", "counter", "119"},
                             {"lost_records", "gauge", "120"},
                             {"stall_seconds_total", "counter", "116.5"},
                             {"hidden_seconds_total", "counter", "117.5"}};
  for (const auto& [name, type, value] : kLines) {
    const std::string line =
        absl::StrCat("# TYPE tidepool:expert_", name, " ", type, "\ntidepool:expert_", name,
                     R"({model_name="m",worker="w"} )", value, "\n");
    EXPECT_TRUE(absl::StrContains(page, line)) << line << page;
  }
  for (const int number : {2, 3}) {
    const std::string labels =
        absl::StrCat(R"({model_name="m",worker="w",layer=")", number, R"(",tier="memory"} )");
    for (const std::string& line :
         {absl::StrCat("tidepool:expert_hits_total", labels, 200 + number, "\n"),
          absl::StrCat("tidepool:expert_misses_total", labels, 300 + number, "\n")}) {
      EXPECT_TRUE(absl::StrContains(page, line)) << line << page;
    }
  }
}

TEST(MetricsPageTest, ExpertsBelowAGpu) {
  v1::GetStatsResponse stats = OffloadedStats();
  v1::OffloadStats* offload = stats.mutable_workers(0)->mutable_offload();
  offload->mutable_host()->set_slots(501);
  offload->mutable_host()->set_resident_bytes(502);
  offload->mutable_host()->set_capacity_bytes(503);
  v1::HostTierCounters* host = offload->mutable_total()->mutable_host();
  host->set_hits(504);
  host->set_misses(505);
  host->set_copied(506);
  host->set_computed_on_cpu(507);
  host->set_copied_for_later(508);
  host->set_copied_ahead(509);
  host->set_copied_bytes(510);
  host->set_copy_seconds(511.5);
  host->set_copy_wait_seconds(512.5);
  host->set_cpu_seconds(513.5);
  const std::string page = MetricsPage(stats, {}, {});
  for (const char* line : {R"(host_slots{model_name="m",worker="w"} 501)",
                           R"(host_resident_bytes{model_name="m",worker="w"} 502)",
                           R"(host_capacity_bytes{model_name="m",worker="w"} 503)",
                           R"(hits_total{model_name="m",worker="w",tier="memory"} 504)",
                           R"(misses_total{model_name="m",worker="w",tier="memory"} 505)",
                           R"(hits_total{model_name="m",worker="w",layer="2",tier="gpu"} 202)",
                           R"(copied_total{model_name="m",worker="w"} 506)",
                           R"(computed_on_cpu_total{model_name="m",worker="w"} 507)",
                           R"(copied_for_later_total{model_name="m",worker="w"} 508)",
                           R"(copied_ahead_total{model_name="m",worker="w"} 509)",
                           R"(copied_bytes_total{model_name="m",worker="w"} 510)",
                           R"(copy_seconds_total{model_name="m",worker="w"} 511.5)",
                           R"(copy_wait_seconds_total{model_name="m",worker="w"} 512.5)",
                           R"(cpu_seconds_total{model_name="m",worker="w"} 513.5)"}) {
    EXPECT_TRUE(absl::StrContains(page, absl::StrCat("\ntidepool:expert_", line, "\n")))
        << line << page;
  }
}

TEST(MetricsPageTest, ExpertsThatAllLieInMemory) {
  v1::GetStatsResponse stats;
  v1::WorkerStats* worker = stats.add_workers();
  worker->set_worker_id("w");
  worker->set_model("m");
  worker->set_expert_hits_total(7);
  EXPECT_TRUE(absl::StrContains(
      MetricsPage(stats, {}, {}),
      "tidepool:expert_hits_total{model_name=\"m\",worker=\"w\",tier=\"memory\"} 7\n"));
}

TEST(MetricsPageTest, FamiliesStandTogether) {
  v1::GetStatsResponse stats = Stats();
  *stats.add_workers() = stats.workers(0);
  RequestMetricsMap requests;
  requests["a"], requests["b"];
  std::set<std::string> seen;
  for (const absl::string_view line : absl::StrSplit(MetricsPage(stats, requests, {}), '\n')) {
    if (!absl::StartsWith(line, "# TYPE ")) continue;
    const std::string name(absl::string_view(line).substr(7, line.rfind(' ') - 7));
    EXPECT_TRUE(absl::StartsWith(name, "tidepool:")) << name;
    EXPECT_TRUE(seen.insert(name).second) << name << " is a duplicate";
  }
  EXPECT_GT(seen.size(), 20);
}

}  // namespace
}  // namespace tidepool::service
