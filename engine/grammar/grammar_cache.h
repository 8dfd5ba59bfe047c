// GrammarCache: the compiled grammars of one model's requests.
#ifndef TIDEPOOL_ENGINE_GRAMMAR_GRAMMAR_CACHE_H_
#define TIDEPOOL_ENGINE_GRAMMAR_GRAMMAR_CACHE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/grammar_ir.h"
#include "engine/grammar/token_trie.h"
#include "engine/tokenizer/tokenizer.h"
#include "kernels/base/mutex.h"
#include "kernels/base/recent_cache.h"

namespace tidepool::engine::grammar {

// Thread-safe. Keeps the grammars that were used last, at most 32.
class GrammarCache {
 public:
  // `tokenizer` must outlive the cache.
  explicit GrammarCache(const Tokenizer* tokenizer) : tokenizer_(*tokenizer) {}

  using CompileFn = absl::FunctionRef<absl::StatusOr<GrammarIr>()>;

  // Returns the grammar of `key`. If it is not in the cache, calls `compile`, and returns the
  // errors of this. Requires: equal keys have equal grammars.
  absl::StatusOr<std::shared_ptr<const Grammar>> Get(const std::string& key, CompileFn compile);

  // Returns whether Get would not compile.
  bool Contains(const std::string& key) { return grammars_.Contains(key); }

  // Number of times that a grammar was compiled, or an attempt to do so failed.
  int64_t compiled_total() const { return compiled_total_; }

  // Returns the vocabulary's trie. The first call builds it, which takes about 50 ms.
  std::shared_ptr<const TokenTrie> trie();

 private:
  const Tokenizer& tokenizer_;
  base::RecentCache<std::string, Grammar, 32> grammars_;
  std::atomic<int64_t> compiled_total_ = 0;
  base::Mutex mutex_;
  std::shared_ptr<const TokenTrie> trie_ TIDEPOOL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_GRAMMAR_CACHE_H_
