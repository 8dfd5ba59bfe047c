#include "service/front/crash_evidence.h"

#include <algorithm>
#include <cmath>

namespace tidepool::service {
namespace {

constexpr size_t kNearCrashes = 2;  // number of crashes after which a prompt is tried alone
// A death that is older than this does not excuse a trial that begins now. When the trial crashes,
// the death may be older than kBefore.
constexpr absl::Duration kExcusing = absl::Seconds(30);
static_assert(kExcusing < CrashEvidence::kBefore);
// Time between two checks of an open verdict.
constexpr absl::Duration kLook = absl::Milliseconds(250);

// Returns whether both sightings show the same process over the same connection.
bool SameProcess(const WorkerSighting& one, const WorkerSighting& other) {
  return one.link == other.link && one.process_id == other.process_id &&
         one.watches == other.watches;
}

}  // namespace

CrashEvidence::Attempt& CrashEvidence::Attempt::operator=(Attempt&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  evidence_ = std::exchange(other.evidence_, nullptr);
  alive_ = std::move(other.alive_);
  number_ = other.number_;
  return *this;
}

void CrashEvidence::Attempt::Reset() {
  if (evidence() != nullptr) evidence()->running_.erase(number_);
  evidence_ = nullptr;
}

void CrashEvidence::Attempt::Answer(const WorkerSighting& worker) {
  CrashEvidence* const all = evidence();
  if (all != nullptr) {
    all->DropAnswered();
    all->answered_.push_back({.work = all->running_.at(number_).work, .worker = worker});
    if (all->answered_.size() > kMaxAnswered) all->answered_.pop_front();
    for (Crash& crash : all->crashes_) {
      if (all->SameCrash(crash, worker)) all->HoldAnswered(&crash);
    }
  }
  Reset();
}

void CrashEvidence::Attempt::OnTokens(int64_t count) {
  if (evidence() != nullptr) evidence()->OnTokens(&evidence()->running_.at(number_), count);
}

void CrashEvidence::Attempt::Pause() {
  if (evidence() != nullptr) evidence()->running_.at(number_).paused = true;
}

void CrashEvidence::Attempt::Resume() {
  if (evidence() != nullptr) evidence()->running_.at(number_).paused = false;
}

bool CrashEvidence::Attempt::IsUnprovenPause() const {
  if (evidence() == nullptr) return false;
  const Running& running = evidence()->running_.at(number_);
  return running.paused && running.made < kProvenTokens;
}

CrashEvidence::Attempt CrashEvidence::Begin(const Work& work) {
  const uint64_t number = next_number_++;
  running_[number] = {.work = work, .began = clock_->Monotonic()};
  return Attempt(this, number);
}

bool CrashEvidence::IsProven(const Running& running) {
  return running.paused || running.made >= kProvenTokens;
}

bool CrashEvidence::HasPassed(const Running& running) const {
  return running.paused || running.made >= kProvenTokens + ReachIn(kUnheard, running);
}

int64_t CrashEvidence::ProofOf(const Prompt& prompt) {
  return prompt.total < kManyCrashes ? kProvenTokens : kLongProof;
}

bool CrashEvidence::Counts(const Prompt& prompt, const NearCrash& near) {
  if (!near.answered) return true;
  return std::any_of(prompt.near.begin(), prompt.near.end(), [&](const NearCrash& other) {
    return other.prepare && other.crash != near.crash;
  });
}

int64_t CrashEvidence::ProofOf(uint64_t prompt) const {
  const auto found = prompts_.find(prompt);
  return found == prompts_.end() ? kProvenTokens : ProofOf(found->second);
}

bool CrashEvidence::IsAt(const Prompt& prompt, const NearCrash& near, int64_t place) {
  return place >= near.place && place - near.place < ProofOf(prompt) + near.reach;
}

int64_t CrashEvidence::ReachIn(absl::Duration unheard, const Running& running) const {
  if (unheard <= absl::ZeroDuration()) return 0;
  const int64_t timed = running.made - running.first;
  const absl::Duration time = clock_->Monotonic() - running.first_at;
  // The speed of the stream is not known yet.
  if (timed < kProvenTokens || time <= absl::ZeroDuration()) return kMaxUnheard;
  const double tokens = static_cast<double>(timed) * absl::FDivDuration(unheard, time);
  return static_cast<int64_t>(std::ceil(std::min<double>(tokens, kMaxUnheard)));
}

bool CrashEvidence::SameCrash(const Crash& crash, const WorkerSighting& worker) const {
  if (!SameProcess(crash.worker, worker)) return false;
  // A process dies only once. But a connection can break twice, and its process responds between
  // the two breaks.
  if (worker.at - crash.worker.at < kSignOfLife) return true;
  return worker.process_id != 0 && look_(crash.worker) != Fate::kLives;
}

CrashEvidence::Crash& CrashEvidence::Note(const WorkerSighting& worker) {
  DropOld();
  for (Crash& crash : crashes_) {
    if (SameCrash(crash, worker)) return crash;
  }
  Crash& crash = crashes_.emplace_back(Crash{.number = next_number_++, .worker = worker});
  for (const auto& [number, running] : running_) {
    if (running.work.worker != worker.link) continue;
    crash.there.push_back({.prompt = running.work.prompt,
                           .place = running.work.place,
                           .proven = IsProven(running),
                           .passed = HasPassed(running)});
  }
  HoldAnswered(&crash);
  return crash;
}

void CrashEvidence::HoldAnswered(Crash* crash) {
  DropAnswered();
  std::vector<Work> held;
  std::erase_if(answered_, [&](const Answered& one) {
    if (!SameProcess(one.worker, crash->worker)) return false;
    held.push_back(one.work);
    crash->there.push_back({.prompt = one.work.prompt, .answered = true});
    return true;
  });
  for (const Work& work : held) {
    if (prompts_.size() >= kMaxPrompts && !prompts_.contains(work.prompt)) continue;
    Prompt& prompt = Touch(work.prompt);
    const NearCrash near = {.crash = crash->number,
                            .sender = work.sender,
                            .worker = crash->worker,
                            .prepare = true,
                            .answered = true};
    prompt.near.push_back(near);
    if (prompt.near.size() > kMaxStoredCrashes) prompt.near.erase(prompt.near.begin());
    Judge(work, *crash, near, &prompt);
  }
}

void CrashEvidence::DropAnswered() {
  const absl::Duration now = clock_->Monotonic();
  for (; !answered_.empty() && answered_.front().worker.at + kLinger <= now;
       answered_.pop_front()) {
    const auto found = prompts_.find(answered_.front().work.prompt);
    if (found == prompts_.end()) continue;
    std::erase_if(found->second.near, [](const NearCrash& near) { return near.answered; });
  }
}

void CrashEvidence::Judge(const Work& work, const Crash& crash, const NearCrash& near,
                          Prompt* prompt) {
  const bool alone = work.under == Suspicion::kAlone &&
                     std::all_of(crash.there.begin(), crash.there.end(), [&](const Present& one) {
                       return one.proven || one.prompt == work.prompt;
                     });
  if (!alone || !Counts(*prompt, near)) return;
  prompt->judged = near;
  prompt->accused = true;
}

CrashEvidence::Prompt& CrashEvidence::Touch(uint64_t prompt) {
  Prompt& touched = prompts_[prompt];
  touched.touched = clock_->Monotonic();
  if (prompts_.size() > kMaxPrompts) {
    // A prompt whose verdict is open must not be forgotten.
    const auto older = [](const auto& a, const auto& b) {
      return std::pair(a.second.judged.has_value(), a.second.touched) <
             std::pair(b.second.judged.has_value(), b.second.touched);
    };
    const auto oldest = std::min_element(prompts_.begin(), prompts_.end(), older);
    if (oldest->first != prompt && !oldest->second.judged.has_value()) prompts_.erase(oldest);
  }
  return touched;
}

void CrashEvidence::DropOld() {
  const absl::Duration now = clock_->Monotonic();
  while (!crashes_.empty() &&
         (crashes_.size() >= kMaxStoredCrashes || crashes_.front().worker.at + kKept < now)) {
    crashes_.pop_front();
  }
  std::erase_if(prompts_, [&](const auto& entry) {
    return !entry.second.judged.has_value() && entry.second.touched + kKept < now;
  });
}

void CrashEvidence::OnCrash(Attempt* attempt, const WorkerSighting& worker) {
  if (attempt->evidence() == nullptr) return;
  const Running running = running_.at(attempt->number_);
  const uint64_t digest = running.work.prompt;
  Crash& crash = Note(worker);
  attempt->Reset();
  const absl::Duration heard = running.made > 0 ? running.last_at : running.began;
  const NearCrash near = {.crash = crash.number,
                          .sender = running.work.sender,
                          .worker = worker,
                          .place = running.work.place,
                          .unheard = std::clamp(worker.at - heard, absl::ZeroDuration(), kUnheard),
                          .prepare = running.work.prepares};
  // The crash may have been recorded before this attempt began on the worker. So add the stream if
  // it is missing.
  const bool known = std::any_of(crash.there.begin(), crash.there.end(), [&](const Present& one) {
    return one.prompt == digest && one.place == near.place && !one.answered;
  });
  if (!known) crash.there.push_back({.prompt = digest, .place = near.place});
  Prompt& prompt = Touch(digest);
  const bool counted = std::any_of(prompt.near.begin(), prompt.near.end(),
                                   [&](const NearCrash& one) { return one.crash == near.crash; });
  if (!counted) ++prompt.total;
  prompt.near.push_back(near);
  if (prompt.near.size() > kMaxStoredCrashes) prompt.near.erase(prompt.near.begin());
  Judge(running.work, crash, near, &prompt);
}

Suspicion CrashEvidence::Of(uint64_t prompt, int64_t place) {
  DropAnswered();
  Conclude();
  const auto found = prompts_.find(prompt);
  if (found == prompts_.end()) return Suspicion::kNone;
  Prompt& suspect = found->second;
  if (suspect.judged.has_value()) return Suspicion::kAlone;
  std::erase_if(suspect.near,
                [&](const NearCrash& near) { return look_(near.worker) == Fate::kLives; });
  std::set<uint64_t> crashes;
  bool close = false;
  for (const NearCrash& near : suspect.near) {
    if (!Counts(suspect, near) || !IsAt(suspect, near, place)) continue;
    crashes.insert(near.crash);
    // If a crash counts only because of tokens that may not have arrived, other streams do not wait
    // for this stream.
    close = close || place - near.place < ProofOf(suspect);
  }
  if (crashes.size() >= kNearCrashes) return Suspicion::kAlone;
  return close ? Suspicion::kSuspect : Suspicion::kNone;
}

void CrashEvidence::OnTokens(Running* running, int64_t count) {
  running->last_at = clock_->Monotonic();
  if (running->made == 0) {
    running->first = count;
    running->first_at = running->last_at;
  }
  running->work.place += count;
  running->made += count;
  if (IsProven(*running)) NoteProven(running->work.prompt);
  ForgetPassed(*running);
  Work& work = running->work;
  const bool passed =
      work.under == Suspicion::kAlone && Of(work.prompt, work.place) == Suspicion::kNone;
  if (passed) work.under = Suspicion::kNone;
}

void CrashEvidence::NoteProven(uint64_t prompt) {
  if (!proven_.insert(prompt).second) return;
  proven_order_.push_back(prompt);
  if (proven_order_.size() <= kMaxProven) return;
  proven_.erase(proven_order_.front());
  proven_order_.pop_front();
}

std::vector<std::string> CrashEvidence::OnlyAt(uint64_t prompt) const {
  const auto found = prompts_.find(prompt);
  const bool crashed = found != prompts_.end() && !found->second.near.empty();
  if (!crashed && proven_.contains(prompt)) return {};
  std::vector<std::string> names;
  const auto add = [&names](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const auto& [number, running] : running_) {
    if (running.work.prompt == prompt && !IsProven(running)) add(running.work.name);
  }
  for (const Answered& one : answered_) {
    const bool risked = one.work.prompt == prompt && clock_->Monotonic() < one.worker.at + kLinger;
    if (risked) add(one.work.name);
  }
  const size_t most = crashed ? 1 : kNearCrashes;
  return names.size() < most ? std::vector<std::string>() : names;
}

void CrashEvidence::ForgetPassed(const Running& running) {
  const auto found = prompts_.find(running.work.prompt);
  if (found == prompts_.end()) return;
  Prompt& prompt = found->second;
  const int64_t proof = ProofOf(prompt);
  const int64_t start = running.work.place - running.made;
  // Forget a crash only if this attempt itself has generated enough tokens since then.
  std::erase_if(prompt.near, [&](NearCrash& near) {
    const bool before = near.worker.at <= running.began;
    if (near.answered || !before || !IsAt(prompt, near, start)) return false;
    near.reach = ReachIn(near.unheard, running);
    return !IsAt(prompt, near, running.work.place);
  });
  const bool suspect = std::any_of(prompt.near.begin(), prompt.near.end(),
                                   [&](const NearCrash& near) { return Counts(prompt, near); });
  if (suspect || prompt.judged.has_value()) return;
  if (proof == kLongProof || prompt.accused) {
    prompts_.erase(found);
  }
}

void CrashEvidence::Conclude() {
  for (auto& [digest, prompt] : prompts_) {
    if (prompt.judged.has_value() && Conclude(digest, &prompt)) prompt.judged.reset();
  }
}

bool CrashEvidence::Conclude(uint64_t digest, Prompt* prompt) {
  const NearCrash judged = *prompt->judged;
  const auto drop = [&] {
    std::erase_if(prompt->near, [&](const NearCrash& one) { return one.crash == judged.crash; });
  };
  if (look_(judged.worker) == Fate::kLives) return drop(), true;
  switch (FindWitness(digest, prompt)) {
    case Witness::kFound:
      ++prompt->excused;
      prompt->excuses.insert(judged.crash);  // this crash excuses no later trial
      drop();
      return true;
    case Witness::kMayCome:
      return false;
    case Witness::kNone:
      break;
  }
  if (clock_->Monotonic() < judged.worker.at + kAfter) return false;
  prompt->convicted_at = clock_->Monotonic();
  std::set<uint64_t> senders = {judged.sender};
  for (const NearCrash& near : prompt->near) {
    if (Counts(*prompt, near)) senders.insert(near.sender);
  }
  for (const uint64_t sender : senders) convict_(sender);
  return true;
}

bool CrashEvidence::ConvictedSince(uint64_t prompt, absl::Duration since) const {
  const auto found = prompts_.find(prompt);
  return found != prompts_.end() && found->second.convicted_at.has_value() &&
         *found->second.convicted_at >= since;
}

CrashEvidence::Witness CrashEvidence::FindWitness(uint64_t digest, Prompt* prompt) const {
  const WorkerSighting& judged = prompt->judged->worker;
  const absl::Duration now = clock_->Monotonic();
  Witness found = Witness::kNone;
  for (const Crash& crash : crashes_) {
    if (crash.worker.at < judged.at - kBefore || crash.worker.at > judged.at + kAfter) continue;
    if (prompt->excuses.contains(crash.number) ||
        Explained(crash, digest, *prompt, prompt->judged->place)) {
      continue;
    }
    const Fate fate = look_(crash.worker);
    if (fate == Fate::kLives) continue;
    if (fate == Fate::kOpen && now - crash.worker.at < kSignOfLife) {
      found = Witness::kMayCome;
      continue;
    }
    prompt->excuses.insert(crash.number);
    return Witness::kFound;
  }
  return found;
}

bool CrashEvidence::Explained(const Crash& crash, uint64_t digest, const Prompt& prompt,
                              int64_t place) const {
  const auto is_near = [&](const NearCrash& near) {
    return near.crash == crash.number && Counts(prompt, near);
  };
  if (std::any_of(prompt.near.begin(), prompt.near.end(), is_near)) return true;
  const int64_t proof = ProofOf(prompt);
  return std::any_of(crash.there.begin(), crash.there.end(), [&](const Present& one) {
    if (one.prompt == digest) {
      return !one.answered && one.place - place < proof && place - one.place < proof;
    }
    const auto other = prompts_.find(one.prompt);
    return !one.passed && other != prompts_.end() && other->second.accused;
  });
}

bool CrashEvidence::HasExcuse(uint64_t digest) const {
  const auto found = prompts_.find(digest);
  if (found == prompts_.end()) return false;
  const Prompt& prompt = found->second;
  const absl::Duration now = clock_->Monotonic();
  return std::any_of(crashes_.begin(), crashes_.end(), [&](const Crash& crash) {
    if (crash.worker.at < now - kExcusing || prompt.excuses.contains(crash.number)) return false;
    const bool there = std::any_of(crash.there.begin(), crash.there.end(),
                                   [digest](const Present& one) { return one.prompt == digest; });
    if (there || Explained(crash, digest, prompt, 0)) return false;
    const Fate fate = look_(crash.worker);
    return fate == Fate::kGone || (fate == Fate::kOpen && now - crash.worker.at >= kSignOfLife);
  });
}

absl::Duration CrashEvidence::CalmIn(uint64_t prompt, absl::Duration since) {
  Conclude();
  const bool open = std::any_of(prompts_.begin(), prompts_.end(),
                                [](const auto& entry) { return entry.second.judged.has_value(); });
  if (open) return kLook;
  const absl::Duration now = clock_->Monotonic();
  if (now - since >= kLongestCalm || HasExcuse(prompt)) return absl::ZeroDuration();
  const auto found = prompts_.find(prompt);
  const int excused = found == prompts_.end() ? 0 : found->second.excused;
  const absl::Duration calm = std::min(kCalm * (1 << std::min(excused, 5)), kLongestCalm);
  for (auto crash = crashes_.rbegin(); crash != crashes_.rend(); ++crash) {
    if (now - crash->worker.at >= calm) break;
    if (look_(crash->worker) == Fate::kLives) continue;
    return std::min(crash->worker.at + calm - now, kLook);
  }
  return absl::ZeroDuration();
}

int64_t CrashEvidence::UnprovenBeside(const WorkerLink* worker, uint64_t prompt) const {
  const absl::Duration now = clock_->Monotonic();
  const auto running = std::count_if(running_.begin(), running_.end(), [&](const auto& entry) {
    const Work& work = entry.second.work;
    return work.worker == worker && work.prompt != prompt && !IsProven(entry.second);
  });
  return running + std::count_if(answered_.begin(), answered_.end(), [&](const Answered& one) {
           return one.worker.link == worker && one.work.prompt != prompt &&
                  one.worker.at + kLinger > now;
         });
}

size_t CrashEvidence::CrashesOf(uint64_t prompt) const {
  const auto found = prompts_.find(prompt);
  if (found == prompts_.end()) return 0;
  std::set<uint64_t> crashes;
  for (const NearCrash& near : found->second.near) {
    if (Counts(found->second, near)) crashes.insert(near.crash);
  }
  return crashes.size();
}

}  // namespace tidepool::service
