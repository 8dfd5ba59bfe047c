#include "service/cli/wait_line.h"

#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace tidepool::service {
namespace {

constexpr int kFirstSecond = 3;

}  // namespace

void WaitLine::Start() {
  Stop();
  if (!console_->err_is_terminal()) return;
  stop_ = std::make_unique<absl::Notification>();
  ticker_ = std::thread([this] {
    int second = 0;
    while (!stop_->WaitForNotificationWithTimeout(absl::Seconds(1))) {
      if (++second < kFirstSecond) continue;
      console_->Note(absl::StrFormat("\r\033[Kcomputing the prompt: %d s", second));
    }
    if (second >= kFirstSecond) console_->Note("\r\033[K");
  });
}

void WaitLine::Stop() {
  if (!ticker_.joinable()) return;
  stop_->Notify();
  ticker_.join();
}

}  // namespace tidepool::service
