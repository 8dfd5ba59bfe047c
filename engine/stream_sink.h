// StreamSink: passes the tokens of a sequence from the step thread to the caller.
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

// Thread-safe. Everything that the caller has not taken yet is merged into one chunk. Its size is
// limited by the credit of the sequence.
class StreamSink {
 public:
  // For the engine. After a chunk with a finish, and after End, nothing may be pushed.
  void Push(StreamChunk chunk);
  void End(absl::Status status);

  // For the caller. Stream documents these functions.
  std::optional<absl::StatusOr<StreamChunk>> TryNext();
  absl::StatusOr<StreamChunk> Next();
  void OnReady(std::function<void()> callback);
  // Removes the callback. Returns when it is not running, so that it is never called later.
  void DropCallback();

 private:
  std::optional<absl::StatusOr<StreamChunk>> TakeLocked() TIDEPOOL_REQUIRES(mutex_);
  void Notify();

  base::Mutex mutex_;
  base::CondVar changed_;
  std::optional<StreamChunk> chunk_ TIDEPOOL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ TIDEPOOL_GUARDED_BY(mutex_);
  bool finished_ TIDEPOOL_GUARDED_BY(mutex_) = false;  // the caller has taken the last chunk

  // Held while the callback runs. Never take it while you hold mutex_, because the callback may
  // call TryNext, and DropCallback waits for the callback.
  base::Mutex callback_mutex_;
  std::function<void()> callback_ TIDEPOOL_GUARDED_BY(callback_mutex_);
};

// Creates the caller's Stream of a sequence whose tokens are passed to `sink`. `shared` is the
// inbox of the step thread.
std::unique_ptr<Stream> MakeStream(std::shared_ptr<EngineInbox> shared,
                                   std::shared_ptr<SequenceControl> control,
                                   std::shared_ptr<StreamSink> sink);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_STREAM_SINK_H_
