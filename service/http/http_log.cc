#include "service/http/http_log.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/utf8.h"
#include "service/http/json.h"

namespace tidepool::service {
namespace {

constexpr size_t kMaxShownBytes = 200;

std::string Shown(absl::string_view text) {
  std::string shown;
  base::AppendUtf8Lossy(text.substr(0, kMaxShownBytes), &shown);
  return shown;
}

// Returns a member of an error's JSON, or "" if it is missing or not a string.
std::string NameIn(const Json& error, const char* member) {
  const auto found = error.find(member);
  if (found == error.end() || !found->is_string()) return "";
  const std::string& name = found->get_ref<const std::string&>();
  const bool is_name =
      name.size() <= kMaxShownBytes && std::all_of(name.begin(), name.end(), [](unsigned char c) {
        return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '[' || c == ']';
      });
  return is_name ? name : "";
}

}  // namespace

void HttpLog::OnResponse(absl::string_view route, const HttpHead& head,
                         const HttpResponse& response) {
  {
    base::MutexLock lock(&mutex_);
    ++counts_[{std::string(route), response.status}];
  }
  // Callers without a valid token are logged elsewhere, and a failed probe is reported by its
  // sender.
  const bool logged_elsewhere =
      response.failure_log == HttpResponse::FailureLog::kElsewhere || response.status == 401;
  int64_t left_out = 0;
  if (response.status < 400 || logged_elsewhere || !log_ || !TakeLine(&left_out)) return;
  std::string code, param;
  if (const absl::StatusOr<Json> body = ParseJsonBody(response.body);
      body.ok() && body->contains("error") && (*body)["error"].is_object()) {
    code = NameIn((*body)["error"], "code");
    param = NameIn((*body)["error"], "param");
  }
  const std::string path = Shown(head.path), method = Shown(head.method);
  std::vector<LogField> fields = {{"status", int64_t{response.status}}};
  const std::pair<absl::string_view, absl::string_view> texts[] = {
      {"method", method}, {"path", path}, {"code", code}, {"param", param}};
  for (const auto& [name, text] : texts) {
    if (!text.empty()) fields.push_back({name, text});
  }
  if (left_out > 0) fields.push_back({"left_out", left_out});
  log_(LogLevel::kInfo, "http request refused", fields);
}

bool HttpLog::TakeLine(int64_t* left_out) {
  base::MutexLock lock(&mutex_);
  const absl::Duration now = clock_->Monotonic();
  if (now >= second_ + absl::Seconds(1)) {
    second_ = now;
    lines_ = 0;
  }
  if (lines_ >= kMaxLinesPerSecond) {
    ++left_out_;
    return false;
  }
  ++lines_;
  *left_out = std::exchange(left_out_, 0);
  return true;
}

HttpCounts HttpLog::counts() const {
  base::MutexLock lock(&mutex_);
  return counts_;
}

}  // namespace tidepool::service
