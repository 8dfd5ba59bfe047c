#include "engine/grammar/grammar_cache.h"

#include <algorithm>
#include <utility>

#include "kernels/base/status_macros.h"

namespace tidepool::engine::grammar {

absl::StatusOr<std::shared_ptr<const Grammar>> GrammarCache::Get(const GrammarSource& source) {
  {
    const base::MutexLock lock(&mutex_);
    const auto found =
        std::find_if(entries_.begin(), entries_.end(),
                     [&source](const Entry& entry) { return entry.source == source; });
    if (found != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, found);
      return found->grammar;
    }
  }
  // Two callers may compile the same grammar at the same time.
  ASSIGN_OR_RETURN(std::shared_ptr<const Grammar> grammar, CompileGrammar(source, &tokenizer_));
  const base::MutexLock lock(&mutex_);
  entries_.push_front({source, grammar});
  if (entries_.size() > kMaxEntries) entries_.pop_back();
  return grammar;
}

std::shared_ptr<const TokenTrie> GrammarCache::trie() {
  const base::MutexLock lock(&mutex_);
  if (trie_ == nullptr) trie_ = std::make_shared<const TokenTrie>(tokenizer_);
  return trie_;
}

}  // namespace tidepool::engine::grammar
