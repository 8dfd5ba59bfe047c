#include "service/front/stats_calls.h"

#include <utility>

#include "service/front/front_admin.h"

namespace tidepool::service {
namespace {

constexpr absl::Duration kStatsTimeout = absl::Seconds(2);

}  // namespace

StatsCalls::StatsCalls(Front front)
    : front_(std::move(front)), started_(front_.clock->Monotonic()) {}

void StatsCalls::Get(const v1::GetStatsRequest& request, Done<v1::GetStatsResponse> done) {
  // Collects the responses of the workers. When the last one has arrived, sends the result.
  struct Gathering {
    v1::GetStatsResponse response;
    int open = 0;
    Done<v1::GetStatsResponse> done;
  };
  auto gathering = std::make_shared<Gathering>();
  v1::FrontStats* front = gathering->response.mutable_front();
  front->set_uptime_seconds(absl::ToDoubleSeconds(front_.clock->Monotonic() - started_));
  front->set_streams_running(front_.running());
  front->set_requests_total(front_.requests->total());
  front->set_requests_failed_total(front_.requests->failed());
  front->set_failovers_total(front_.failover->moved_total);
  front->set_migrations_total(front_.failover->migrated_total);
  front->set_numerics_changed_total(front_.failover->numerics_changed_total);
  front->set_failovers_waiting(front_.failover->queue.waiting());
  front->set_poisoned_prompts_refused_total(front_.failover->poisoned.refused_total());
  front->set_log_lines_dropped_total(front_.requests->log()->dropped_lines());
  gathering->done = std::move(done);
  const auto finish_one = [gathering] {
    if (--gathering->open == 0) gathering->done(std::move(gathering->response));
  };

  const auto asked = AskedWorkers(*front_.workers, request);
  if (!asked.ok()) return gathering->done(asked.status());
  gathering->open = static_cast<int>(asked->size()) + 1;
  const absl::Duration deadline = front_.clock->Monotonic() + kStatsTimeout;
  for (const WorkerSet::Member* member : *asked) {
    v1::WorkerStats* stats = gathering->response.add_workers();
    stats->set_worker_id(member->view.name);
    stats->set_address(member->link->address());
    member->link->GetStats(
        deadline, [gathering, finish_one, stats](absl::StatusOr<v1::GetStatsResponse> answer) {
          TakeAnswer(answer, answer.status(), stats);
          finish_one();
        });
  }
  front_.store->Count([loop = front_.loop, gathering, finish_one](absl::StatusOr<int64_t> count) {
    loop->Post([gathering, finish_one, count] {
      if (count.ok()) gathering->response.mutable_front()->set_sessions(*count);
      finish_one();
    });
  });
}

std::shared_ptr<StatsWatch> StatsCalls::Watch(const v1::WatchStatsRequest& request,
                                              StatsWatchSink* sink) {
  v1::GetStatsRequest asked;
  if (request.has_worker_id()) asked.set_worker_id(request.worker_id());
  return watches_.Start(front_.loop, sink, request, [this, asked](Done<v1::GetStatsResponse> done) {
    Get(asked, std::move(done));
  });
}

}  // namespace tidepool::service
