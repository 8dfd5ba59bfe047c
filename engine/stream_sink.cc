#include "engine/stream_sink.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <utility>

#include "kernels/base/check.h"

namespace tidepool::engine {
namespace {

class StreamImpl final : public Stream {
 public:
  StreamImpl(std::shared_ptr<EngineInbox> shared, std::shared_ptr<SequenceControl> control,
             std::shared_ptr<StreamSink> sink)
      : shared_(std::move(shared)), control_(std::move(control)), sink_(std::move(sink)) {}

  ~StreamImpl() override {
    Cancel();
    sink_->DropCallback();
  }

  std::optional<absl::StatusOr<StreamChunk>> TryNext() override { return sink_->TryNext(); }
  absl::StatusOr<StreamChunk> Next() override { return sink_->Next(); }
  void OnReady(std::function<void()> callback) override { sink_->OnReady(std::move(callback)); }

  void AddCredit(int64_t tokens) override {
    if (tokens <= 0) return;
    int64_t before = control_->credit.load();
    int64_t after = 0;
    do {
      const int64_t room = std::numeric_limits<int64_t>::max() - std::max<int64_t>(before, 0);
      after = before + std::min(tokens, room);
    } while (!control_->credit.compare_exchange_weak(before, after));
    // If credit was left before, the step thread was not waiting for credit.
    if (before <= 0) shared_->Wake();
  }

  void Cancel() override {
    if (!control_->cancelled.exchange(true)) shared_->Wake();
  }

 private:
  std::shared_ptr<EngineInbox> shared_;
  std::shared_ptr<SequenceControl> control_;
  std::shared_ptr<StreamSink> sink_;
};

// Appends a later chunk to a chunk that was not taken yet.
void Merge(StreamChunk later, StreamChunk* chunk) {
  if (chunk->prompt_logprobs.empty()) chunk->prompt_position = later.prompt_position;
  std::move(later.prompt_logprobs.begin(), later.prompt_logprobs.end(),
            std::back_inserter(chunk->prompt_logprobs));
  if (later.progress.has_value()) chunk->progress = later.progress;
  chunk->token_ids.insert(chunk->token_ids.end(), later.token_ids.begin(), later.token_ids.end());
  chunk->text += later.text;
  std::move(later.logprobs.begin(), later.logprobs.end(), std::back_inserter(chunk->logprobs));
  chunk->finish = later.finish;
  chunk->usage = later.usage;
}

}  // namespace

void StreamSink::Push(StreamChunk chunk) {
  {
    base::MutexLock lock(&mutex_);
    CHECK(!end_.has_value() && !finished_ && !(chunk_.has_value() && chunk_->finish.has_value()));
    if (chunk_.has_value()) {
      Merge(std::move(chunk), &*chunk_);
    } else {
      chunk_ = std::move(chunk);
    }
    changed_.NotifyAll();
  }
  Notify();
}

void StreamSink::End(absl::Status status) {
  {
    base::MutexLock lock(&mutex_);
    CHECK(!status.ok() && !end_.has_value());
    end_ = std::move(status);
    changed_.NotifyAll();
  }
  Notify();
}

std::optional<absl::StatusOr<StreamChunk>> StreamSink::TakeLocked() {
  if (chunk_.has_value()) {
    finished_ = chunk_->finish.has_value();
    std::optional<absl::StatusOr<StreamChunk>> taken(*std::move(chunk_));
    chunk_.reset();
    return taken;
  }
  if (end_.has_value()) return absl::StatusOr<StreamChunk>(*end_);
  return std::nullopt;
}

std::optional<absl::StatusOr<StreamChunk>> StreamSink::TryNext() {
  base::MutexLock lock(&mutex_);
  return TakeLocked();
}

absl::StatusOr<StreamChunk> StreamSink::Next() {
  base::MutexLock lock(&mutex_);
  while (true) {
    if (finished_) return absl::OutOfRangeError("the stream's last chunk was already read");
    std::optional<absl::StatusOr<StreamChunk>> next = TakeLocked();
    if (next.has_value()) return *std::move(next);
    changed_.Wait(&mutex_);
  }
}

void StreamSink::OnReady(std::function<void()> callback) {
  base::MutexLock callback_lock(&callback_mutex_);
  callback_ = std::move(callback);
  bool ready = false;
  {
    base::MutexLock lock(&mutex_);
    ready = chunk_.has_value() || end_.has_value();
  }
  if (ready && callback_) callback_();
}

void StreamSink::DropCallback() {
  base::MutexLock lock(&callback_mutex_);
  callback_ = nullptr;
}

void StreamSink::Notify() {
  base::MutexLock lock(&callback_mutex_);
  if (callback_) callback_();
}

std::unique_ptr<Stream> MakeStream(std::shared_ptr<EngineInbox> shared,
                                   std::shared_ptr<SequenceControl> control,
                                   std::shared_ptr<StreamSink> sink) {
  return std::make_unique<StreamImpl>(std::move(shared), std::move(control), std::move(sink));
}

}  // namespace tidepool::engine
