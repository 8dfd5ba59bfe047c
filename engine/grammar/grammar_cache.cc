#include "engine/grammar/grammar_cache.h"

#include <utility>

#include "kernels/base/status_macros.h"

namespace tidepool::engine::grammar {

absl::StatusOr<std::shared_ptr<const Grammar>> GrammarCache::Get(const std::string& key,
                                                                 CompileFn compile) {
  using Shared = std::shared_ptr<const Grammar>;
  return grammars_.Get(key, [this, compile]() -> absl::StatusOr<Shared> {
    ++compiled_total_;
    ASSIGN_OR_RETURN(GrammarIr ir, compile());
    return std::make_shared<const Grammar>(std::move(ir));
  });
}

std::shared_ptr<const TokenTrie> GrammarCache::trie() {
  const base::MutexLock lock(&mutex_);
  if (trie_ == nullptr) trie_ = std::make_shared<const TokenTrie>(tokenizer_);
  return trie_;
}

}  // namespace tidepool::engine::grammar
