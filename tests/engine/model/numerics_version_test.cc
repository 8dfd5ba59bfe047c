// The version of our arithmetic and a hash of golden models' logits must change together.
#include "engine/model/numerics_version.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/engine/model/golden_data.h"
#include "xxhash.h"

namespace tidepool::engine {
namespace {

using kernels::DType;
using kernels::Isa;
using kernels::Precision;

// These models have each architecture and each family of weight types.
constexpr const char* kTinyModels[] = {
    "llama3_rope_f16", "llama_f32",     "llama_quants",    "mistral_bf16",
    "mixtral_q4_0",    "qwen2_q8_0",    "qwen2moe_f32",    "qwen3_f32",
    "qwen3moe_f32",    "qwen3moe_q4_1", "qwen3moe_quants", "mixtral_f32",
};
constexpr Isa kIsas[] = {Isa::kBest, Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni};

// Returns the ids of a sequence that is longer than two KV blocks.
std::vector<int32_t> Ids(int64_t count) {
  std::mt19937 random(20);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 256);
  return ids;
}

class Hash {
 public:
  Hash() : state_(XXH3_createState()) { XXH3_128bits_reset(state_); }
  ~Hash() { XXH3_freeState(state_); }
  Hash(const Hash&) = delete;
  Hash& operator=(const Hash&) = delete;

  void Add(absl::Span<const float> values) {
    XXH3_128bits_update(state_, values.data(), values.size() * sizeof(float));
  }
  std::string Hex() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_);
    return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
  }

 private:
  XXH3_state_t* const state_;
};

// Adds the logits of both modes after every token of `ids`.
void AddModel(const std::string& path, Isa isa, absl::Span<const int32_t> ids, Hash* hash) {
  for (const Precision precision : {Precision::kFast, Precision::kExact}) {
    const bool exact = precision == Precision::kExact;
    const LoadedModel loaded = Load(path, {.precision = precision,
                                           .kv_dtype = exact ? DType::kF32 : DType::kF16,
                                           .isa = isa,
                                           .threads = 2});
    hash->Add(AllLogits(loaded.model.get(), ids, 64));
  }
}

const NumericsVersion& Current() { return *std::rbegin(kNumericsVersions); }

std::string Remedy(const std::string& tiny_models, const std::string& smollm2) {
  return absl::StrFormat(
      "The bits of golden models changed. If that is meant, add this line to "
      "engine/model/numerics_version.h, with what the other test here says:\n"
      "    {%d, \"%s\", \"%s\"},\n",
      Current().version + 1, tiny_models, smollm2);
}

bool IsHere(Isa isa) { return kernels::MakeCpuBackend({.isa = isa}).ok(); }

TEST(NumericsVersionTest, BitsOfTinyModelsAreThoseOfTheVersion) {
  for (const Isa isa : kIsas) {
    if (!IsHere(isa)) continue;
    Hash hash;
    for (const char* model : kTinyModels) {
      AddModel(std::string("tests/golden/tiny/") + model + ".gguf", isa, Ids(70), &hash);
    }
    EXPECT_EQ(hash.Hex(), Current().tiny_models)
        << "instruction set " << static_cast<int>(isa) << ". " << Remedy(hash.Hex(), "...");
  }
}

TEST(NumericsVersionTest, BitsOfSmolLm2AreThoseOfTheVersion) {
  for (const Isa isa : kIsas) {
    if (!IsHere(isa)) continue;
    Hash hash;
    AddModel(RealModelPath(), isa, Ids(6), &hash);
    EXPECT_EQ(hash.Hex(), Current().smollm2)
        << "instruction set " << static_cast<int>(isa) << ". " << Remedy("...", hash.Hex());
  }
}

TEST(NumericsVersionTest, EachVersionHasBitsOfItsOwn) {
  std::set<std::string> seen;
  int last = 0;
  for (const NumericsVersion& line : kNumericsVersions) {
    EXPECT_GT(line.version, last);
    last = line.version;
    EXPECT_TRUE(seen.insert(std::string(line.tiny_models) + line.smollm2).second) << line.version;
  }
}

}  // namespace
}  // namespace tidepool::engine
