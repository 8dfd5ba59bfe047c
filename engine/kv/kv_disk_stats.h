// What the disk beneath a KV cache has done.
#ifndef TIDEPOOL_ENGINE_KV_KV_DISK_STATS_H_
#define TIDEPOOL_ENGINE_KV_KV_DISK_STATS_H_

#include <cstdint>

namespace tidepool::engine {

struct KvDiskStats {
  int64_t limit_bytes = 0;
  int64_t blocks = 0;  // that are there
  int64_t bytes = 0;   // of these
  // Totals since start.
  int64_t written_blocks = 0;
  int64_t read_blocks = 0;
  int64_t dropped_blocks = 0;  // given up in memory faster than the disk takes them, or it is full
  int64_t damaged_blocks = 0;  // not what was written
  int64_t failed_reads = 0;    // errors of the file system
  int64_t failed_writes = 0;
};

struct KvRestoreStats {
  int64_t restores = 0;  // begun
  int64_t tokens = 0;    // whose KV was read instead of computed
  // Cut short: the disk was slower than computing, a block was damaged, its request ended, or KV
  // memory ran out or went to others.
  int64_t given_up = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_KV_KV_DISK_STATS_H_
