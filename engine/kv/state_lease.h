// StateLease: the recurrent states of one sequence, for models that have such states.
//
// A state consists of blocks, which are called its parts. A state never changes after the pass that
// wrote it. A pass reads the state `in` and writes the state `out` to other blocks. When the pass
// is committed, the sequence releases `in`, and `out` becomes the next `in`. So a pass can be
// computed again, and sequences can share a state.
//
// A checkpoint is a state that is in the index. Its position is a boundary between two blocks of
// tokens, and its parts have the key {hash of the block before the boundary, group of the part}.
// A pass writes a checkpoint as a snapshot, or as `out` if the pass ends at the boundary. A
// sequence keeps these checkpoints:
// - the checkpoint of its last boundary (the rolling one), to continue if it is preempted or ends.
//   It is wanted (BlockPool::Want), and not held, so that it may be evicted if memory is short;
// - one at the end of its prompt, and one at each boundary where other sequences branch off. These
//   boundaries are called known. Their checkpoints are cached with the value kBoundary;
// - in its prompt, former rolling checkpoints that are at least kPassedStateBlocks apart, with the
//   value kPassed;
// - in its prompt, spare checkpoints at equal distances, with the value kSpare. A sequence that is
//   submitted during a pass may branch off inside the rows of the pass.
//
// A sequence that begins with a checkpoint supersedes the checkpoints before it: they get the value
// kSpare, unless several sequences began with them. So the older checkpoints of a session are
// evicted before the last one of any session.
#ifndef TIDEPOOL_ENGINE_KV_STATE_LEASE_H_
#define TIDEPOOL_ENGINE_KV_STATE_LEASE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/kv/block_hash.h"
#include "engine/kv/block_pool.h"
#include "engine/kv/kv_blocks.h"
#include "kernels/recurrent_state.h"

namespace tidepool::engine {

// The values of BlockKey::group that the parts of states use: [first, first + count).
struct StateGroups {
  int first = 0;
  int count = 0;  // 0 if the model has no recurrent state
};

// The tokens of a sequence, and the hashes of its full blocks.
struct HashedTokens {
  absl::Span<const BlockHash> hashes;
  absl::Span<const int32_t> tokens;
  // The hash and the tokens of the block before a boundary. `boundary` is a number of blocks.
  const BlockHash& HashBefore(int64_t boundary) const { return hashes[boundary - 1]; }
  absl::Span<const int32_t> TokensBefore(int64_t boundary) const {
    return tokens.subspan((boundary - 1) * kernels::kKvBlockTokens, kernels::kKvBlockTokens);
  }
};

// Engine thread only. Movable. KvLease calls Release before it destroys it.
class StateLease {
 public:
  // The prompt's checkpoint is this number of tokens before the prompt's end, or up to a block
  // earlier. The last tokens of a prompt often differ in the next request of the same chat, because
  // they only announce the response.
  static constexpr int64_t kPromptEndTokens = 8;
  static constexpr int64_t kPassedStateBlocks = 8;

  StateLease() = default;
  StateLease(KvBlocks* blocks, const StateGroups& groups, int64_t prompt_tokens);

  // The blocks of the state that the next pass reads (empty: the state is zero), and of the one
  // that it writes.
  absl::Span<const int32_t> in() const { return in_; }
  absl::Span<const int32_t> out() const { return out_; }
  // The snapshots that the next pass writes.
  std::vector<kernels::StateSnapshot> Snapshots() const;
  // Number of blocks that the lease holds.
  int64_t blocks_held() const;
  // Number of blocks that only this lease holds.
  int64_t blocks_held_alone() const;

  // Makes the checkpoint of a boundary the current state. Requires: it is in memory.
  void Attach(int64_t boundary, const HashedTokens& hashed);
  // Adds a known boundary. 0 is not added.
  void AddBoundary(int64_t boundary);
  // Records that the sequence begins with the attached checkpoint. Supersedes the checkpoints
  // before it.
  void NoteStart(const HashedTokens& hashed);

  // Reserves blocks for `out`. If there are not enough, returns false and changes nothing.
  bool Reserve();
  // Reserves blocks for the checkpoints that a pass over the slots [slots(), slots) should write,
  // as long as there are free blocks that no sequence wants.
  void ReserveSnapshots(int64_t slots, const HashedTokens& hashed);
  // Reserves blocks for spare checkpoints in a pass over the slots [slots(), slots) of the prompt.
  // Evicts nothing but spare blocks.
  void ReserveSpareSnapshots(int64_t slots, const HashedTokens& hashed);
  // Releases the blocks of `out` and of the snapshots.
  void Unreserve();
  // Must be called when the pass over the slots [slots(), slots) was computed. Requires: Reserve
  // was called.
  void Commit(int64_t slots, const HashedTokens& hashed);

  // Releases all states, so that the current state is zero. The rolling checkpoint is cached as if
  // it were released last, because the next turn of a session continues from it. `hashes` are those
  // of the sequence's blocks.
  void Release(absl::Span<const BlockHash> hashes);

 private:
  struct Snapshot {
    int64_t boundary = 0;
    std::vector<int32_t> blocks;
    bool spare = false;
    friend bool operator<(const Snapshot& a, const Snapshot& b) { return a.boundary < b.boundary; }
  };

  BlockKey KeyOf(const BlockHash& hash, int part) const { return {hash, groups_.first + part}; }
  bool IsBranch(int64_t boundary) const;
  bool IsKnown(int64_t boundary) const;
  BlockValue PassedValue(int64_t boundary);
  std::vector<int64_t> BoundariesWithin(int64_t slots) const;
  bool Allocate(BlockUse use, std::vector<int32_t>* state);
  void Drop(std::vector<int32_t>* state, BlockValue value);
  void Index(const std::vector<int32_t>& state, int64_t boundary, const HashedTokens& hashed);
  void Unwant(const BlockHash& hash, BlockValue value);
  void Roll(int64_t boundary, const HashedTokens& hashed);

  KvBlocks* blocks_ = nullptr;
  StateGroups groups_;
  int64_t prompt_boundary_ = 0;
  // Number of blocks from one spare checkpoint to the next; 0: there are none. The checkpoints of
  // one prompt take at most 1 / BlockPool::kSpareShare of the memory.
  int64_t spare_distance_ = 0;
  int64_t slots_ = 0;  // the position of `in_`
  std::vector<int32_t> in_;
  std::vector<int32_t> out_;
  std::vector<Snapshot> snapshots_;  // ascending
  std::vector<int64_t> known_;       // the known boundaries, except prompt_boundary_
  int64_t rolling_ = 0;              // the boundary of the rolling checkpoint; 0: none
  int64_t last_passed_ = 0;          // the last boundary that got the value kPassed
};

// Returns whether `places` contain all parts of the checkpoint of a boundary.
bool HasCheckpoint(const KvBlocks& blocks, const StateGroups& groups, int64_t boundary,
                   const HashedTokens& hashed, KvPlaces places);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_KV_STATE_LEASE_H_
