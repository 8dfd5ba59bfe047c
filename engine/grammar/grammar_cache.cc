#include "engine/grammar/grammar_cache.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::grammar {

absl::StatusOr<std::shared_ptr<const Grammar>> GrammarCache::Get(const GrammarSource& source) {
  std::string key =
      absl::StrCat("source ", static_cast<int>(source.kind), source.coerce_one_of ? "1" : "0");
  const auto add = [&key](absl::string_view text) {
    absl::StrAppend(&key, " ", text.size(), " ", text);
  };
  add(source.text);
  add(source.whitespace_pattern);
  for (const std::string& choice : source.choices) add(choice);
  return Get(key, [&] { return CompileIr(source, &tokenizer_); });
}

absl::StatusOr<std::shared_ptr<const Grammar>> GrammarCache::Get(const std::string& key,
                                                                 CompileFn compile) {
  {
    const base::MutexLock lock(&mutex_);
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&key](const Entry& entry) { return entry.key == key; });
    if (found != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, found);
      return found->grammar;
    }
  }
  // Two callers may compile the same grammar at the same time.
  ASSIGN_OR_RETURN(GrammarIr ir, compile());
  auto grammar = std::make_shared<const Grammar>(std::move(ir));
  const base::MutexLock lock(&mutex_);
  entries_.push_front({key, grammar});
  if (entries_.size() > kMaxEntries) entries_.pop_back();
  return grammar;
}

std::shared_ptr<const TokenTrie> GrammarCache::trie() {
  const base::MutexLock lock(&mutex_);
  if (trie_ == nullptr) trie_ = std::make_shared<const TokenTrie>(tokenizer_);
  return trie_;
}

}  // namespace tidepool::engine::grammar
