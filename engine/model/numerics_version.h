// The version of our arithmetic, and a hash of its results.
//
// KV on a disk is reused only if the version is the same, and a stream continues only on a worker
// with the same version. A change of a sum's order, a polynomial or a rounding can change bits of a
// model's output. If any bit changes, you must add a line below. Without this line,
// tests/engine/model/numerics_version_test.cc fails and prints it. Never change the line of a
// release.
#ifndef TIDEPOOL_ENGINE_MODEL_NUMERICS_VERSION_H_
#define TIDEPOOL_ENGINE_MODEL_NUMERICS_VERSION_H_

#include <iterator>

namespace tidepool::engine {

struct NumericsVersion {
  int version = 0;
  // XXH3-128 (32 hex digits) of the logits of some models, in the default mode and in exact mode.
  const char* tiny_models = "";  // of the models in tests/golden/tiny
  const char* smollm2 = "";      // of SmolLM2-135M-Instruct Q4_1
};

inline constexpr NumericsVersion kNumericsVersions[] = {
    {2, "c99329fc60f33c4816918485b04ce6c5", "43793dc38cdefc33af5aa61705fa4bd0"},
};

inline constexpr int kNumericsVersion = std::rbegin(kNumericsVersions)->version;

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_NUMERICS_VERSION_H_
