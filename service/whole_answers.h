// WholeAnswers: bytes of the answers that are collected to be sent as one, which nobody takes while
// they grow: Complete's, and those of HTTP that are no stream.
//
//   WholeAnswers answers(most_bytes);
//   WholeAnswer answer = answers.Begin();
//   if (absl::Status room = answer.Grow(bytes); !room.ok()) return Fail(room);
#ifndef TIDEPOOL_SERVICE_WHOLE_ANSWERS_H_
#define TIDEPOOL_SERVICE_WHOLE_ANSWERS_H_

#include <atomic>
#include <cstdint>
#include <memory>
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
      : all_(std::move(other.all_)), bytes_(std::exchange(other.bytes_, 0)) {}
  WholeAnswer& operator=(WholeAnswer&&) = delete;
  ~WholeAnswer() { Clear(); }

  // So many bytes more, counted whatever is returned. RESOURCE_EXHAUSTED with a hint: all answers
  // together are past what they may have, and this one is not small. Requires: not negative.
  absl::Status Grow(int64_t bytes);
  bool IsTooLong() const { return bytes_ > kMostBytes; }
  // Its bytes are gone.
  void Clear();

 private:
  friend class WholeAnswers;
  struct All {
    const int64_t most_bytes;
    std::atomic<int64_t> bytes = 0;
  };
  explicit WholeAnswer(std::shared_ptr<All> all) : all_(std::move(all)) {}

  std::shared_ptr<All> all_;
  int64_t bytes_ = 0;
};

// Thread-safe. Answers may outlive it.
class WholeAnswers {
 public:
  explicit WholeAnswers(int64_t most_bytes)
      : all_(new WholeAnswer::All{.most_bytes = most_bytes}) {}

  WholeAnswer Begin() const { return WholeAnswer(all_); }
  int64_t bytes() const { return all_->bytes; }

 private:
  const std::shared_ptr<WholeAnswer::All> all_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WHOLE_ANSWERS_H_
