// UnigramSegmenter: finds the most probable segmentation of a text with a unigram model (Kudo,
// "Subword Regularization", 2018). It does not use the paper's random sampling.
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
  // `pieces` and `scores` are indexed by id. A piece is "" if the segmenter must not produce that
  // token. Requires: all scores are finite. `pieces` must outlive the segmenter.
  UnigramSegmenter(const std::vector<std::string>& pieces, const std::vector<float>& scores,
                   const PieceMerger::Fallback& fallback);

  // Appends the ids of `text`. A character without a piece becomes byte tokens. If there are no
  // byte tokens, each run of such characters becomes one unknown token. If several segmentations
  // that end at the same byte are equally probable, the one with the longest last piece is used.
  // Requires: `text` is not empty.
  void Encode(absl::string_view text, std::vector<int32_t>* ids) const;

 private:
  // The best segmentation that ends at a given byte. Only its last piece is stored.
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
  std::vector<int32_t> sorted_;  // ids, sorted by the bytes of their pieces
  double unknown_score_ = 0;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_UNIGRAM_SEGMENTER_H_
