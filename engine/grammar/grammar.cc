#include "engine/grammar/grammar.h"

#include <utility>

namespace tidepool::engine::grammar {

Grammar::Grammar(GrammarIr ir) : ir_(std::move(ir)) {
  RegexPool& regexes = ir_.regexes();
  regexes.set_limit(SIZE_MAX);
  const Regex plain = regexes.Characters(
      {{0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0x7E}, {0x80, 0x2027}, {0x202A, 0x10FFFF}});
  for (const int32_t characters : kSliceCharacters) {
    slices_.push_back(regexes.Repeat(plain, 1, characters));
  }
}

std::shared_ptr<SharedAutomaton> Grammar::Fresh() const {
  return std::make_shared<SharedAutomaton>(ir_, slices_);
}

std::shared_ptr<SharedAutomaton> Grammar::automaton() const {
  const base::MutexLock lock(&mutex_);
  if (automaton_ == nullptr) automaton_ = Fresh();
  return automaton_;
}

std::shared_ptr<SharedAutomaton> Grammar::Replace(const SharedAutomaton* full) const {
  const base::MutexLock lock(&mutex_);
  if (automaton_.get() == full || automaton_ == nullptr) automaton_ = Fresh();
  return automaton_;
}

}  // namespace tidepool::engine::grammar
