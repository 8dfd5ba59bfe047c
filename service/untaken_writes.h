// UntakenWrites: writes to clients that do not take them. A stream that is not read costs the others
// nothing but its place, which it has no right to for ever.
#ifndef TIDEPOOL_SERVICE_UNTAKEN_WRITES_H_
#define TIDEPOOL_SERVICE_UNTAKEN_WRITES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "service/event_loop.h"

namespace tidepool::service {

// A client may stop reading a stream and go on later; when it has taken nothing for so long of what
// there is for it, it is given up. Over HTTP a byte is enough, over gRPC it takes a message.
inline constexpr absl::Duration kTakenWithin = absl::Minutes(10);

// Loop only. One timer, however many writes there are.
class UntakenWrites {
 public:
  // One that is under way, for as long as this lives. May outlive the UntakenWrites.
  class Write {
   public:
    Write() = default;
    Write(Write&& other) noexcept { *this = std::move(other); }
    Write& operator=(Write&& other) noexcept;
    ~Write() { Reset(); }
    void Reset();
    bool under_way() const { return !writes_.expired(); }

   private:
    friend class UntakenWrites;
    struct Late {
      absl::Duration since;  // on the monotonic clock
      std::function<void()> tell;
    };
    using Writes = std::map<uint64_t, Late>;  // in the order of their beginning

    std::weak_ptr<Writes> writes_;
    uint64_t number_ = 0;
  };

  // Loop and clock outlive this.
  UntakenWrites(Executor* loop, const base::Clock* clock, absl::Duration limit)
      : loop_(loop), clock_(clock), limit_(limit) {}

  // `on_late` is called once, when it has been under way for the limit. It may end it, and others.
  [[nodiscard]] Write Begin(std::function<void()> on_late);

 private:
  void LookAfter(absl::Duration wait);
  void Look();

  Executor* loop_;
  const base::Clock* clock_;
  const absl::Duration limit_;
  const std::shared_ptr<Write::Writes> writes_ = std::make_shared<Write::Writes>();
  uint64_t next_number_ = 1;
  bool looks_later_ = false;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_UNTAKEN_WRITES_H_
