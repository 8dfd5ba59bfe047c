// RecentCache: keeps the values that were used last, because making them is slow.
//
//   RecentCache<std::string, Grammar, 32> cache;
//   ASSIGN_OR_RETURN(std::shared_ptr<const Grammar> grammar, cache.Get(key, [&] { ... }));
#ifndef TIDEPOOL_KERNELS_BASE_RECENT_CACHE_H_
#define TIDEPOOL_KERNELS_BASE_RECENT_CACHE_H_

#include <algorithm>
#include <cstddef>
#include <list>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"

namespace tidepool::base {

// Thread-safe. For few entries: Get compares the key with all of them.
template <typename Key, typename Value, size_t kMaxEntries>
class RecentCache {
 public:
  using Shared = std::shared_ptr<const Value>;

  // Returns the value of `key`. If the value is not in the cache, calls `make` and keeps its
  // result. Requires: equal keys have equal values. Errors of `make` are returned and not kept.
  absl::StatusOr<Shared> Get(const Key& key, absl::FunctionRef<absl::StatusOr<Shared>()> make) {
    {
      const MutexLock lock(&mutex_);
      const auto found = std::find_if(entries_.begin(), entries_.end(),
                                      [&key](const Entry& entry) { return entry.key == key; });
      if (found != entries_.end()) {
        entries_.splice(entries_.begin(), entries_, found);
        return found->value;
      }
    }
    // Two callers may make the same value at the same time.
    absl::StatusOr<Shared> value = make();
    if (!value.ok()) return value;
    const MutexLock lock(&mutex_);
    entries_.push_front({key, *value});
    if (entries_.size() > kMaxEntries) entries_.pop_back();
    return value;
  }

  // Returns whether the value of `key` is in the cache. This does not count as a use, and another
  // thread's Get can remove the value afterwards.
  bool Contains(const Key& key) {
    const MutexLock lock(&mutex_);
    return std::any_of(entries_.begin(), entries_.end(),
                       [&key](const Entry& entry) { return entry.key == key; });
  }

 private:
  struct Entry {
    Key key;
    Shared value;
  };

  Mutex mutex_;
  std::list<Entry> entries_ TIDEPOOL_GUARDED_BY(mutex_);  // the last used one is the first
};

}  // namespace tidepool::base

#endif  // TIDEPOOL_KERNELS_BASE_RECENT_CACHE_H_
