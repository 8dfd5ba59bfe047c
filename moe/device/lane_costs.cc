#include "moe/device/lane_costs.h"

#include <algorithm>

namespace tidepool::moe {
namespace {

// Factor by which the weight of earlier measurements shrinks when one is added.
constexpr double kCopyDecay = 0.98;
constexpr double kHostDecay = 0.95;
// Factor by which a lane's estimate shrinks for each layer that does not use the lane. After 700
// such layers, the estimate is half.
constexpr double kUnusedDecay = 0.999;

// The estimates before there are measurements. If all experts have the same number of rows, only
// the sum of both parts can be measured. Then these values determine how the sum is divided.
constexpr double kPriorByteSeconds = 1 / 20e9;
constexpr double kPriorRowByteSeconds = 1 / 100e9;
constexpr double kPriorBytes = 1e5;

}  // namespace

void LaneCosts::NoteCopy(int64_t bytes, double seconds) {
  copied_bytes_ = copied_bytes_ * kCopyDecay + static_cast<double>(bytes);
  copy_seconds_ = copy_seconds_ * kCopyDecay + seconds;
  copy_trust_ = 1;
}

void LaneCosts::NoteHostWork(int64_t bytes, int64_t row_bytes, double seconds) {
  const auto b = static_cast<double>(bytes);
  const auto r = static_cast<double>(row_bytes);
  bytes_bytes_ = bytes_bytes_ * kHostDecay + b * b;
  bytes_rows_ = bytes_rows_ * kHostDecay + b * r;
  rows_rows_ = rows_rows_ * kHostDecay + r * r;
  bytes_seconds_ = bytes_seconds_ * kHostDecay + b * seconds;
  rows_seconds_ = rows_seconds_ * kHostDecay + r * seconds;
  host_trust_ = 1;
  FitHost();
}

// Least squares of seconds = bytes * byte_seconds_ + row_bytes * row_byte_seconds_. The prior
// counts as one small measurement of each part. Neither part may be negative.
void LaneCosts::FitHost() {
  const double prior = kPriorBytes * kPriorBytes;
  const double bb = bytes_bytes_ + prior;
  const double rr = rows_rows_ + prior;
  const double bs = bytes_seconds_ + prior * kPriorByteSeconds;
  const double rs = rows_seconds_ + prior * kPriorRowByteSeconds;
  const double determinant = bb * rr - bytes_rows_ * bytes_rows_;  // positive, due to the prior
  byte_seconds_ = (bs * rr - rs * bytes_rows_) / determinant;
  row_byte_seconds_ = (rs * bb - bs * bytes_rows_) / determinant;
  if (byte_seconds_ < 0) {
    byte_seconds_ = 0;
    row_byte_seconds_ = rs / rr;
  } else if (row_byte_seconds_ < 0) {
    byte_seconds_ = bs / bb;
    row_byte_seconds_ = 0;
  }
}

double LaneCosts::CopySeconds(int64_t bytes) const {
  if (copied_bytes_ == 0) return 0;
  return copy_trust_ * static_cast<double>(bytes) * copy_seconds_ / copied_bytes_;
}

double LaneCosts::HostSeconds(int64_t bytes, int64_t rows) const {
  return host_trust_ * static_cast<double>(bytes) *
         (byte_seconds_ + static_cast<double>(rows) * row_byte_seconds_);
}

size_t LaneCosts::Split(const LaneLimits& limits, std::vector<LaneMiss>* misses) {
  if (misses->empty()) return 0;
  std::sort(misses->begin(), misses->end(), [](const LaneMiss& a, const LaneMiss& b) {
    if (a.is_kept != b.is_kept) return a.is_kept;
    return a.rows != b.rows ? a.rows > b.rows : a.expert < b.expert;
  });
  double host_end = 0;
  for (const LaneMiss& miss : *misses) host_end += HostSeconds(miss.bytes, miss.rows);
  size_t copies = 0;
  double best = host_end;
  double copy_end = limits.seconds_ahead;
  const size_t most = std::min(misses->size(), limits.max_copies);
  for (size_t i = 0; i < most; ++i) {
    copy_end += CopySeconds((*misses)[i].bytes);
    host_end -= HostSeconds((*misses)[i].bytes, (*misses)[i].rows);
    const double end = std::max(copy_end, host_end);
    if (end >= best) continue;
    best = end;
    copies = i + 1;
  }
  if (copies == 0 && most > 0) copy_trust_ *= kUnusedDecay;
  if (copies == misses->size()) host_trust_ *= kUnusedDecay;
  return copies;
}

}  // namespace tidepool::moe
