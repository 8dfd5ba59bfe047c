// ResponseBudget: limits the memory of unsent responses that are sent as one message: responses of
// Complete, and HTTP responses without streaming. The responses of a principal may grow while they
// use at most as much as is still free. So one principal gets half, two get a third each, and there
// is always room for another principal.
//
//   ResponseBudget responses(most_bytes);
//   WholeAnswer response = responses.Begin(principal);
//   if (absl::Status room = response.Grow(bytes); !room.ok()) return Fail(room);
#ifndef TIDEPOOL_SERVICE_BASE_RESPONSE_BUDGET_H_
#define TIDEPOOL_SERVICE_BASE_RESPONSE_BUDGET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace tidepool::service {

// Thread-compatible. One response, counted until it is destroyed.
class WholeAnswer {
 public:
  static constexpr int64_t kMaxBytes = int64_t{32} << 20;
  // Responses up to this size are always allowed, so that long responses do not block short ones.
  static constexpr int64_t kSmallBytes = int64_t{64} << 10;

  WholeAnswer(WholeAnswer&& other) noexcept
      : all_(std::move(other.all_)),
        principal_(std::move(other.principal_)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  WholeAnswer& operator=(WholeAnswer&&) = delete;
  ~WholeAnswer() { Clear(); }

  // Adds bytes. They count even if an error is returned. RESOURCE_EXHAUSTED with a retry hint if
  // this response is larger than kSmallBytes and exceeds the limit of all responses or of the
  // principal's. Requires: bytes >= 0.
  absl::Status Grow(int64_t bytes);
  bool IsTooLong() const { return bytes_ > kMaxBytes; }
  // Frees the bytes of this response.
  void Clear();

 private:
  friend class ResponseBudget;
  struct All;
  WholeAnswer(std::shared_ptr<All> all, std::string principal)
      : all_(std::move(all)), principal_(std::move(principal)) {}

  std::shared_ptr<All> all_;
  std::string principal_;
  int64_t bytes_ = 0;
};

// Thread-safe. Responses may outlive it.
class ResponseBudget {
 public:
  // Requires: most_bytes >= 0.
  explicit ResponseBudget(int64_t most_bytes);

  // Without authentication, the principal is empty and may use the whole budget.
  WholeAnswer Begin(std::string principal) const { return {all_, std::move(principal)}; }
  int64_t bytes() const;

 private:
  const std::shared_ptr<WholeAnswer::All> all_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_RESPONSE_BUDGET_H_
