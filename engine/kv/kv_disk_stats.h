// Statistics about the disk that extends a KV cache.
#ifndef TIDEPOOL_ENGINE_KV_KV_DISK_STATS_H_
#define TIDEPOOL_ENGINE_KV_KV_DISK_STATS_H_

#include <cstdint>

namespace tidepool::engine {

struct KvDiskStats {
  int64_t limit_bytes = 0;
  int64_t blocks = 0;  // number of stored blocks
  int64_t bytes = 0;   // bytes of all stored blocks
  // The rest are totals since the start.
  int64_t written_blocks = 0;
  int64_t read_blocks = 0;
  // number of blocks that were not written, because the disk was too slow or full
  int64_t dropped_blocks = 0;
  int64_t damaged_blocks = 0;  // blocks whose content differed from what was written
  int64_t failed_reads = 0;    // reads that failed with an error of the file system
  int64_t failed_writes = 0;
};

struct KvRestoreStats {
  int64_t restores = 0;  // number of restores that began
  int64_t tokens = 0;    // number of tokens whose KV was read and not computed
  // Number of restores that were interrupted: the disk was slower than computing, a block was
  // damaged, the request ended, or there was no KV memory.
  int64_t given_up = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_KV_KV_DISK_STATS_H_
