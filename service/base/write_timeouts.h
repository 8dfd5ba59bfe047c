// WriteTimeouts: limits how long a write may wait for a client that does not read. While a stream
// waits, it uses an admission slot, so it must not wait without limit.
#ifndef TIDEPOOL_SERVICE_BASE_WRITE_TIMEOUTS_H_
#define TIDEPOOL_SERVICE_BASE_WRITE_TIMEOUTS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "service/base/event_loop.h"

namespace tidepool::service {

// Clients may pause reading. But if output is waiting and the client reads nothing for this time,
// its stream ends. Over HTTP, reading one byte is enough. Over gRPC, the client must read one
// message.
inline constexpr absl::Duration kTakenWithin = absl::Minutes(10);

// Use it on the loop only. All writes share one timer.
class WriteTimeouts {
 public:
  // A write. It is pending until this object is destroyed. It may outlive the WriteTimeouts.
  class Write {
   public:
    Write() = default;
    Write(Write&& other) noexcept { *this = std::move(other); }
    Write& operator=(Write&& other) noexcept;
    ~Write() { Reset(); }
    void Reset();
    bool pending() const { return !writes_.expired(); }

   private:
    friend class WriteTimeouts;
    struct Late {
      absl::Duration since;  // on the monotonic clock
      std::function<void()> tell;
    };
    using Writes = std::map<uint64_t, Late>;  // ordered by their start

    std::weak_ptr<Writes> writes_;
    uint64_t number_ = 0;
  };

  // `loop` and `clock` must outlive this object.
  WriteTimeouts(Executor* loop, const base::Clock* clock, absl::Duration limit)
      : loop_(loop), clock_(clock), limit_(limit) {}

  // Begins a write. If the write is still pending after the limit, `on_late` is called once.
  // `on_late` may end this write and other writes.
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

#endif  // TIDEPOOL_SERVICE_BASE_WRITE_TIMEOUTS_H_
