// StreamSink: where a sequence's tokens wait for its caller; the engine's and the caller's halves
// meet here and nowhere else.
#ifndef TIDEPOOL_ENGINE_STREAM_SINK_H_
#define TIDEPOOL_ENGINE_STREAM_SINK_H_

#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine_inbox.h"
#include "engine/sampling/request.h"
#include "engine/scheduler/sequence.h"
#include "engine/stream.h"
#include "kernels/base/mutex.h"

namespace tidepool::engine {

// Thread-safe. What was not taken yet is one chunk, so its size is bounded by the sequence's
// credit.
class StreamSink {
 public:
  // The engine's half. Nothing is pushed after a chunk with a finish, or after End.
  void Push(StreamChunk chunk);
  void End(absl::Status status);

  // The caller's half: Stream says what these mean.
  std::optional<absl::StatusOr<StreamChunk>> TryNext();
  absl::StatusOr<StreamChunk> Next();
  void OnReady(std::function<void()> callback);
  // Returns when no callback runs any more; none will.
  void DropCallback();

 private:
  std::optional<absl::StatusOr<StreamChunk>> TakeLocked() TIDEPOOL_REQUIRES(mutex_);
  void Notify();

  base::Mutex mutex_;
  base::CondVar changed_;
  std::optional<StreamChunk> chunk_ TIDEPOOL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ TIDEPOOL_GUARDED_BY(mutex_);
  bool finished_ TIDEPOOL_GUARDED_BY(mutex_) = false;  // the last chunk was taken

  // Held while the callback runs, and never together with mutex_ taken first: the callback may call
  // TryNext, and whoever drops it waits for it.
  base::Mutex callback_mutex_;
  std::function<void()> callback_ TIDEPOOL_GUARDED_BY(callback_mutex_);
};

// The caller's end of a sequence whose step thread has `shared` and whose tokens come to `sink`.
std::unique_ptr<Stream> MakeStream(std::shared_ptr<EngineInbox> shared,
                                   std::shared_ptr<SequenceControl> control,
                                   std::shared_ptr<StreamSink> sink);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_STREAM_SINK_H_
