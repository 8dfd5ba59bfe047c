// WholeAnswers: bytes of the answers that are collected to be sent as one, which nobody takes while
// they grow: Complete's, and those of HTTP that are no stream. A principal's answers may grow while
// they hold no more than what is still free: alone they get half of all, two principals' a third
// each. So whoever asks for all of it leaves as much again, and others have room at once.
//
//   WholeAnswers answers(most_bytes);
//   WholeAnswer answer = answers.Begin(principal);
//   if (absl::Status room = answer.Grow(bytes); !room.ok()) return Fail(room);
#ifndef TIDEPOOL_SERVICE_WHOLE_ANSWERS_H_
#define TIDEPOOL_SERVICE_WHOLE_ANSWERS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace tidepool::service {

// One answer, counted until this goes. Thread-compatible.
class WholeAnswer {
 public:
  static constexpr int64_t kMostBytes = int64_t{32} << 20;
  // An answer has room up to here however many others are collected: who asks for long ones keeps
  // nobody out.
  static constexpr int64_t kSmallBytes = int64_t{64} << 10;

  WholeAnswer(WholeAnswer&& other) noexcept
      : all_(std::move(other.all_)),
        principal_(std::move(other.principal_)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  WholeAnswer& operator=(WholeAnswer&&) = delete;
  ~WholeAnswer() { Clear(); }

  // So many bytes more, counted whatever is returned. RESOURCE_EXHAUSTED with a hint: all answers
  // together are past what they may have, or its principal's are, and this one is not small.
  // Requires: not negative.
  absl::Status Grow(int64_t bytes);
  bool IsTooLong() const { return bytes_ > kMostBytes; }
  // Its bytes are gone.
  void Clear();

 private:
  friend class WholeAnswers;
  struct All;
  WholeAnswer(std::shared_ptr<All> all, std::string principal)
      : all_(std::move(all)), principal_(std::move(principal)) {}

  std::shared_ptr<All> all_;
  std::string principal_;
  int64_t bytes_ = 0;
};

// Thread-safe. Answers may outlive it.
class WholeAnswers {
 public:
  // Requires: not negative.
  explicit WholeAnswers(int64_t most_bytes);

  // Without authentication the principal is empty, and may have all.
  WholeAnswer Begin(std::string principal) const { return {all_, std::move(principal)}; }
  int64_t bytes() const;

 private:
  const std::shared_ptr<WholeAnswer::All> all_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WHOLE_ANSWERS_H_
