// bench: measures the speed of a model, and compares it with the memory bandwidth of the machine.
#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/engine.h"
#include "engine/evaluation/throughput.h"
#include "engine/loading/model_bundle.h"
#include "kernels/bandwidth.h"
#include "kernels/base/status_macros.h"
#include "moe/offload_stats.h"
#include "service/base/units.h"
#include "service/cli/commands.h"
#include "service/cli/load.h"
#include "service/cli/machine.h"
#include "service/cli/model_bytes.h"
#include "service/cli/proto_json.h"
#include "service/grpc/convert.h"
#include "tidepool/v1/admin.pb.h"

namespace tidepool::service {
namespace {

using moe::Phase;

struct Test {
  std::string name;
  engine::ThroughputTest shape;
};

struct Result {
  Test test;
  engine::Throughput measured;
  int64_t peak_bytes = 0;  // peak resident memory of the process up to the end of the test
};

std::vector<Test> TestsOf(const BenchFlags& flags) {
  std::vector<Test> tests;
  for (const int64_t tokens : flags.prompt_tokens) {
    if (tokens == 0) continue;
    tests.push_back({absl::StrCat("pp", tokens), {Phase::kPrefill, tokens, 1}});
  }
  for (const int64_t tokens : flags.output_tokens) {
    for (const int64_t batch : flags.batch_sizes) {
      if (tokens == 0) continue;
      const std::string suffix = batch == 1 ? "" : absl::StrCat("@", batch);
      tests.push_back(
          {absl::StrCat("tg", tokens, suffix), {Phase::kDecode, tokens, static_cast<int>(batch)}});
    }
  }
  return tests;
}

absl::Status CheckContext(const std::vector<Test>& tests, const engine::ModelBundle& bundle) {
  for (const Test& test : tests) {
    if (test.shape.tokens <= bundle.config.context_length) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: %s was trained for %d tokens; use fewer tokens", test.name,
                        bundle.name, bundle.config.context_length));
  }
  return absl::OkStatus();
}

absl::Status CheckMemory(const std::vector<Test>& tests, const engine::ModelBundle& bundle) {
  const std::optional<int64_t> available = FreeBytesFor(bundle);
  for (const Test& test : tests) {
    const int64_t bytes = engine::KvBytes(bundle.model->kv_specs(), test.shape);
    if (!available.has_value() || bytes <= *available) continue;
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%s: the KV of %d tokens takes %s, and %s of memory is left; use fewer tokens, fewer "
        "sequences (--batch) or a smaller --kv-type",
        test.name, test.shape.tokens * test.shape.sequences,
        FormatBytes(static_cast<double>(bytes)), FormatBytes(static_cast<double>(*available))));
  }
  return absl::OkStatus();
}

// Counts the bytes of the file's tensors in their in-memory layout.
engine::ReadCost CostOf(const engine::ModelBundle& bundle) {
  const engine::Checkpoint& file = bundle.weights->file();
  engine::ReadCost cost;
  int64_t expert_bytes = 0;
  for (const engine::GgufTensor& tensor : file.tensors()) {
    const int64_t bytes = ResidentBytes(tensor, bundle.weights->TypeOf(tensor));
    const bool is_embedding = tensor.name == "token_embd.weight";
    if (is_embedding) cost.per_row = bytes / std::max<int64_t>(1, tensor.rows());
    if (IsExpertTensor(tensor.name)) {
      expert_bytes += bytes;
    } else if (!is_embedding || file.FindTensor("output.weight") == nullptr) {
      cost.dense += bytes;  // a tied embedding is read completely, because it is the head
    }
  }
  const int64_t experts = int64_t{bundle.config.moe_layers()} * bundle.config.moe.experts;
  if (experts > 0) cost.per_expert = expert_bytes / experts;
  return cost;
}

absl::StatusOr<std::vector<Result>> Measure(const Config& config, const std::vector<Test>& tests,
                                            engine::ModelBundle* bundle, Console* console) {
  engine::ThroughputOptions options;
  options.repetitions = static_cast<int>(config.bench.repetitions);
  options.chunk_rows = bundle->prefill_rows();
  options.cost = CostOf(*bundle);
  std::vector<Result> results;
  for (const Test& test : tests) {
    if (console->err_is_terminal()) {
      options.progress = [&](int repetition) {
        console->Note(absl::StrFormat("\r\033[Kmeasuring %s: %d of %d", test.name, repetition + 1,
                                      options.repetitions));
      };
    }
    Result& result = results.emplace_back();
    result.test = test;
    ASSIGN_OR_RETURN(result.measured,
                     engine::MeasureThroughput(bundle->model.get(), test.shape, options));
    result.peak_bytes = PeakResidentBytes();
  }
  if (console->err_is_terminal()) console->Note("\r\033[K");
  return results;
}

// Measured memory bandwidth, and the size of the buffer that was read.
struct Bandwidth {
  double bytes_per_s = 0;
  size_t bytes = 0;
};

// Measures how fast the threads read memory. If little memory is free, the buffer is smaller.
Bandwidth ProbeBandwidth(int threads) {
  const std::optional<int64_t> available = AvailableMemoryBytes();
  size_t bytes = kernels::kBandwidthProbeBytes;
  while (available.has_value() && bytes > static_cast<size_t>(*available) / 2 &&
         bytes > size_t{64} << 20) {
    bytes /= 2;
  }
  return {kernels::ReadBandwidth(threads, bytes, base::Clock::Real()), bytes};
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// The keys are the field names of GetStats.
Json DescribeCounters(const moe::OffloadStats& stats) {
  v1::OffloadCounters counters;
  ToProto(stats, &counters);
  return ToJson(counters);
}

Json Describe(const Result& result, double bandwidth) {
  const engine::Throughput& measured = result.measured;
  std::vector<double> speeds;
  for (const double seconds : measured.seconds) {
    speeds.push_back(seconds > 0 ? static_cast<double>(measured.tokens) / seconds : 0);
  }
  const double median = Median(speeds);
  const double bytes_per_token = measured.bytes / static_cast<double>(measured.tokens);
  Json json;
  json["test"] = result.test.name;
  json["tokens_per_s"] = {{"median", median},
                          {"min", *std::min_element(speeds.begin(), speeds.end())},
                          {"max", *std::max_element(speeds.begin(), speeds.end())}};
  json["bytes_per_token"] = bytes_per_token;
  json["bandwidth_share"] = bandwidth > 0 ? median * bytes_per_token / bandwidth : 0;
  json["peak_rss_bytes"] = result.peak_bytes;
  // These counters include only the measured repetitions, not the warm-ups.
  if (measured.offload.has_value()) json["offload"] = DescribeCounters(*measured.offload);
  return json;
}

// Reports the expert counters under the names of GetStats. "window" covers the last test, "total"
// covers all tests with their warm-ups.
Json DescribeOffload(const std::vector<Result>& results, const engine::ModelBundle& bundle) {
  engine::ExpertCounts total;
  for (const Result& result : results) {
    total.hits += result.measured.experts.hits;
    total.misses += result.measured.experts.misses;
  }
  Json json = {{"expert_hits_total", total.hits},
               {"expert_misses_total", total.misses},
               {"weight_bytes", bundle.weight_bytes}};
  engine::EngineStats stats;
  stats.offload = bundle.model->offload_stats();
  if (!stats.offload.has_value()) return json;
  const engine::Throughput& last = results.back().measured;
  stats.offload_recent = *last.offload;
  stats.offload_window =
      absl::Seconds(std::accumulate(last.seconds.begin(), last.seconds.end(), 0.0));
  v1::OffloadStats offload;
  ToProto(stats, &offload);
  json.update(ToJson(offload));
  return json;
}

std::string Text(const Json& json) {
  const auto probed = json["probe_bytes"].get<size_t>();
  std::string text = absl::StrFormat(
      "%s on %s\nmemory read at %.1f GB/s, over %s%s\n\n%-12s %14s %24s %12s %10s %12s\n",
      json["model"].get<std::string>(), json["machine"].get<std::string>(),
      json["probe_bytes_per_s"].get<double>() * 1e-9, FormatBytes(static_cast<double>(probed)),
      probed < kernels::kBandwidthProbeBytes ? " (memory is short, so caches may have helped)" : "",
      "test", "tokens/s", "(min to max)", "per token", "of memory", "peak memory");
  for (const Json& result : json["results"]) {
    const Json& speed = result["tokens_per_s"];
    absl::StrAppendFormat(
        &text, "%-12s %14.1f %24s %12s %8.0f %% %12s\n", result["test"].get<std::string>(),
        speed["median"].get<double>(),
        absl::StrFormat("(%.1f to %.1f)", speed["min"].get<double>(), speed["max"].get<double>()),
        FormatBytes(result["bytes_per_token"].get<double>()),
        result["bandwidth_share"].get<double>() * 100,
        FormatBytes(result["peak_rss_bytes"].get<double>()));
  }
  return text;
}

}  // namespace

absl::Status RunBench(const Config& config, Console* console) {
  const std::vector<Test> tests = TestsOf(config.bench);
  ASSIGN_OR_RETURN(const std::unique_ptr<engine::ModelBundle> bundle, LoadBundle(config, console));
  RETURN_IF_ERROR(CheckContext(tests, *bundle));
  RETURN_IF_ERROR(CheckMemory(tests, *bundle));
  ASSIGN_OR_RETURN(const std::vector<Result> results,
                   Measure(config, tests, bundle.get(), console));
  RETURN_IF_ERROR(bundle->model->Finish());
  // This is done last, so that its buffer is not part of any test's peak memory.
  const Bandwidth bandwidth = ProbeBandwidth(bundle->threads);
  Json json;
  json["model"] = bundle->name;
  json["machine"] = absl::StrCat(ProcessorName(), ", ", bundle->backend->Description());
  json["threads"] = bundle->threads;
  json["probe_bytes_per_s"] = bandwidth.bytes_per_s;
  json["probe_bytes"] = bandwidth.bytes;
  json["results"] = Json::array();
  for (const Result& result : results) {
    json["results"].push_back(Describe(result, bandwidth.bytes_per_s));
  }
  json["offload"] = DescribeOffload(results, *bundle);
  return console->PrintResult(config.output.format, json, Text);
}

}  // namespace tidepool::service
