#include "tests/moe/replay/trace_kinds.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

namespace tidepool::moe {
namespace {

using Scores = std::vector<float>;  // [layers, experts]

constexpr int kTopics = 12;

// The state of one sequence.
struct Sequence {
  int topic = 0;
  std::vector<int> tokens;
  size_t copy_from = 0;  // > 0: the next token repeats this one
  Scores walk;
};

class KindMaker {
 public:
  KindMaker(const TraceKind& kind, uint32_t seed)
      : kind_(kind), random_(seed * 2654435761u + 17), fixed_(Draw()) {
    for (int i = 0; i < kTopics; ++i) topics_.push_back(Draw());
    for (int i = 0; i < kind.vocabulary; ++i) vocabulary_.push_back(Draw());
    for (int i = 0; i < kind.vocabulary; ++i) {
      token_mass_.push_back(1.0 / (1 + i) + (i > 0 ? token_mass_.back() : 0));
    }
    for (int i = 0; i < kind.batch; ++i) sequences_.push_back(Begin());
    for (int layer = 0; layer < kind.layers; ++layer) {
      orders_.emplace_back(kind.experts);
      std::iota(orders_.back().begin(), orders_.back().end(), 0);
      std::shuffle(orders_.back().begin(), orders_.back().end(), random_);
    }
  }

  Trace Make() {
    trace_.header = {.model = kind_.name,
                     .layers = kind_.layers,
                     .experts = kind_.experts,
                     .top_k = kind_.top_k,
                     .expert_bytes = std::vector<int64_t>(kind_.layers, 1 << 20)};
    for (int forward = 0; forward < kind_.forwards; ++forward) {
      if (kind_.flip > 0 && forward > 0 && forward % kind_.flip == 0) fixed_ = Draw();
      rows_.assign(kind_.layers, {});
      Phase phase = Phase::kDecode;
      switch (kind_.flow) {
        case KindFlow::kDecode:
          Decode();
          break;
        case KindFlow::kTurns:
          phase = Turn();
          break;
        case KindFlow::kAlternate:
          Advance(&sequences_[forward % kind_.batch]);
          break;
        case KindFlow::kDenoise:
          Denoise();
          break;
        case KindFlow::kVerify:
          Verify();
          break;
        case KindFlow::kCycle:
        case KindFlow::kScan:
        case KindFlow::kBursts:
          Pattern(forward);
          break;
      }
      for (int layer = 0; layer < kind_.layers; ++layer) {
        trace_.entries.push_back({.step = forward,
                                  .layer = layer,
                                  .ids = std::move(rows_[layer]),
                                  .phases = {phase},
                                  .requests = {0}});
      }
    }
    return std::move(trace_);
  }

 private:
  double Uniform() { return std::uniform_real_distribution<double>()(random_); }
  int Below(int end) { return static_cast<int>(Uniform() * end); }
  float Normal() { return normal_(random_); }

  Scores Draw() {
    Scores scores(kind_.layers * kind_.experts);
    for (float& score : scores) score = Normal();
    return scores;
  }

  Sequence Begin() {
    return {.topic = Below(kTopics), .tokens = {}, .copy_from = 0, .walk = Draw()};
  }

  int NextToken(Sequence* sequence) {
    std::vector<int>& tokens = sequence->tokens;
    const bool begins = sequence->copy_from == 0 && tokens.size() > 30;
    if (begins && Uniform() < kind_.copying / 20) {
      sequence->copy_from = 1 + Below(tokens.size() - 2);
    }
    if (sequence->copy_from > 0 && Uniform() < 1 - kind_.copying) sequence->copy_from = 0;
    if (sequence->copy_from > 0) {
      tokens.push_back(tokens[sequence->copy_from++]);
    } else {
      const auto rank =
          std::lower_bound(token_mass_.begin(), token_mass_.end(), Uniform() * token_mass_.back());
      tokens.push_back(std::min<int>(rank - token_mass_.begin(), kind_.vocabulary - 1));
    }
    return tokens.back();
  }

  // Appends the experts of a token to rows_. Two tokens of the same kind have the same topic
  // scores; only the walk and the noise make them different.
  void Route(const Sequence& sequence, int token) {
    std::vector<std::pair<float, int32_t>> ranked(kind_.experts);
    for (int layer = 0; layer < kind_.layers; ++layer) {
      const double place = kind_.layers > 1 ? 1 - 2.0 * layer / (kind_.layers - 1) : 0;
      const auto noise = static_cast<float>(kind_.noise * (1 + kind_.unlike_layers * place));
      for (int e = 0; e < kind_.experts; ++e) {
        const int i = layer * kind_.experts + e;
        double score = kind_.fixed * fixed_[i] + kind_.topic * topics_[sequence.topic][i] +
                       kind_.token * vocabulary_[token][i] + kind_.walk * sequence.walk[i];
        if (noise > 0) score += noise * Normal();
        ranked[e] = {static_cast<float>(-score), e};
      }
      std::partial_sort(ranked.begin(), ranked.begin() + kind_.top_k, ranked.end());
      for (int k = 0; k < kind_.top_k; ++k) rows_[layer].push_back(ranked[k].second);
    }
  }

  void Wander(Sequence* sequence) {
    if (Uniform() < 1 / kind_.topic_forwards) sequence->topic = Below(kTopics);
    if (kind_.walk == 0) return;
    const auto keep = static_cast<float>(1 - 1 / kind_.walk_forwards);
    const float fresh = std::sqrt(1 - keep * keep);
    for (float& score : sequence->walk) score = keep * score + fresh * Normal();
  }

  void Advance(Sequence* sequence) {
    Wander(sequence);
    Route(*sequence, NextToken(sequence));
  }

  void Decode() {
    for (Sequence& sequence : sequences_) {
      if (Uniform() < kind_.leaving) sequence = Begin();
      Advance(&sequence);
    }
  }

  Phase Turn() {
    Sequence& sequence = sequences_[0];
    if (left_ == 0) {
      left_ = kind_.period / 2 + Below(kind_.period);
      sequence = Begin();
      const int tokens = 10 + Below(120);
      for (int i = 0; i < tokens; ++i) Advance(&sequence);
      return Phase::kPrefill;
    }
    --left_;
    Advance(&sequence);
    return Phase::kDecode;
  }

  // The tokens of a block change until they are fixed. When all are fixed, the next block begins.
  void Denoise() {
    Sequence& sequence = sequences_[0];
    if (left_ == 0) {
      left_ = kind_.batch;
      block_.assign(kind_.batch, 0);
      fixed_tokens_.assign(kind_.batch, false);
      for (int i = 0; i < 5; ++i) Wander(&sequence);
    }
    for (int i = 0; i < kind_.batch; ++i) {
      if (!fixed_tokens_[i] && Uniform() < 0.3) block_[i] = NextToken(&sequence);
      if (!fixed_tokens_[i] && Uniform() < 1.5 / kind_.period) {
        fixed_tokens_[i] = true;
        --left_;
      }
      Route(sequence, block_[i]);
    }
  }

  void Verify() {
    Sequence& sequence = sequences_[0];
    Wander(&sequence);
    while (static_cast<int>(block_.size()) < kind_.batch) block_.push_back(NextToken(&sequence));
    for (const int token : block_) Route(sequence, token);
    const int kept = 1 + Below(kind_.batch);
    block_.erase(block_.begin(), block_.begin() + kept);
    // Guesses the wrong tokens again.
    for (int& token : block_) {
      if (Uniform() < 0.5) token = NextToken(&sequence);
    }
  }

  void Pattern(int forward) {
    const int k = kind_.top_k;
    for (int layer = 0; layer < kind_.layers; ++layer) {
      const std::vector<int32_t>& order = orders_[layer];
      std::vector<int32_t>& row = rows_[layer];
      const auto add = [&](int32_t expert) {
        if (std::find(row.begin(), row.end(), expert) == row.end()) row.push_back(expert);
      };
      while (static_cast<int>(row.size()) < k) {
        const int i = static_cast<int>(row.size());
        if (Uniform() < kind_.noise) {
          add(order[Below(kind_.experts)]);
        } else if (kind_.flow == KindFlow::kCycle) {
          add(order[(forward % kind_.period * k + i) % kind_.experts]);
        } else if (kind_.flow == KindFlow::kScan) {
          const int hot = kind_.period;
          const int cold = kind_.experts - hot;
          add(i < k / 2 ? order[Below(hot)] : order[hot + (forward * (k - k / 2) + i) % cold]);
        } else {
          // Each of the k places changes its expert at a different time.
          add(order[((forward + i * kind_.period / k) / kind_.period * k + i) % kind_.experts]);
        }
        if (Uniform() < 0.01) add(order[Below(kind_.experts)]);
      }
      row.resize(k);
    }
  }

  const TraceKind kind_;
  std::mt19937 random_;
  std::normal_distribution<float> normal_;
  Scores fixed_;
  std::vector<Scores> topics_;
  std::vector<Scores> vocabulary_;  // scores by token
  std::vector<double> token_mass_;
  std::vector<Sequence> sequences_;
  std::vector<std::vector<int32_t>> orders_;  // experts by layer
  int left_ = 0;                              // remaining forwards of the turn or of the block
  std::vector<int> block_;
  std::vector<bool> fixed_tokens_;
  std::vector<std::vector<int32_t>> rows_;  // [layers]: routing of the current forward
  Trace trace_;
};

}  // namespace

// Long because it is a table of cases.
const std::vector<TraceKind>& TraceKinds() {
  static const auto* const kKinds = new std::vector<TraceKind>{
      {.name = "story",
       .layers = 10,
       .experts = 96,
       .top_k = 6,
       .fixed = 0.7,
       .topic = 0.8,
       .token = 0.6,
       .walk = 0.7,
       .noise = 0.3},
      {.name = "crowd",
       .layers = 6,
       .top_k = 4,
       .batch = 5,
       .fixed = 0.6,
       .topic = 0.8,
       .token = 0.6,
       .walk = 0.5,
       .noise = 0.3,
       .leaving = 0.01},
      {.name = "turns",
       .flow = KindFlow::kTurns,
       .layers = 6,
       .experts = 96,
       .forwards = 400,
       .fixed = 0.6,
       .topic = 0.9,
       .token = 0.6,
       .walk = 0.5,
       .noise = 0.3,
       .period = 40},
      {.name = "denoise",
       .flow = KindFlow::kDenoise,
       .layers = 5,
       .experts = 128,
       .top_k = 6,
       .forwards = 200,
       .batch = 12,
       .fixed = 0.5,
       .topic = 0.6,
       .token = 1.0,
       .walk = 0.4,
       .noise = 0.15,
       .period = 10},
      {.name = "cycle", .flow = KindFlow::kCycle, .experts = 48, .noise = 0.05, .period = 11},
      {.name = "scan",
       .flow = KindFlow::kScan,
       .layers = 6,
       .experts = 80,
       .top_k = 6,
       .period = 14},
      {.name = "shifts",
       .layers = 10,
       .forwards = 400,
       .fixed = 1.4,
       .token = 0.3,
       .walk = 0.3,
       .noise = 0.5,
       .flip = 90},
      {.name = "noise", .layers = 10, .experts = 48, .fixed = 0.25, .noise = 1},
      {.name = "copies",
       .layers = 8,
       .forwards = 500,
       .fixed = 0.4,
       .token = 1.2,
       .noise = 0.15,
       .vocabulary = 1500,
       .copying = 0.97},
      {.name = "pairs",
       .flow = KindFlow::kAlternate,
       .forwards = 400,
       .batch = 2,
       .fixed = 0.4,
       .topic = 1.0,
       .token = 0.4,
       .walk = 0.8,
       .noise = 0.3},
      {.name = "few",
       .layers = 24,
       .experts = 8,
       .top_k = 2,
       .fixed = 0.5,
       .topic = 0.7,
       .token = 0.8,
       .noise = 0.3},
      {.name = "bursts", .flow = KindFlow::kBursts, .layers = 6, .noise = 0.1, .period = 9},

      {.name = "essay",
       .use = KindUse::kHeldOut,
       .layers = 14,
       .experts = 72,
       .top_k = 8,
       .fixed = 0.4,
       .topic = 1.1,
       .token = 0.8,
       .walk = 0.3,
       .noise = 0.2,
       .topic_forwards = 40},
      {.name = "throng",
       .use = KindUse::kHeldOut,
       .layers = 5,
       .experts = 160,
       .top_k = 6,
       .forwards = 220,
       .batch = 11,
       .fixed = 0.8,
       .topic = 0.6,
       .token = 0.7,
       .walk = 0.7,
       .noise = 0.2,
       .leaving = 0.02},
      {.name = "visits",
       .use = KindUse::kHeldOut,
       .flow = KindFlow::kTurns,
       .layers = 8,
       .forwards = 350,
       .fixed = 0.9,
       .topic = 0.6,
       .token = 0.5,
       .walk = 0.8,
       .noise = 0.2,
       .period = 18},
      {.name = "verify",
       .use = KindUse::kHeldOut,
       .flow = KindFlow::kVerify,
       .experts = 80,
       .top_k = 4,
       .forwards = 250,
       .batch = 5,
       .fixed = 0.5,
       .topic = 0.7,
       .token = 0.9,
       .walk = 0.4,
       .noise = 0.2},
      {.name = "round",
       .use = KindUse::kHeldOut,
       .flow = KindFlow::kCycle,
       .layers = 10,
       .experts = 100,
       .top_k = 5,
       .noise = 0.02,
       .period = 17},
      {.name = "sweep",
       .use = KindUse::kHeldOut,
       .flow = KindFlow::kScan,
       .experts = 120,
       .top_k = 8,
       .noise = 0.1,
       .period = 30},
      {.name = "unlike",
       .use = KindUse::kHeldOut,
       .layers = 12,
       .fixed = 0.7,
       .topic = 0.5,
       .token = 0.4,
       .walk = 0.6,
       .noise = 0.6,
       .unlike_layers = 1},
      {.name = "white",
       .use = KindUse::kHeldOut,
       .layers = 6,
       .experts = 40,
       .top_k = 3,
       .noise = 1},
      {.name = "replies",
       .use = KindUse::kHeldOut,
       .layers = 6,
       .experts = 96,
       .top_k = 6,
       .forwards = 500,
       .fixed = 0.5,
       .topic = 0.4,
       .token = 1.0,
       .walk = 0.2,
       .noise = 0.1,
       .vocabulary = 600,
       .copying = 0.93},
      {.name = "trio",
       .use = KindUse::kHeldOut,
       .flow = KindFlow::kAlternate,
       .layers = 6,
       .experts = 96,
       .top_k = 6,
       .forwards = 450,
       .batch = 3,
       .fixed = 0.6,
       .topic = 0.9,
       .token = 0.5,
       .walk = 0.6,
       .noise = 0.2},
      {.name = "mixtral",
       .use = KindUse::kHeldOut,
       .layers = 32,
       .experts = 8,
       .top_k = 2,
       .fixed = 0.3,
       .topic = 0.5,
       .token = 1.0,
       .noise = 0.5},
      {.name = "spells",
       .use = KindUse::kHeldOut,
       .flow = KindFlow::kBursts,
       .layers = 8,
       .experts = 90,
       .top_k = 6,
       .noise = 0.03,
       .period = 25},
  };
  return *kKinds;
}

const std::vector<TraceKind>& ModelKinds() {
  static const auto* const kKinds = [] {
    TraceKind qwen = *std::find_if(TraceKinds().begin(), TraceKinds().end(), [](const auto& kind) {
      return std::string(kind.name) == "essay";
    });
    qwen.name = "qwen3-30b-a3b";
    qwen.layers = 48;
    qwen.experts = 128;
    qwen.top_k = 8;
    return new std::vector<TraceKind>{qwen};
  }();
  return *kKinds;
}

Trace MakeTrace(const TraceKind& kind, uint32_t seed) { return KindMaker(kind, seed).Make(); }

}  // namespace tidepool::moe
