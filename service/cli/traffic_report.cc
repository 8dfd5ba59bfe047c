#include "service/cli/traffic_report.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace tidepool::service {
namespace {

// Quantiles by nearest rank. Null if `seconds` is empty.
Json Quantiles(std::vector<float> seconds) {
  if (seconds.empty()) return nullptr;
  std::sort(seconds.begin(), seconds.end());
  const auto rank = [&](size_t percent) {
    return seconds[(seconds.size() * percent + 99) / 100 - 1];
  };
  return {{"p50", rank(50)}, {"p90", rank(90)}, {"p99", rank(99)}, {"max", seconds.back()}};
}

std::string QuantileLine(const char* name, const Json& seconds) {
  if (seconds.is_null()) return absl::StrFormat("  %-12s none\n", name);
  const auto ms = [&](const char* key) { return 1e3 * seconds[key].get<double>(); };
  return absl::StrFormat("  %-12s p50 %9.2f ms   p90 %9.2f ms   p99 %9.2f ms   max %9.2f ms\n",
                         name, ms("p50"), ms("p90"), ms("p99"), ms("max"));
}

// Formats counts such as "62 (RESOURCE_EXHAUSTED 60, UNAVAILABLE 2)".
std::string ByCode(const Json& counts) {
  int64_t total = 0;
  std::vector<std::string> parts;
  for (const auto& [code, count] : counts.items()) {
    total += count.get<int64_t>();
    parts.push_back(absl::StrCat(code, " ", count.get<int64_t>()));
  }
  if (parts.empty()) return "0";
  return absl::StrCat(total, " (", absl::StrJoin(parts, ", "), ")");
}

double Share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

}  // namespace

void TrafficReport::Add(const RequestOutcome& outcome) {
  if (window_.Holds(outcome.planned)) Count(outcome);
  if (outcome.status.ok() && window_.Holds(outcome.ended)) ++ended_within_;
  const TokenArrival* before = nullptr;
  for (const TokenArrival& arrival : outcome.arrivals) {
    if (window_.Holds(arrival.time)) {
      tokens_within_ += arrival.tokens;
      if (before != nullptr) {
        inter_token_s_.push_back(
            static_cast<float>(absl::ToDoubleSeconds(arrival.time - before->time)));
      }
    }
    before = &arrival;
  }
}

void TrafficReport::Count(const RequestOutcome& outcome) {
  ++sent_;
  retries_ += outcome.retries;
  sent_late_s_.push_back(static_cast<float>(absl::ToDoubleSeconds(outcome.sent - outcome.planned)));
  const bool has_tokens = !outcome.arrivals.empty();
  if (has_tokens) {
    ++accepted_;
    first_token_s_.push_back(
        static_cast<float>(absl::ToDoubleSeconds(outcome.arrivals.front().time - outcome.planned)));
    messages_ += static_cast<int64_t>(outcome.arrivals.size());
    for (const TokenArrival& arrival : outcome.arrivals) tokens_ += arrival.tokens;
  }
  if (outcome.status.ok()) {
    ++completed_;
    prompt_tokens_ += outcome.prompt_tokens;
    cached_tokens_ += outcome.cached_tokens;
  } else if (absl::IsCancelled(outcome.status)) {
    ++unfinished_;
  } else {
    ++(has_tokens ? broken_ : refused_)[absl::StatusCodeToString(outcome.status.code())];
  }
}

Json TrafficReport::ToJson() const {
  const double seconds = absl::ToDoubleSeconds(window_.end - window_.begin);
  Json json;
  json["requests"] = {{"sent", sent_},           {"accepted", accepted_},
                      {"completed", completed_}, {"refused", Json(refused_)},
                      {"broken", Json(broken_)}, {"unfinished", unfinished_},
                      {"retries", retries_}};
  json["goodput"] = {{"requests_per_s", static_cast<double>(ended_within_) / seconds},
                     {"tokens_per_s", static_cast<double>(tokens_within_) / seconds}};
  json["first_token_s"] = Quantiles(first_token_s_);
  json["inter_token_s"] = Quantiles(inter_token_s_);
  json["sent_late_s"] = Quantiles(sent_late_s_);
  json["tokens_per_message"] = Share(tokens_, messages_);
  json["prompt_tokens"] = prompt_tokens_;
  json["cached_tokens"] = cached_tokens_;
  return json;
}

std::string TrafficText(const Json& report) {
  const Json& requests = report["requests"];
  const Json& goodput = report["goodput"];
  std::string text = absl::StrFormat(
      "  requests     %d sent, %d accepted, %d completed; refused %s, broken %s, unfinished %d\n",
      requests["sent"].get<int64_t>(), requests["accepted"].get<int64_t>(),
      requests["completed"].get<int64_t>(), ByCode(requests["refused"]), ByCode(requests["broken"]),
      requests["unfinished"].get<int64_t>());
  if (const int64_t retries = requests["retries"].get<int64_t>(); retries > 0) {
    absl::StrAppendFormat(&text, "  retries      %d\n", retries);
  }
  absl::StrAppendFormat(
      &text, "  goodput      %.2f requests/s, %.1f tokens/s; %.2f tokens per message\n",
      goodput["requests_per_s"].get<double>(), goodput["tokens_per_s"].get<double>(),
      report["tokens_per_message"].get<double>());
  absl::StrAppend(&text, QuantileLine("first token", report["first_token_s"]),
                  QuantileLine("inter-token", report["inter_token_s"]));
  const int64_t prompt_tokens = report["prompt_tokens"].get<int64_t>();
  absl::StrAppendFormat(&text, "  prompts      %d tokens, %.1f %% of them cached\n", prompt_tokens,
                        100 * Share(report["cached_tokens"].get<int64_t>(), prompt_tokens));
  return text;
}

}  // namespace tidepool::service
