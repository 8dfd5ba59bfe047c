#include "engine/tokenizer/unigram_segmenter.h"

#include <algorithm>

#include "kernels/base/utf8.h"

namespace tidepool::engine {
namespace {

// The score of an unknown character is the lowest score of a piece minus this.
constexpr double kUnknownPenalty = 10;

}  // namespace

UnigramSegmenter::UnigramSegmenter(const std::vector<std::string>& pieces,
                                   const std::vector<float>& scores,
                                   const PieceMerger::Fallback& fallback)
    : pieces_(pieces), scores_(scores), fallback_(fallback) {
  for (size_t id = 0; id < pieces_.size(); ++id) {
    if (!pieces_[id].empty()) sorted_.push_back(static_cast<int32_t>(id));
    unknown_score_ = std::min<double>(unknown_score_, scores_[id]);
  }
  unknown_score_ -= kUnknownPenalty;
  std::sort(sorted_.begin(), sorted_.end(),
            [this](int32_t a, int32_t b) { return pieces_[a] < pieces_[b]; });
}

// Extends the segmentation that ends at `begin` by each piece that matches there. Pieces with a
// common prefix are adjacent in sorted_. Each further byte narrows their range.
void UnigramSegmenter::Extend(absl::string_view text, size_t begin,
                              std::vector<Step>* steps) const {
  const auto offer = [&](size_t end, int32_t id, double score) {
    Step& step = (*steps)[end];
    if (step.id == kNone || score > step.score) step = {score, begin, id};
  };
  const double so_far = (*steps)[begin].score;
  const size_t character = base::NextUtf8Char(text.substr(begin)).size;
  bool has_character = false;
  auto low = sorted_.begin();
  auto high = sorted_.end();
  for (size_t length = 1; begin + length <= text.size(); ++length) {
    const char byte = text[begin + length - 1];
    const auto at = [&](int32_t id) { return static_cast<uint8_t>(pieces_[id][length - 1]); };
    // A piece that is a prefix of other pieces is sorted before them.
    low = std::partition_point(low, high, [&](int32_t id) {
      return pieces_[id].size() < length || at(id) < static_cast<uint8_t>(byte);
    });
    high = std::partition_point(low, high,
                                [&](int32_t id) { return at(id) <= static_cast<uint8_t>(byte); });
    if (low == high) break;
    if (pieces_[*low].size() != length) continue;
    offer(begin + length, *low, so_far + scores_[*low]);
    has_character |= length == character;
  }
  if (!has_character) offer(begin + character, kUnknown, so_far + unknown_score_);
}

void UnigramSegmenter::AppendUnknown(absl::string_view text, std::vector<int32_t>* ids) const {
  if (fallback_.byte_ids[0] < 0) {
    if (fallback_.unknown_id >= 0) ids->push_back(fallback_.unknown_id);
    return;
  }
  for (const char byte : text) ids->push_back(fallback_.byte_ids[static_cast<uint8_t>(byte)]);
}

void UnigramSegmenter::Encode(absl::string_view text, std::vector<int32_t>* ids) const {
  std::vector<Step> steps(text.size() + 1);
  for (size_t at = 0; at < text.size();) {
    Extend(text, at, &steps);
    at += base::NextUtf8Char(text.substr(at)).size;
  }
  std::vector<size_t> ends;
  for (size_t end = text.size(); end > 0; end = steps[end].begin) ends.push_back(end);
  size_t unknown = 0;  // number of bytes of unknown characters directly before this piece
  for (size_t i = ends.size(); i-- > 0;) {
    const Step& step = steps[ends[i]];
    if (step.id == kUnknown) {
      unknown += ends[i] - step.begin;
      continue;
    }
    if (unknown > 0) AppendUnknown(text.substr(step.begin - unknown, unknown), ids);
    unknown = 0;
    ids->push_back(step.id);
  }
  if (unknown > 0) AppendUnknown(text.substr(text.size() - unknown), ids);
}

}  // namespace tidepool::engine
