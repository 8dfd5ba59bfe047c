#include "service/auth/file_watch.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tidepool::service {
namespace {

constexpr absl::Duration kPeriod = absl::Seconds(1);

}  // namespace

void FileWatch::Add(std::string what, Reread reread) {
  if (loop_ == nullptr) loop_ = std::make_unique<EventLoop>();
  LookLater(loop_.get(), std::move(what), std::move(reread));
}

void FileWatch::LookLater(EventLoop* loop, std::string what, Reread reread) {
  loop->PostAfter(kPeriod, [this, loop, what = std::move(what), reread = std::move(reread)] {
    const absl::StatusOr<Rereading> found = reread();
    if (!found.ok()) {
      log_(LogLevel::kWarn,
           absl::StrCat(found.status().message(), "; the previous version stays in use"));
    } else if (*found == Rereading::kChanged) {
      log_(LogLevel::kInfo, absl::StrCat(what, " has changed; the new version is in use"));
    }
    LookLater(loop, what, reread);
  });
}

}  // namespace tidepool::service
