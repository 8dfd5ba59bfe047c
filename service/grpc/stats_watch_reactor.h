// StatsWatchReactor: the gRPC stream of a StatsWatch.
#ifndef TIDEPOOL_SERVICE_GRPC_STATS_WATCH_REACTOR_H_
#define TIDEPOOL_SERVICE_GRPC_STATS_WATCH_REACTOR_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <utility>

#include "service/auth/grpc_caller.h"
#include "service/base/stats_watch.h"
#include "service/grpc/raw_unary.h"
#include "service/grpc/status.h"

namespace tidepool::service {

// A watch has no end, so it can outlive the caller's token or certificate. Therefore the caller is
// checked before each message is sent. The reactor deletes itself on the loop, after all tasks that
// it has posted.
class StatsWatchReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                                public StatsWatchSink {
 public:
  // Starts the watch. Called on the loop. The watch may finish the sink before this function
  // returns.
  using Begin = std::function<std::shared_ptr<StatsWatch>(const v1::WatchStatsRequest& request,
                                                          StatsWatchSink* sink)>;

  StatsWatchReactor(Executor* loop, const Gate& gate, grpc::CallbackServerContext* context,
                    const grpc::ByteBuffer& bytes, Begin begin)
      : loop_(loop), term_(context, gate) {
    v1::WatchStatsRequest request;
    absl::Status status = term_.Check();
    if (status.ok()) status = ParseBytes(bytes, &request);
    if (!status.ok()) {
      grpc::ServerWriteReactor<grpc::ByteBuffer>::Finish(ToGrpcStatus(status));
      return;
    }
    loop_->Post([this, request = std::move(request), begin = std::move(begin)] {
      watch_ = begin(request, this);
    });
  }

  void Write(v1::GetStatsResponse stats) override {
    // If this reading arrived before `begin` has returned, watch_ is null. The token is still valid
    // then.
    if (const absl::Status term = term_.Check(); watch_ != nullptr && !term.ok()) {
      watch_->End(term);
      return watch_->OnWritten();
    }
    bytes_ = ToBytes(stats);
    StartWrite(&bytes_);
  }
  void Finish(absl::Status status) override {
    grpc::ServerWriteReactor<grpc::ByteBuffer>::Finish(ToGrpcStatus(status));
  }

  void OnWriteDone(bool ok) override {
    loop_->Post([this, ok] {
      if (watch_ == nullptr) return;
      ok ? watch_->OnWritten() : watch_->Cancel();
    });
  }
  void OnCancel() override {
    loop_->Post([this] {
      if (watch_ != nullptr) watch_->Cancel();
    });
  }
  void OnDone() override {
    loop_->Post([this] { delete this; });
  }

 private:
  ~StatsWatchReactor() override {
    if (watch_ != nullptr) watch_->Abandon();
  }

  Executor* const loop_;
  const StreamTerm term_;
  std::shared_ptr<StatsWatch> watch_;  // used on the loop only
  grpc::ByteBuffer bytes_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_GRPC_STATS_WATCH_REACTOR_H_
