// The version of our arithmetic, and a hash of its results.
//
// KV on a disk is reused, and a stream continues on another worker, only if the version is equal.
// So if you change the bits of a model's output (the order of a sum, a polynomial, a rounding), add
// a line below. tests/engine/model/numerics_version_test.cc fails until then, and prints the line.
// Never change the line of a release.
#ifndef TIDEPOOL_ENGINE_MODEL_NUMERICS_VERSION_H_
#define TIDEPOOL_ENGINE_MODEL_NUMERICS_VERSION_H_

#include <iterator>

namespace tidepool::engine {

struct NumericsVersion {
  int version = 0;
  // XXH3-128 (32 hex digits) of the logits of golden models, in default and in exact mode.
  const char* tiny_models = "";  // models in tests/golden/tiny
  const char* smollm2 = "";      // SmolLM2-135M-Instruct Q4_1
};

inline constexpr NumericsVersion kNumericsVersions[] = {
    {2, "c99329fc60f33c4816918485b04ce6c5", "43793dc38cdefc33af5aa61705fa4bd0"},
};

inline constexpr int kNumericsVersion = std::rbegin(kNumericsVersions)->version;

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_NUMERICS_VERSION_H_
