#include "engine/grammar/matcher.h"

#include <utility>

#include "engine/grammar/token_walk.h"
#include "kernels/base/check.h"

namespace tidepool::engine::grammar {
namespace {

// If an automaton stores more bytes than this, the matcher moves to a new automaton, and replays
// its output there.
constexpr size_t kMaxStoredBytes = 64 << 20;
constexpr size_t kMaxStoredMasks = 64;

State StepText(absl::string_view text, State state, Automaton* automaton) {
  for (const char c : text) {
    if (state == kDead) break;
    state = automaton->Step(state, static_cast<uint8_t>(c));
  }
  return state;
}

State StepToken(const TokenTrie& trie, int32_t id, State state, Automaton* automaton) {
  const absl::string_view text = trie.text(id);
  const State by_text = text.empty() ? kDead : StepText(text, state, automaton);
  if (automaton->Step(state, kTokenByte) == kDead) return by_text;
  return automaton->Union(by_text, StepText(TokenTerm(id), state, automaton));
}

}  // namespace

Matcher::Matcher(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie)
    : grammar_(std::move(grammar)), trie_(std::move(trie)) {
  Attach(grammar_->automaton());
}

void Matcher::Attach(std::shared_ptr<SharedAutomaton> shared) {
  shared_ = std::move(shared);
  const AutomatonLock lock(shared_.get());
  Automaton& automaton = shared_->automaton;
  start_ = automaton.start();
  State state = start_;
  for (Step& step : log_) {
    if (step.token < 0) {
      state = StepText(step.text, state, &automaton);
    } else {
      state = step.ends ? kDead : StepToken(*trie_, step.token, state, &automaton);
    }
    step.state = state;
  }
}

void Matcher::RenewIfFull() {
  {
    const AutomatonLock lock(shared_.get());
    if (shared_->automaton.stored_bytes() <= kMaxStoredBytes) return;
  }
  Attach(grammar_->Replace(shared_.get()));
}

bool Matcher::AcceptToken(int32_t id) {
  CHECK(trie_ != nullptr && id >= 0 && id < trie_->vocab_size());
  RenewIfFull();
  const AutomatonLock lock(shared_.get());
  if (trie_->IsStop(id) && shared_->automaton.accepts(state())) {
    log_.push_back({.token = id, .text = "", .state = kDead, .ends = true});
    return true;
  }
  const State next = StepToken(*trie_, id, state(), &shared_->automaton);
  if (next == kDead) return false;
  log_.push_back({.token = id, .text = "", .state = next});
  return true;
}

size_t Matcher::AcceptText(absl::string_view text) {
  RenewIfFull();
  const AutomatonLock lock(shared_.get());
  State at = state();
  size_t size = 0;
  for (; size < text.size(); ++size) {
    // The first byte of token terms never occurs in text.
    const auto byte = static_cast<uint8_t>(text[size]);
    const State next = byte == kTokenByte ? kDead : shared_->automaton.Step(at, byte);
    if (next == kDead) break;
    at = next;
  }
  log_.push_back({.token = -1, .text = std::string(text.substr(0, size)), .state = at});
  return size;
}

void Matcher::Rollback(size_t steps) {
  CHECK(steps <= log_.size());
  log_.resize(log_.size() - steps);
}

bool Matcher::accepts() const {
  const AutomatonLock lock(shared_.get());
  return shared_->automaton.accepts(state());
}

bool Matcher::complete() const {
  const AutomatonLock lock(shared_.get());
  return shared_->automaton.accepts(state()) && shared_->automaton.threads(state()).empty();
}

void Matcher::FillMask(TokenMask* mask) {
  CHECK(TryFillMask(mask, [] { return false; }));
}

bool Matcher::TryFillMask(TokenMask* mask, absl::FunctionRef<bool()> give_up) {
  CHECK(trie_ != nullptr && mask->size() == trie_->vocab_size());
  RenewIfFull();
  const State at = state();
  {
    const AutomatonLock lock(shared_.get());
    shared_->SetVocabulary(trie_);
    if (const auto found = shared_->masks.find(at); found != shared_->masks.end()) {
      *mask = found->second;
      return true;
    }
  }
  mask->Clear();
  if (at != kDead && !TokenWalk(trie_, shared_.get(), give_up).Run(at, mask)) return false;
  const AutomatonLock lock(shared_.get());
  if (shared_->vocabulary != trie_) return true;
  if (shared_->masks.size() >= kMaxStoredMasks) shared_->masks.clear();
  shared_->masks.emplace(at, *mask);
  return true;
}

}  // namespace tidepool::engine::grammar
