// SentencePieceTokenizer: a tokenizer for vocabularies of characters and bytes
// (tokenizer.ggml.model = "llama", "t5" and "gemma4").
#ifndef TIDEPOOL_ENGINE_TOKENIZER_SENTENCEPIECE_TOKENIZER_H_
#define TIDEPOOL_ENGINE_TOKENIZER_SENTENCEPIECE_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/tokenizer/piece_merger.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tokenizer/unigram_segmenter.h"

namespace tidepool::engine {

// Thread-safe: immutable after Create. Created by Tokenizer::Create.
//
// There are three models. "llama" is SentencePiece's byte-pair encoding: neighbours are merged in
// the order of the scores of the merged pieces. "t5" is a unigram model: the most probable pieces
// are chosen. "gemma4" merges characters by a list of merges, and never across lines. In all three
// models, a space is written as "▁" in the file, and text for which there is no piece becomes the
// tokens of its bytes.
class SentencePieceTokenizer final : public Tokenizer {
 public:
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(TokenizerSpec spec);

 private:
  explicit SentencePieceTokenizer(TokenizerSpec spec);

  void FillTokenBytes() override;
  absl::Status EncodeText(absl::string_view text, SpacePrefix prefix,
                          std::vector<int32_t>* ids) const override;

  bool is_gemma4() const { return spec_.model == "gemma4"; }
  bool is_unigram() const { return spec_.model == "t5"; }
  void InferTypes();
  bool Merges(int32_t id) const;  // whether the token takes part in merges
  absl::Status FillMerger();
  absl::StatusOr<PieceMerger::Fallback> MakeFallback() const;
  absl::Status CheckScores() const;
  absl::Status AddScores();
  absl::Status AddMerges();
  void EncodeWord(absl::string_view text, std::vector<int32_t>* ids) const;
  void EncodeWords(absl::string_view text, std::vector<int32_t>* ids) const;
  void EncodeLines(absl::string_view text, std::vector<int32_t>* ids) const;

  // By id, with a space for each "▁". "" for tokens that text cannot produce, such as control
  // tokens.
  std::vector<std::string> pieces_;
  std::optional<PieceMerger> merger_;          // created by FillMerger, except for a unigram model
  std::optional<UnigramSegmenter> segmenter_;  // created by FillMerger for a unigram model
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_TOKENIZER_SENTENCEPIECE_TOKENIZER_H_
