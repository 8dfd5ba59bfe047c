// ResponseBudget: limits the memory of responses that are sent as one message: the responses of
// Complete, and HTTP responses without streaming. They need memory until they are complete and
// sent.
//
// The responses of one principal may together use at most as many bytes as are still free. So a
// single principal can use half of the budget, and two principals can use a third each. Another
// principal always finds free bytes.
//
//   ResponseBudget responses(max_bytes);
//   WholeResponse response = responses.Begin(principal);
//   if (absl::Status room = response.Grow(bytes); !room.ok()) return Fail(room);
#ifndef TIDEPOOL_SERVICE_BASE_RESPONSE_BUDGET_H_
#define TIDEPOOL_SERVICE_BASE_RESPONSE_BUDGET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace tidepool::service {

// One response. Its bytes are counted until it is destroyed. Thread-compatible.
class WholeResponse {
 public:
  static constexpr int64_t kMaxBytes = int64_t{32} << 20;
  // Responses up to this size are always allowed, so that long responses of others cannot block
  // them.
  static constexpr int64_t kSmallBytes = int64_t{64} << 10;

  WholeResponse(WholeResponse&& other) noexcept
      : all_(std::move(other.all_)),
        principal_(std::move(other.principal_)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  WholeResponse& operator=(WholeResponse&&) = delete;
  ~WholeResponse() { Clear(); }

  // Adds bytes to this response. They are counted even if an error is returned. RESOURCE_EXHAUSTED,
  // with a retry hint, if this response is larger than kSmallBytes and either all responses, or the
  // responses of its principal, exceed their limit. Requires: bytes >= 0.
  absl::Status Grow(int64_t bytes);
  bool IsTooLong() const { return bytes_ > kMaxBytes; }
  // Stops counting the bytes of this response.
  void Clear();

 private:
  friend class ResponseBudget;
  struct All;
  WholeResponse(std::shared_ptr<All> all, std::string principal)
      : all_(std::move(all)), principal_(std::move(principal)) {}

  std::shared_ptr<All> all_;
  std::string principal_;
  int64_t bytes_ = 0;
};

// Thread-safe. Responses may outlive this object.
class ResponseBudget {
 public:
  // Requires: max_bytes >= 0.
  explicit ResponseBudget(int64_t max_bytes);

  // Without authentication, all responses have the empty principal, which may use the whole budget.
  WholeResponse Begin(std::string principal) const { return {all_, std::move(principal)}; }
  int64_t bytes() const;

 private:
  const std::shared_ptr<WholeResponse::All> all_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_RESPONSE_BUDGET_H_
