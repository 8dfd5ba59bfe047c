// Kinds of routing to judge policies by: from seeds, each in its own way. Constants of policies are
// chosen on those for design only; those held out say what the choice is worth.
#ifndef TIDEPOOL_TESTS_MOE_REPLAY_TRACE_KINDS_H_
#define TIDEPOOL_TESTS_MOE_REPLAY_TRACE_KINDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "moe/replay/trace.h"

namespace tidepool::moe {

enum class KindUse : uint8_t { kDesign, kHeldOut };

// How forwards follow each other.
enum class KindFlow : uint8_t {
  kDecode,     // each of `batch` sequences goes on by one token
  kTurns,      // prefills of other lengths every time, then decoding, one sequence after the other
  kAlternate,  // `batch` sequences take turns, one forward each
  kDenoise,    // blocks of `batch` tokens, each forward fixes some of them
  kVerify,     // `batch` guessed tokens a forward, of which some are kept
  kCycle,      // experts in a cycle of `period` forwards; `noise` is the share of others
  kScan,       // half of the experts from a hot set, the others one after the other
  kBursts,     // an expert is used for `period` forwards on end and then not for long
};

// A gate takes the top_k of scores that are sums of normal numbers, each [layers, experts] and of
// this weight: fixed ones, those of the topic, of the token, of a slow walk, and fresh ones. Topic
// and token are the same for all layers of a token, so that layers agree.
struct TraceKind {
  const char* name = "";
  KindUse use = KindUse::kDesign;
  KindFlow flow = KindFlow::kDecode;
  int layers = 8;
  int experts = 64;
  int top_k = 4;
  int forwards = 300;
  int batch = 1;
  double fixed = 0;
  double topic = 0;
  double token = 0;
  double walk = 0;
  double noise = 0;
  double topic_forwards = 100;  // mean life of a topic
  double walk_forwards = 50;    // and of the walk's memory
  int vocabulary = 200;         // tokens come in proportion to 1 / (1 + rank)
  double copying = 0;           // share of tokens that repeat what followed some time ago
  int period = 0;               // kTurns: decode forwards; others as said there
  int flip = 0;                 // > 0: after so many forwards the fixed scores are drawn anew
  double unlike_layers = 0;     // 1: the last layer has no noise, the first twice as much
  double leaving = 0;           // chance of a sequence to end, and another to come, per forward
};

const std::vector<TraceKind>& TraceKinds();

Trace MakeTrace(const TraceKind& kind, uint32_t seed);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_TESTS_MOE_REPLAY_TRACE_KINDS_H_
