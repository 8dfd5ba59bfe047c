// UnigramSegmenter: the most probable way to cut a text into the pieces of a unigram model
// (Kudo, "Subword Regularization", 2018; here without sampling).
#ifndef TIDEPOOL_ENGINE_TOKENIZER_UNIGRAM_SEGMENTER_H_
#define TIDEPOOL_ENGINE_TOKENIZER_UNIGRAM_SEGMENTER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/tokenizer/piece_merger.h"

namespace tidepool::engine {

// Thread-safe: immutable after construction.
class UnigramSegmenter {
 public:
  // `pieces` by id, "" for tokens that no text is cut into; `scores` by id, all finite. `pieces`
  // outlives this.
  UnigramSegmenter(const std::vector<std::string>& pieces, const std::vector<float>& scores,
                   const PieceMerger::Fallback& fallback);

  // Appends the ids of `text`, which is not empty. A character without a piece becomes the tokens
  // of its bytes, or the unknown token, one for each run of such characters. Of equally probable
  // ways the one wins whose pieces began first.
  void Encode(absl::string_view text, std::vector<int32_t>* ids) const;

 private:
  // The best way that ends at a byte: its last piece.
  struct Step {
    double score = 0;
    size_t begin = 0;
    int32_t id = kNone;
  };
  static constexpr int32_t kNone = -2;
  static constexpr int32_t kUnknown = -1;

  void Extend(absl::string_view text, size_t begin, std::vector<Step>* steps) const;
  void AppendUnknown(absl::string_view text, std::vector<int32_t>* ids) const;

  const std::vector<std::string>& pieces_;
  const std::vector<float> scores_;
  const PieceMerger::Fallback fallback_;
  std::vector<int32_t> sorted_;  // ids by the bytes of their pieces
  double unknown_score_ = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_UNIGRAM_SEGMENTER_H_
