// Kinds of routing on which policies are judged, made from seeds. The constants of policies are
// chosen only on the design kinds; the held-out kinds show whether the choice works in general.
#ifndef TIDEPOOL_TESTS_MOE_REPLAY_TRACE_KINDS_H_
#define TIDEPOOL_TESTS_MOE_REPLAY_TRACE_KINDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "moe/trace/trace.h"

namespace tidepool::moe {

enum class KindUse : uint8_t { kDesign, kHeldOut };

// The order of forwards.
enum class KindFlow : uint8_t {
  kDecode,     // each of `batch` sequences gets one token per forward
  kTurns,      // one sequence after another: a prefill of random length, then decoding
  kAlternate,  // `batch` sequences take turns, one forward each
  kDenoise,    // blocks of `batch` tokens, each forward fixes some of them
  kVerify,     // `batch` guessed tokens a forward, of which some are kept
  kCycle,      // experts in a cycle of `period` forwards; `noise` is the share of others
  kScan,       // half of the experts from a hot set, the others one after the other
  kBursts,     // an expert is used in `period` consecutive forwards and then not for a long time
};

// A gate takes the top_k of scores. A score is a weighted sum of normal random numbers: fixed ones,
// those of the topic, of the token and of a slow random walk, and new ones each time. The fields
// below give the weights; each part has the shape [layers, experts]. All layers of a token have the
// same topic and token, so the routing of the layers is correlated. Large because it is one row of
// a table of settings.
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
  double topic_forwards = 100;  // mean lifetime of a topic
  double walk_forwards = 50;    // mean memory of the walk
  int vocabulary = 200;         // tokens come in proportion to 1 / (1 + rank)
  double copying = 0;           // share of tokens that repeat an earlier passage
  int period = 0;               // kTurns: number of decode forwards; for other flows see KindFlow
  int flip = 0;              // > 0: the fixed scores are drawn again after this number of forwards
  double unlike_layers = 0;  // 1: the last layer has no noise, the first twice as much
  double leaving = 0;  // probability per forward that a sequence ends and a new one takes its place
};

const std::vector<TraceKind>& TraceKinds();

// Kinds with the shape of a real model, for predictions of its speed. Policies are not judged on
// these. Their routing is that of a kind in TraceKinds, because real routing is not known.
const std::vector<TraceKind>& ModelKinds();

Trace MakeTrace(const TraceKind& kind, uint32_t seed);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_TESTS_MOE_REPLAY_TRACE_KINDS_H_
