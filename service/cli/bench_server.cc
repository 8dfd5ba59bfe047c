// bench --server: sends load to a running server and reports throughput and latencies.
#include <sys/resource.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"
#include "service/base/event_loop.h"
#include "service/cli/commands.h"
#include "service/cli/traffic_client.h"
#include "service/cli/traffic_plan.h"
#include "service/cli/traffic_report.h"
#include "service/cli/traffic_run.h"

namespace tidepool::service {
namespace {

// Maximum time to wait for running requests after the last one was sent.
constexpr absl::Duration kPatience = absl::Minutes(1);

absl::Status CheckSharedPrompt(const Config& config) {
  const std::vector<int64_t>& lengths = config.bench.prompt_tokens;
  const int64_t shortest = *std::min_element(lengths.begin(), lengths.end());
  if (config.traffic.shared_prompt_tokens < shortest) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("--shared-prompt-tokens %d must be less than the shortest prompt, %d tokens; "
                      "lower it, or raise --prompt-tokens",
                      config.traffic.shared_prompt_tokens, shortest));
}

absl::Status CheckContext(const Config& config, const ServedModel& model) {
  const BenchFlags& bench = config.bench;
  const int64_t most = *std::max_element(bench.prompt_tokens.begin(), bench.prompt_tokens.end()) +
                       *std::max_element(bench.output_tokens.begin(), bench.output_tokens.end());
  if (most <= model.context_length) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%d tokens of prompt and output exceed the context of %s, %d tokens; use fewer", most,
      model.name, model.context_length));
}

TrafficShape ShapeOf(const Config& config, const ServedModel& model) {
  const TrafficFlags& flags = config.traffic;
  return {.rate = flags.rate,
          .prompt_tokens = config.bench.prompt_tokens,
          .output_tokens = config.bench.output_tokens,
          .shared_prompt_tokens = flags.shared_prompt_tokens,
          .priorities = flags.priorities,
          .vocab_size = model.vocab_size,
          .seed = flags.seed};
}

// CPU time of this process.
double ProcessorSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return absl::ToDoubleSeconds(absl::DurationFromTimeval(usage.ru_utime) +
                               absl::DurationFromTimeval(usage.ru_stime));
}

// The reports of one run: one for all requests, and one for each priority.
class Reports {
 public:
  explicit Reports(const TrafficFlags& flags)
      : window_({flags.warm_up, flags.warm_up + flags.duration}), all_(window_) {
    for (const int32_t priority : flags.priorities) of_priority_.emplace(priority, window_);
  }

  const TrafficWindow& window() const { return window_; }

  void Add(const RequestOutcome& outcome) {
    all_.Add(outcome);
    if (outcome.priority.has_value()) of_priority_.at(*outcome.priority).Add(outcome);
  }

  Json ToJson() const {
    Json json = all_.ToJson();
    if (of_priority_.empty()) return json;
    json["priorities"] = Json::array();
    for (const auto& [priority, report] : of_priority_) {
      Json one = {{"priority", priority}};
      one.update(report.ToJson());
      json["priorities"].push_back(std::move(one));
    }
    return json;
  }

 private:
  const TrafficWindow window_;
  TrafficReport all_;
  std::map<int32_t, TrafficReport> of_priority_;
};

// Sends the load that the flags describe and returns when every request has ended. Returns the CPU
// use of this process during the measurement, as a share of one core.
double SendTraffic(const Config& config, const ServedModel& model, TrafficClient* client,
                   Reports* reports) {
  TrafficPlan plan(ShapeOf(config, model));
  base::Mutex mutex;
  base::CondVar changed;
  bool ended = false;
  double begin_s = 0, end_s = 0;
  EventLoop loop;
  TrafficRun run({.plan = &plan, .client = client, .loop = &loop, .clock = &base::Clock::Real()},
                 {.callers = config.traffic.concurrency,
                  .sending = reports->window().end,
                  .patience = kPatience,
                  .retries = config.traffic.retries});
  loop.Post([&] {
    loop.PostAfter(reports->window().begin, [&] { begin_s = ProcessorSeconds(); });
    loop.PostAfter(reports->window().end, [&] { end_s = ProcessorSeconds(); });
    run.Start([&](const RequestOutcome& outcome) { reports->Add(outcome); },
              [&] {
                base::MutexLock lock(&mutex);
                ended = true;
                changed.NotifyAll();
              });
  });
  {
    base::MutexLock lock(&mutex);
    while (!ended) changed.Wait(&mutex);
  }
  loop.Stop();
  return (end_s - begin_s) / absl::ToDoubleSeconds(config.traffic.duration);
}

std::string Text(const Json& json) {
  const Json& load = json["load"];
  const std::string pace = load["rate"].is_null()
                               ? absl::StrFormat("%d callers", load["concurrency"].get<int64_t>())
                               : absl::StrFormat("%g requests/s", load["rate"].get<double>());
  std::string text = absl::StrFormat(
      "%s at %s: %s, measured for %g s\n%s", json["model"].get<std::string>(),
      json["server"].get<std::string>(), pace, json["seconds"].get<double>(), TrafficText(json));
  const Json& late = json["sent_late_s"];
  if (!late.is_null()) {
    absl::StrAppendFormat(&text,
                          "  generator    %.2f of a core; requests sent late by %.2f ms (p99)\n",
                          json["client_cpu_share"].get<double>(), 1e3 * late["p99"].get<double>());
  }
  if (!json.contains("priorities")) return text;
  for (const Json& one : json["priorities"]) {
    absl::StrAppendFormat(&text, "priority %d\n%s", one["priority"].get<int32_t>(),
                          TrafficText(one));
  }
  return text;
}

}  // namespace

absl::Status RunServerBench(const Config& config, Console* console) {
  RETURN_IF_ERROR(CheckSharedPrompt(config));
  ASSIGN_OR_RETURN(const std::unique_ptr<TrafficClient> client, TrafficClient::Connect(config));
  ASSIGN_OR_RETURN(const ServedModel model, client->FindModel());
  RETURN_IF_ERROR(CheckContext(config, model));
  Reports reports(config.traffic);
  const double processor_share = SendTraffic(config, model, client.get(), &reports);
  const TrafficFlags& flags = config.traffic;
  Json json = {{"server", config.client.server}, {"model", model.name}};
  json["load"] = {{"rate", flags.rate > 0 ? Json(flags.rate) : Json()},
                  {"concurrency", flags.concurrency > 0 ? Json(flags.concurrency) : Json()},
                  {"prompt_tokens", config.bench.prompt_tokens},
                  {"output_tokens", config.bench.output_tokens},
                  {"shared_prompt_tokens", flags.shared_prompt_tokens},
                  {"seed", flags.seed}};
  json["seconds"] = absl::ToDoubleSeconds(flags.duration);
  json.update(reports.ToJson());
  // If this is near 1 or above, or requests are sent late, the client may be the bottleneck.
  json["client_cpu_share"] = processor_share;
  return console->PrintResult(config.output.format, json, Text);
}

}  // namespace tidepool::service
