// ProtectedCopies: the copies of the protected backend that run beside its ops, and the host memory
// that is pinned for them.
#ifndef TIDEPOOL_TESTS_KERNELS_PROTECTED_COPIES_H_
#define TIDEPOOL_TESTS_KERNELS_PROTECTED_COPIES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/backend.h"

namespace tidepool::kernels {

// Thread-compatible. A copy reads its source when it runs. The process ends if the source has
// changed since the copy began, is not pinned, or is unpinned before the copy has run.
class ProtectedCopies {
 public:
  struct Options {
    uint64_t seed = 1;
    size_t pinned_bytes = SIZE_MAX;  // limit of all pinned memory together
    CopyTicket failing_copy = 0;     // Run returns an error for this copy; 0: for none
  };
  explicit ProtectedCopies(const Options& options) : options_(options), random_(options.seed) {}
  ~ProtectedCopies();

  absl::Status Pin(absl::Span<std::byte> memory);
  void Unpin(absl::Span<std::byte> memory);

  // Begins a copy. `ops` is the number of ops before the copy's mark; all of them must run before
  // the copy.
  CopyTicket Begin(absl::Span<const std::byte> from, std::byte* to, int64_t ops);
  void Await(CopyTicket copy);
  // Ends the process if the bytes are the target of a copy that was not awaited.
  void CheckAwaited(const void* data, size_t bytes) const;

  bool all_have_run() const { return pending_ == 0; }
  bool HasRun(CopyTicket copy) const;
  // Returns the number of ops that must run before the copy. Requires: the copy has not run.
  int64_t OpsBefore(CopyTicket copy) const { return records_.at(copy).ops; }
  // Returns a copy that has not run, or 0 if all have run.
  CopyTicket PickRandom();
  // Returns whether a copy must run now, because callers have asked for its time often enough.
  bool AskedOften(CopyTicket copy);
  // Runs the copy if it has not run. Earlier copies that write the same bytes run first. Requires:
  // the target is open.
  absl::Status Run(CopyTicket copy);
  // Drops the copies that have not run.
  void DropAll();
  // Returns an invented time, and forgets the copy. Requires: the copy has run.
  absl::Duration TakeTime(CopyTicket copy);

 private:
  struct Record {
    absl::Span<const std::byte> from;
    std::byte* to = nullptr;
    int64_t ops = 0;
    size_t hash = 0;  // of the source, when the copy began
    bool awaited = false;
    bool has_run = false;
    uint64_t asks_left = 0;
  };

  const Options options_;
  std::mt19937_64 random_;
  CopyTicket begun_ = 0;
  size_t pending_ = 0;                         // number of records that have not run
  std::map<CopyTicket, Record> records_;       // without those whose time was taken
  std::map<const std::byte*, size_t> pinned_;  // sizes by the first byte
  size_t pinned_bytes_ = 0;
};

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_TESTS_KERNELS_PROTECTED_COPIES_H_
