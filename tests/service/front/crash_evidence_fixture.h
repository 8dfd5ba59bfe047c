// CrashEvidence with workers that crash when the test calls a function.
#ifndef TIDEPOOL_TESTS_SERVICE_FRONT_CRASH_EVIDENCE_FIXTURE_H_
#define TIDEPOOL_TESTS_SERVICE_FRONT_CRASH_EVIDENCE_FIXTURE_H_

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "service/front/crash_evidence.h"
#include "tests/fakes/manual_clock.h"

namespace tidepool::service {

inline constexpr uint64_t kPrompt = 7;
inline constexpr uint64_t kOther = 8;

class CrashEvidenceTest : public testing::Test {
 protected:
  // Each worker is identified by its link.
  static const WorkerLink* Link(int worker) {
    static char links[64];
    return reinterpret_cast<const WorkerLink*>(&links[worker]);
  }

  CrashEvidence::Attempt Begin(int worker, uint64_t prompt, int64_t place,
                               Suspicion under = Suspicion::kNone) {
    return evidence_.Begin({.worker = Link(worker),
                            .prompt = prompt,
                            .sender = prompt,
                            .place = place,
                            .under = under});
  }
  WorkerSighting Sight(int worker) {
    return {.link = Link(worker),
            .process_id = process_[worker] + 100 * static_cast<uint64_t>(worker + 1),
            .at = clock_.Monotonic()};
  }
  // The worker's process dies, and another process takes its place.
  void Crash(int worker, const std::vector<CrashEvidence::Attempt*>& attempts) {
    const WorkerSighting seen = Sight(worker);
    evidence_.OnLost(seen);
    for (CrashEvidence::Attempt* attempt : attempts) evidence_.OnCrash(attempt, seen);
    ++process_[worker];
  }
  void CrashOf(int worker, uint64_t prompt, int64_t place, Suspicion under = Suspicion::kNone) {
    auto attempt = Begin(worker, prompt, place, under);
    Crash(worker, {&attempt});
  }
  // Makes two crashes near the prompt, and then waits for the calm.
  void MakeSuspect(int64_t place = 0) {
    CrashOf(0, kPrompt, place);
    CrashOf(1, kPrompt, place);
    clock_.Advance(CrashEvidence::kCalm);
  }
  bool Convicted() {
    evidence_.Conclude();
    return convictions_[kPrompt] > 0;
  }

  std::map<int, uint64_t> process_;
  std::map<uint64_t, int> convictions_;
  fakes::ManualClock clock_;
  bool lives_ = false;  // whether processes that seem to have crashed are alive
  CrashEvidence evidence_{&clock_,
                          [this](const WorkerSighting& seen) {
                            if (lives_) return Fate::kLives;
                            for (int worker = 0; worker < 64; ++worker) {
                              if (Link(worker) != seen.link) continue;
                              return Sight(worker).process_id == seen.process_id ? Fate::kOpen
                                                                                 : Fate::kGone;
                            }
                            return Fate::kGone;
                          },
                          [this](uint64_t prompt) { ++convictions_[prompt]; }};
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_TESTS_SERVICE_FRONT_CRASH_EVIDENCE_FIXTURE_H_
