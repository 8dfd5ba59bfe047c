#include "service/http/metrics_page.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <cstdint>
#include <limits>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tidepool::service {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

constexpr const char* kEndNames[kRequestEnds] = {"stop", "length", "abort", "error"};

// Collects metrics by name, in the order in which the names are first used.
class Page {
 public:
  void Counter(const std::string& name, const std::string& help, const Labels& labels,
               double value) {
    Add(name, help, MetricType::Counter, labels).counter.value = value;
  }
  void Gauge(const std::string& name, const std::string& help, const Labels& labels, double value) {
    Add(name, help, MetricType::Gauge, labels).gauge.value = value;
  }
  void Histogram(const std::string& name, const std::string& help, const Labels& labels,
                 const service::Histogram& histogram) {
    ClientMetric::Histogram& out = Add(name, help, MetricType::Histogram, labels).histogram;
    out.sample_count = static_cast<uint64_t>(histogram.count());
    out.sample_sum = histogram.sum();
    uint64_t cumulative = 0;
    for (size_t i = 0; i < histogram.counts().size(); ++i) {
      cumulative += static_cast<uint64_t>(histogram.counts()[i]);
      const double bound = i < histogram.bounds().size() ? histogram.bounds()[i]
                                                         : std::numeric_limits<double>::infinity();
      out.bucket.push_back({cumulative, bound});
    }
  }

  std::string Text() const {
    std::ostringstream out;
    prometheus::TextSerializer().Serialize(out, families_);
    return out.str();
  }

 private:
  ClientMetric& Add(const std::string& name, const std::string& help, MetricType type,
                    const Labels& labels) {
    const std::string full = absl::StrCat("tidepool:", name);
    MetricFamily* family = nullptr;
    for (MetricFamily& known : families_) {
      if (known.name == full) family = &known;
    }
    if (family == nullptr) {
      families_.push_back({full, help, type, {}});
      family = &families_.back();
    }
    ClientMetric& metric = family->metric.emplace_back();
    metric.label = labels;
    return metric;
  }

  std::vector<MetricFamily> families_;
};

void AddFront(const v1::FrontStats& front, Page* page) {
  page->Gauge("uptime_seconds", "Seconds since the front started.", {}, front.uptime_seconds());
  page->Gauge("streams_running", "Number of requests in the front, running and waiting.", {},
              static_cast<double>(front.streams_running()));
  page->Counter("requests_total", "Requests received by the front.", {},
                static_cast<double>(front.requests_total()));
  page->Counter("requests_failed_total", "Requests that failed.", {},
                static_cast<double>(front.requests_failed_total()));
  page->Counter("failovers_total",
                "Streams that continued on another worker because their worker failed.", {},
                static_cast<double>(front.failovers_total()));
  page->Counter("migrations_total", "Streams that left a draining worker.", {},
                static_cast<double>(front.migrations_total()));
  page->Counter("numerics_changed_total",
                "Streams that continued on a worker whose results may differ in the last bits.", {},
                static_cast<double>(front.numerics_changed_total()));
  page->Gauge("failovers_waiting", "Streams that lost their worker and wait for another worker.",
              {}, static_cast<double>(front.failovers_waiting()));
  page->Counter("poisoned_prompts_refused_total",
                "Requests that were refused because their prompt crashed workers.", {},
                static_cast<double>(front.poisoned_prompts_refused_total()));
  page->Counter("log_lines_dropped_total", "Log lines that could not be written in time.", {},
                static_cast<double>(front.log_lines_dropped_total()));
  page->Gauge("sessions", "Sessions in the store.", {}, static_cast<double>(front.sessions()));
}

void AddRequests(const std::string& model, const RequestMetrics& requests, Page* page) {
  const Labels labels = {{"model_name", model}};
  for (int i = 0; i < kRequestEnds; ++i) {
    Labels ended = labels;
    ended.push_back({"finished_reason", kEndNames[i]});
    page->Counter("request_success_total", "Requests by finish reason.", ended,
                  static_cast<double>(requests.ends[i]));
  }
  const std::pair<std::pair<const char*, const char*>, const service::Histogram&> histograms[] = {
      {{"time_to_first_token_seconds", "Time from the arrival of a request to its first token."},
       requests.time_to_first_token},
      {{"inter_token_latency_seconds", "Time between two tokens."}, requests.inter_token_latency},
      {{"e2e_request_latency_seconds", "Time from the arrival of a request to its end."},
       requests.e2e_latency},
      {{"request_queue_time_seconds", "Time from the arrival of a request to its first step."},
       requests.queue_time},
      {{"request_prefill_time_seconds",
        "Time from the first step of a request to its first token."},
       requests.prefill_time},
      {{"request_decode_time_seconds",
        "Time from the first token of a response to its last token."},
       requests.decode_time},
      {{"request_prompt_tokens", "Number of tokens of a prompt."}, requests.prompt_tokens},
      {{"request_generation_tokens", "Number of tokens of a response."},
       requests.generation_tokens}};
  for (const auto& [names, histogram] : histograms) {
    page->Histogram(names.first, names.second, labels, histogram);
  }
}

void AddPrincipal(const std::string& principal, const PrincipalUsage& usage, Page* page) {
  const auto counter = [&](const char* name, const char* help, int64_t value) {
    page->Counter(name, help, {{"principal", principal}}, static_cast<double>(value));
  };
  counter("principal_requests_total", "Requests of a principal that have ended.", usage.requests);
  counter("principal_prompt_tokens_total", "Prompt tokens of these requests.", usage.prompt_tokens);
  counter("principal_cached_tokens_total",
          "Prompt tokens of these requests that were found in the cache.", usage.cached_tokens);
  counter("principal_generation_tokens_total", "Tokens sent to the client.",
          usage.generation_tokens);
}

void AddExperts(const v1::WorkerStats& worker, const Labels& labels, Page* page) {
  const auto counter = [&](const char* name, const char* help, double value) {
    page->Counter(name, help, labels, value);
  };
  const v1::OffloadStats& offload = worker.offload();
  const v1::OffloadCounters& total = offload.total();
  page->Gauge("expert_slots", "Number of experts that fit into memory.", labels,
              static_cast<double>(offload.slots()));
  page->Gauge("expert_resident_bytes", "Memory that experts use now.", labels,
              static_cast<double>(offload.resident_bytes()));
  page->Gauge("expert_capacity_bytes", "Maximum memory of experts.", labels,
              static_cast<double>(offload.capacity_bytes()));
  counter("expert_promotions_total", "Experts that were missing and then stayed in memory.",
          static_cast<double>(total.promotions()));
  counter("expert_pass_throughs_total", "Experts that were missing, used once and dropped.",
          static_cast<double>(total.pass_throughs()));
  counter("expert_demand_bytes_total",
          "Bytes of experts that were read because a layer waited for them.",
          static_cast<double>(total.demand_bytes()));
  counter("expert_prefetch_bytes_total", "Bytes of experts that were prefetched.",
          static_cast<double>(total.prefetch_bytes()));
  counter("expert_prefetch_used_bytes_total", "Prefetched bytes of experts that were used.",
          static_cast<double>(total.prefetch_used_bytes()));
  counter("expert_prefetch_wasted_bytes_total",
          "Prefetched bytes of experts that were dropped unused.",
          static_cast<double>(total.prefetch_wasted_bytes()));
  counter("expert_failed_reads_total", "Reads of experts that failed.",
          static_cast<double>(total.failed_reads()));
  counter("expert_rebuilt_records_total",
          "Records that were damaged in the pack file and rebuilt from the model file.",
          static_cast<double>(total.rebuilt_records()));
  counter("expert_failed_record_writes_total",
          "Rebuilt records that could not be written back into the pack file.",
          static_cast<double>(total.failed_record_writes()));
  page->Gauge("expert_lost_records", "Records that are damaged and cannot be rebuilt.", labels,
              static_cast<double>(offload.lost_records()));
  counter("expert_stall_seconds_total", "Time that computation waited for experts.",
          total.stall_seconds());
  counter("expert_hidden_seconds_total",
          "Time in which reads of experts overlapped with computation.", total.hidden_seconds());
}

// Adds the metrics of the host's memory below a GPU.
void AddHostTier(const v1::OffloadStats& offload, const Labels& labels, Page* page) {
  const auto counter = [&](const char* name, const char* help, double value) {
    page->Counter(name, help, labels, value);
  };
  page->Gauge("expert_host_slots", "Number of experts that fit into the host's memory.", labels,
              static_cast<double>(offload.host().slots()));
  page->Gauge("expert_host_resident_bytes", "Host memory that experts use now.", labels,
              static_cast<double>(offload.host().resident_bytes()));
  page->Gauge("expert_host_capacity_bytes", "Maximum host memory of experts.", labels,
              static_cast<double>(offload.host().capacity_bytes()));
  const v1::HostTierCounters& total = offload.total().host();
  counter("expert_copied_total", "Experts that were copied to the GPU and computed there.",
          static_cast<double>(total.copied()));
  counter("expert_computed_on_cpu_total", "Experts that the CPU computed.",
          static_cast<double>(total.computed_on_cpu()));
  counter("expert_copied_for_later_total",
          "Experts that the CPU computed and that were also copied to the GPU.",
          static_cast<double>(total.copied_for_later()));
  counter("expert_copied_ahead_total", "Experts that a prediction had copied to the GPU.",
          static_cast<double>(total.copied_ahead()));
  counter("expert_copied_bytes_total", "Bytes of experts that were copied to the GPU.",
          static_cast<double>(total.copied_bytes()));
  counter("expert_copy_seconds_total", "Time of copies to the GPU.", total.copy_seconds());
  counter("expert_copy_wait_seconds_total", "Time that computation waited for copies to the GPU.",
          total.copy_wait_seconds());
  counter("expert_cpu_seconds_total", "Time in which the CPU computed experts.",
          total.cpu_seconds());
}

void AddWork(const v1::WorkerStats& worker, const Labels& labels, Page* page) {
  const auto counter = [&](const char* name, const char* help, int64_t value) {
    page->Counter(name, help, labels, static_cast<double>(value));
  };
  counter("prompt_tokens_total", "Prompt tokens.", worker.prompt_tokens_total());
  counter("generation_tokens_total", "Generated tokens.", worker.generated_tokens_total());
  counter("prefix_cache_queries_total", "Prompt tokens that were looked up in the cache.",
          worker.prompt_tokens_total());
  counter("prefix_cache_hits_total", "Prompt tokens that were found in the cache.",
          worker.cached_prompt_tokens_total());
  counter("num_preemptions_total", "Preempted sequences, whose KV was freed.",
          worker.preemptions_total());
  counter("deadline_refusals_total",
          "Requests that were refused because their deadline was too short.",
          worker.deadline_refusals_total());
  counter("worker_log_lines_dropped_total", "Log lines that the worker could not write in time.",
          worker.log_lines_dropped_total());
  counter("engine_steps_total", "Forward passes.", worker.steps_total());
  counter("engine_progress_total", "Increases whenever the engine makes progress.",
          static_cast<int64_t>(worker.progress()));
}

void AddKvDisk(const v1::KvDiskStats& disk, const Labels& labels, Page* page) {
  const auto counter = [&](const char* key, const char* help, int64_t value) {
    page->Counter(key, help, labels, static_cast<double>(value));
  };
  page->Gauge("kv_disk_limit_bytes", "--kv-disk.", labels, static_cast<double>(disk.limit_bytes()));
  page->Gauge("kv_disk_used_bytes", "Bytes of the KV file that are in use.", labels,
              static_cast<double>(disk.used_bytes()));
  counter("kv_disk_written_blocks_total", "KV blocks written to the disk.",
          disk.written_blocks_total());
  counter("kv_disk_read_blocks_total", "KV blocks read back.", disk.read_blocks_total());
  counter("kv_disk_dropped_blocks_total",
          "KV blocks that were dropped because the disk was too slow.",
          disk.dropped_blocks_total());
  counter("kv_disk_damaged_blocks_total", "KV blocks whose checksum did not match.",
          disk.damaged_blocks_total());
  counter("kv_disk_failed_reads_total", "Reads of KV blocks that failed.",
          disk.failed_reads_total());
  counter("kv_disk_failed_writes_total", "Writes of KV blocks that failed.",
          disk.failed_writes_total());
  counter("kv_disk_restores_total", "Prompts whose KV was read back.", disk.restores_total());
  counter("kv_disk_restored_tokens_total",
          "Prompt tokens whose KV was read back instead of computed.",
          disk.restored_tokens_total());
  counter("kv_disk_restores_given_up_total", "Prompts for which reading KV back was abandoned.",
          disk.restores_given_up_total());
}

// Adds the hits and misses of experts, for each layer if the worker reports layers. The tier is
// "memory". If the model runs on a GPU, there is a tier "gpu" above it.
void AddExpertUse(const v1::WorkerStats& worker, const Labels& labels, Page* page) {
  const auto add = [&](std::string layer, const char* tier, int64_t hits, int64_t misses) {
    Labels with_layer = labels;
    if (!layer.empty()) with_layer.push_back({"layer", std::move(layer)});
    with_layer.push_back({"tier", tier});
    page->Counter("expert_hits_total", "Experts that a layer needed and found in the tier.",
                  with_layer, static_cast<double>(hits));
    page->Counter("expert_misses_total",
                  "Experts that a layer needed and did not find in the tier.", with_layer,
                  static_cast<double>(misses));
  };
  const v1::OffloadCounters& total = worker.offload().total();
  const char* const tier = total.has_host() ? "gpu" : "memory";
  for (const v1::LayerCounters& layer : total.layers()) {
    add(absl::StrCat(layer.layer()), tier, layer.hits(), layer.misses());
  }
  if (total.layers().empty()) {
    add("", tier, worker.expert_hits_total(), worker.expert_misses_total());
  }
  if (total.has_host()) add("", "memory", total.host().hits(), total.host().misses());
}

void AddWorker(const v1::WorkerStats& worker, Page* page) {
  const Labels name = {{"worker", worker.worker_id()}};
  page->Gauge("worker_up", "1 if the worker responds.", name, worker.status_code() == 0 ? 1 : 0);
  if (worker.status_code() != 0) return;
  const Labels labels = {{"model_name", worker.model()}, {"worker", worker.worker_id()}};
  const auto gauge = [&](const char* key, const char* help, double value) {
    page->Gauge(key, help, labels, value);
  };
  gauge("num_requests_running", "Number of running sequences.",
        static_cast<double>(worker.sequences_running()));
  gauge("num_requests_waiting", "Number of waiting sequences.",
        static_cast<double>(worker.sequences_waiting()));
  const double blocks = static_cast<double>(worker.kv_blocks_total());
  gauge("kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.",
        blocks == 0 ? 0 : 1 - static_cast<double>(worker.kv_blocks_free()) / blocks);
  if (worker.kv_state_bytes() > 0) {
    gauge("kv_state_bytes", "Bytes of one recurrent state.",
          static_cast<double>(worker.kv_state_bytes()));
    gauge("kv_checkpoints", "Recurrent states in memory that later requests can use.",
          static_cast<double>(worker.kv_checkpoints()));
  }
  gauge("weight_bytes", "Bytes of weights in memory.", static_cast<double>(worker.weight_bytes()));
  gauge("resident_bytes", "Resident memory of the worker's process.",
        static_cast<double>(worker.resident_bytes()));
  AddWork(worker, labels, page);
  AddExpertUse(worker, labels, page);
  if (worker.has_offload()) AddExperts(worker, labels, page);
  if (worker.offload().has_host()) AddHostTier(worker.offload(), labels, page);
  if (worker.has_kv_disk()) AddKvDisk(worker.kv_disk(), labels, page);
}

}  // namespace

std::string MetricsPage(const v1::GetStatsResponse& stats, const RequestMetricsMap& requests,
                        const PrincipalUsageMap& principals, const HttpCounts& http) {
  Page page;
  AddFront(stats.front(), &page);
  for (const auto& [model, metrics] : requests) AddRequests(model, metrics, &page);
  for (const auto& [principal, usage] : principals) AddPrincipal(principal, usage, &page);
  for (const auto& [request, count] : http) {
    page.Counter("http_requests_total", "HTTP responses by path and status.",
                 {{"handler", request.first}, {"status", absl::StrCat(request.second)}},
                 static_cast<double>(count));
  }
  for (const v1::WorkerStats& worker : stats.workers()) AddWorker(worker, &page);
  return page.Text();
}

}  // namespace tidepool::service
