#include "service/cli/model_flags.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "engine/checkpoint/ggml_type.h"
#include "engine/checkpoint/quantize.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "service/base/units.h"

namespace tidepool::service {
namespace {

using kernels::Device;
using kernels::DType;
using kernels::Isa;

constexpr size_t kMaxNameBytes = 200;

bool IsControl(char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); }

absl::Status AddAlias(absl::string_view value, Config* config) {
  RETURN_IF_ERROR(base::CheckUtf8(value, "the name"));
  if (value.empty() || value.size() > kMaxNameBytes ||
      std::any_of(value.begin(), value.end(), IsControl)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a name is one line of 1 to ", kMaxNameBytes, " bytes"));
  }
  std::vector<std::string>& aliases = config->model.aliases;
  if (std::find(aliases.begin(), aliases.end(), value) == aliases.end()) {
    aliases.emplace_back(value);
  }
  return absl::OkStatus();
}

// Removes a suffix such as "-00001-of-00003".
absl::string_view WithoutPart(absl::string_view name) {
  constexpr absl::string_view kForm = "-#####-of-#####";
  if (name.size() <= kForm.size()) return name;
  const absl::string_view end = name.substr(name.size() - kForm.size());
  const bool is_part = std::equal(end.begin(), end.end(), kForm.begin(), [](char have, char form) {
    return form == '#' ? absl::ascii_isdigit(static_cast<unsigned char>(have)) : have == form;
  });
  return is_part ? name.substr(0, name.size() - kForm.size()) : name;
}

constexpr FlagSpec kFlags[] = {
    {"alias", 'a', "Model", "NAME", "the file's name without .gguf",
     "name by which requests can select the model; repeatable. The first name is the model's id "
     "for OpenAI's clients. The name in the model file also selects the model",
     Bit(Command::kServe) | Bit(Command::kWorker), FlagKind::kRepeats, AddAlias},
};

}  // namespace

absl::Span<const FlagSpec> ModelFlagSpecs() { return kFlags; }

absl::Status SetKvMemory(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(config->model.kv_memory_bytes, ParseSize(value));
  if (config->model.kv_memory_bytes < (size_t{1} << 10)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is less than 1KiB"));
  }
  return absl::OkStatus();
}

absl::Status SetKvDisk(absl::string_view value, Config* config) {
  ASSIGN_OR_RETURN(const size_t bytes, ParseSize(value));
  config->model.kv_disk_bytes = static_cast<int64_t>(bytes);
  return bytes > 0
             ? absl::OkStatus()
             : absl::InvalidArgumentError("must be greater than 0; omit the flag for no KV disk");
}

absl::Status SetKvType(absl::string_view value, Config* config) {
  const std::pair<absl::string_view, DType> types[] = {
      {"f32", DType::kF32}, {"f16", DType::kF16}, {"bf16", DType::kBF16}, {"q8_0", DType::kQ8_0}};
  for (const auto& [name, type] : types) {
    if (absl::EqualsIgnoreCase(value, name)) {
      config->model.kv_type = type;
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is not f32, f16, bf16 or q8_0"));
}

absl::Status SetQuantizeTo(absl::string_view value, Config* config) {
  constexpr uint32_t kTypeIds = 64;
  std::vector<absl::string_view> accepted;
  for (uint32_t id = 0; id < kTypeIds; ++id) {
    const engine::GgmlTypeInfo* info = engine::FindGgmlType(id);
    if (info == nullptr || !engine::CanQuantize(info->type)) continue;
    if (absl::EqualsIgnoreCase(info->name, value)) {
      config->model.quantize_to = info->type;
      return absl::OkStatus();
    }
    accepted.push_back(info->name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", value, "\" is not one of ", absl::StrJoin(accepted, ", ")));
}

absl::Status SetIsa(absl::string_view value, Config* config) {
  if (value == "auto") {
    config->model.isa = Isa::kBest;
  } else if (value == "portable") {
    config->model.isa = Isa::kPortable;
  } else if (value == "avx2") {
    config->model.isa = Isa::kAvx2;
  } else if (value == "avx512") {
    config->model.isa = Isa::kAvx512;
  } else if (value == "avx512vnni") {
    config->model.isa = Isa::kAvx512Vnni;
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", value, "\" is not auto, portable, avx2, avx512 or avx512vnni"));
  }
  return absl::OkStatus();
}

absl::Status SetDevice(absl::string_view value, Config* config) {
  if (value == "cpu") {
    config->model.device = Device::kCpu;
  } else if (value == "cuda") {
    config->model.device = Device::kCuda;
  } else {
    return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is not cpu or cuda"));
  }
  return absl::OkStatus();
}

std::vector<std::string> AliasesOf(const std::vector<std::string>& named, absl::string_view path) {
  if (!named.empty()) return named;
  while (absl::ConsumeSuffix(&path, "/")) {
  }
  const size_t slash = path.rfind('/');
  if (slash != absl::string_view::npos) path.remove_prefix(slash + 1);
  std::string stem;
  base::AppendUtf8Lossy(WithoutPart(absl::StripSuffix(path, ".gguf")).substr(0, kMaxNameBytes),
                        &stem);
  std::replace_if(stem.begin(), stem.end(), IsControl, ' ');
  if (stem.empty()) return {};
  return {stem};
}

}  // namespace tidepool::service
