// What the parts of ModelConfig::Parse share: limits, and access to keys with the prefix of an
// architecture. Implementation detail of ModelConfig.
#ifndef TIDEPOOL_ENGINE_MODEL_CONFIG_KEYS_H_
#define TIDEPOOL_ENGINE_MODEL_CONFIG_KEYS_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/model/families.h"
#include "engine/model/model_config.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {

// Limits that are far above the sizes of real models. Because of them, every size fits in an int,
// and no product of sizes overflows 64 bits.
inline constexpr int64_t kMaxLayers = 4096;
inline constexpr int64_t kMaxHeads = 4096;
inline constexpr int64_t kMaxHeadDim = 4096;
inline constexpr int64_t kMaxWidth = 1 << 20;
inline constexpr int64_t kMaxVocabulary = 1 << 24;
inline constexpr int64_t kMaxExperts = 4096;
inline constexpr int64_t kMaxContext = 1 << 30;
// Limit for the factors that YaRN and similar methods apply to cos and sin. Real ones are below 2.
inline constexpr double kMaxRopeScale = 1000;
// Limit for multipliers and soft-caps. Real ones are below 100.
inline constexpr double kMaxScale = 1e6;

// Reads the keys of one file that have the prefix of its architecture, and checks ranges. Remembers
// for which keys a caller has asked.
class Keys {
 public:
  Keys(const Checkpoint& file, absl::string_view architecture)
      : file_(file), prefix_(absl::StrCat(architecture, ".")) {}

  const std::string& prefix() const { return prefix_; }
  std::string Name(absl::string_view suffix) const {
    asked_.emplace(suffix);
    return absl::StrCat(prefix_, suffix);
  }
  bool WasAsked(absl::string_view suffix) const { return asked_.contains(std::string(suffix)); }
  bool Has(absl::string_view suffix) const { return file_.HasKey(Name(suffix)); }

  absl::Status Invalid(absl::string_view suffix, absl::string_view message) const {
    return file_.Error(Name(suffix), message);
  }
  absl::Status Unsupported(absl::string_view suffix, absl::string_view message) const {
    return absl::UnimplementedError(file_.Error(Name(suffix), message).message());
  }

  absl::Status CheckRange(absl::string_view suffix, int64_t value, int64_t low,
                          int64_t high) const {
    if (value >= low && value <= high) return absl::OkStatus();
    return Invalid(suffix, absl::StrCat(value, ", expected ", low, " to ", high));
  }
  absl::StatusOr<int64_t> Int(absl::string_view suffix, int64_t low, int64_t high) const {
    ASSIGN_OR_RETURN(const int64_t value, file_.Int(Name(suffix)));
    RETURN_IF_ERROR(CheckRange(suffix, value, low, high));
    return value;
  }
  absl::StatusOr<int64_t> IntOr(absl::string_view suffix, int64_t fallback, int64_t low,
                                int64_t high) const {
    if (!Has(suffix)) return fallback;
    return Int(suffix, low, high);
  }
  // Returns a finite number that is greater than `above` and at most `most`.
  absl::StatusOr<double> FloatOr(absl::string_view suffix, double fallback, double above,
                                 double most = std::numeric_limits<double>::max()) const {
    ASSIGN_OR_RETURN(const double value, file_.FloatOr(Name(suffix), fallback));
    if (value > above && value <= most) return value;
    return Invalid(suffix, absl::StrCat(value, ", expected a finite number above ", above,
                                        most < std::numeric_limits<double>::max()
                                            ? absl::StrCat(" and at most ", most)
                                            : ""));
  }
  // Returns a number from 0 to kMaxScale.
  absl::StatusOr<float> ScaleOr(absl::string_view suffix, float fallback) const {
    ASSIGN_OR_RETURN(const double value, file_.FloatOr(Name(suffix), fallback));
    if (value >= 0 && value <= kMaxScale) return static_cast<float>(value);
    return Invalid(suffix, absl::StrCat(value, ", expected 0 to ", kMaxScale));
  }
  // Returns one bool for each layer, from an array. Requires: the key exists.
  absl::StatusOr<std::vector<bool>> BoolPerLayer(absl::string_view suffix, int64_t layers) const {
    ASSIGN_OR_RETURN(std::vector<bool> values, file_.Bools(Name(suffix)));
    RETURN_IF_ERROR(CheckCount(suffix, static_cast<int64_t>(values.size()), layers));
    return values;
  }
  // Returns one value for each layer, from a scalar or an array. A scalar must be at least 1. Only
  // an array can say that some layers have the value 0.
  absl::StatusOr<std::vector<int64_t>> PerLayer(absl::string_view suffix, int64_t layers,
                                                int64_t low, int64_t high) const {
    const GgufEntry* entry = file_.Find(Name(suffix));
    std::vector<int64_t> values;
    if (entry != nullptr && entry->is_array) {
      ASSIGN_OR_RETURN(values, file_.Ints(Name(suffix)));
    } else {
      ASSIGN_OR_RETURN(const int64_t value, Int(suffix, std::max<int64_t>(low, 1), high));
      values.assign(layers, value);
    }
    RETURN_IF_ERROR(CheckCount(suffix, static_cast<int64_t>(values.size()), layers));
    for (const int64_t value : values) RETURN_IF_ERROR(CheckRange(suffix, value, low, high));
    return values;
  }

 private:
  absl::Status CheckCount(absl::string_view suffix, int64_t count, int64_t layers) const {
    if (count == layers) return absl::OkStatus();
    return Invalid(suffix, absl::StrCat("an array of ", count, " values, expected one for each of ",
                                        layers, " layers"));
  }

  const Checkpoint& file_;
  const std::string prefix_;
  mutable std::set<std::string> asked_;
};

// What the parts of ModelConfig::Parse read: the checkpoint, its keys and its family.
struct ConfigSource {
  const Checkpoint& file;
  const Keys& keys;
  const Family& family;
};

// Sets config->layers, except for their `ffn`, `ffn_width` and `rope`, and sets
// config->draft_layers. Requires: hidden_size is set.
absl::Status ReadLayers(const ConfigSource& source, ModelConfig* config);

// Sets `mixer` of each layer, and the sizes of the mixers that are not attention. Requires: the
// number of layers is set.
absl::Status ReadMixers(const ConfigSource& source, ModelConfig* config);

// Sets config->moe, and `ffn` and `ffn_width` of each layer. Requires: the layers are set.
absl::Status ReadFfns(const ConfigSource& source, ModelConfig* config);

// Sets config->ropes, and `rope` of each layer. Requires: context_length and the other fields of
// the layers are set.
absl::Status ReadRopes(const ConfigSource& source, ModelConfig* config);

// Rejects a key with the architecture's prefix if no caller has asked for it and it may change
// results. The error is UNIMPLEMENTED and names the key.
absl::Status RejectUnknownKeys(const Checkpoint& file, const Keys& keys);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_CONFIG_KEYS_H_
