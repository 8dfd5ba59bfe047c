// LaneCosts: estimates the cost of copying an expert to the device, and the cost of computing it on
// the CPU. Divides the misses of a layer between these two lanes.
//
//   const size_t copies = costs.Split({.seconds_ahead = 2e-5, .max_copies = 8}, &misses);
//   // misses[0, copies) are copied, the others are computed by the CPU
//   costs.NoteCopy(bytes, seconds);  // after a copy has ended
//   costs.NoteHostWork(bytes, row_bytes, seconds);  // after the CPU has computed experts
//
// Both lanes work at the same time, and the layer ends when the slower one ends. The device's own
// time for the experts is not part of the model, because it is short compared with a copy.
#ifndef TIDEPOOL_MOE_DEVICE_LANE_COSTS_H_
#define TIDEPOOL_MOE_DEVICE_LANE_COSTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tidepool::moe {

// An expert that is in the host's memory and not in the device's.
struct LaneMiss {
  int64_t expert = 0;  // not used by LaneCosts
  int64_t bytes = 0;
  int64_t rows = 0;      // number of rows that need it
  bool is_kept = false;  // the placement wants it on the device, so it is copied in any case
};

struct LaneLimits {
  double seconds_ahead = 0;  // time until the copies that have begun are expected to end
  size_t max_copies = 0;
};

// Thread-compatible. Uses no clock.
class LaneCosts {
 public:
  // Adds a measurement: a copy of `bytes` took `seconds`.
  void NoteCopy(int64_t bytes, double seconds);
  // Adds a measurement: the CPU took `seconds` for experts. `bytes` is the sum of their bytes, and
  // `row_bytes` the sum of bytes * rows.
  void NoteHostWork(int64_t bytes, int64_t row_bytes, double seconds);

  // The current estimates.
  double CopySeconds(int64_t bytes) const;
  double HostSeconds(int64_t bytes, int64_t rows) const;

  // The estimates as bytes per second; 0 before the first measurement. HostBytesPerSecond is for
  // experts with one row.
  double CopyBytesPerSecond() const {
    return copy_seconds_ > 0 ? copied_bytes_ / copy_seconds_ : 0;
  }
  double HostBytesPerSecond() const {
    return host_trust_ > 0 ? 1 / (byte_seconds_ + row_byte_seconds_) : 0;
  }

  // Sorts the misses, and returns the number of misses to copy: these are the first ones. With this
  // number, both lanes end as soon as possible. Prefers to copy experts that are kept, and experts
  // with many rows. A lane that was not measured yet costs nothing, so it is tried. The longer a
  // lane is not used, the lower its estimate becomes, so that a wrong estimate is corrected.
  size_t Split(const LaneLimits& limits, std::vector<LaneMiss>* misses);

  // Returns whether a copy that no layer waits for may begin now. Returns false if this copy would
  // delay a layer's copies by too much.
  bool MayCopyForLater(int64_t bytes, double seconds_ahead) const {
    return seconds_ahead <= kMaxLaterCopies * CopySeconds(bytes);
  }

 private:
  // Copies that no layer waits for do not begin while the copies in flight need longer than this
  // number of copies.
  static constexpr double kMaxLaterCopies = 4;

  void FitHost();

  double copied_bytes_ = 0;  // decaying sums of the copies
  double copy_seconds_ = 0;
  double copy_trust_ = 0;  // factor of the estimate; 0 before the first measurement, at most 1

  // Decaying sums of the products of bytes, row bytes and seconds.
  double bytes_bytes_ = 0;
  double bytes_rows_ = 0;
  double rows_rows_ = 0;
  double bytes_seconds_ = 0;
  double rows_seconds_ = 0;
  double byte_seconds_ = 0;      // estimated time of the CPU for each byte of an expert
  double row_byte_seconds_ = 0;  // estimated additional time for each byte and row
  double host_trust_ = 0;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_DEVICE_LANE_COSTS_H_
