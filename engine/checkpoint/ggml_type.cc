#include "engine/checkpoint/ggml_type.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace tidepool::engine {
namespace {

constexpr GgmlTypeInfo kTypes[] = {
    {GgmlType::kF32, "F32", 1, 4},
    {GgmlType::kF16, "F16", 1, 2},
    {GgmlType::kQ4_0, "Q4_0", 32, 18},
    {GgmlType::kQ4_1, "Q4_1", 32, 20},
    {GgmlType::kQ5_0, "Q5_0", 32, 22},
    {GgmlType::kQ5_1, "Q5_1", 32, 24},
    {GgmlType::kQ8_0, "Q8_0", 32, 34},
    {GgmlType::kQ8_1, "Q8_1", 32, 36},
    {GgmlType::kQ2_K, "Q2_K", 256, 84},
    {GgmlType::kQ3_K, "Q3_K", 256, 110},
    {GgmlType::kQ4_K, "Q4_K", 256, 144},
    {GgmlType::kQ5_K, "Q5_K", 256, 176},
    {GgmlType::kQ6_K, "Q6_K", 256, 210},
    {GgmlType::kQ8_K, "Q8_K", 256, 292},
    {GgmlType::kIQ2_XXS, "IQ2_XXS", 256, 66},
    {GgmlType::kIQ2_XS, "IQ2_XS", 256, 74},
    {GgmlType::kIQ3_XXS, "IQ3_XXS", 256, 98},
    {GgmlType::kIQ1_S, "IQ1_S", 256, 50},
    {GgmlType::kIQ4_NL, "IQ4_NL", 32, 18},
    {GgmlType::kIQ3_S, "IQ3_S", 256, 110},
    {GgmlType::kIQ2_S, "IQ2_S", 256, 82},
    {GgmlType::kIQ4_XS, "IQ4_XS", 256, 136},
    {GgmlType::kI8, "I8", 1, 1},
    {GgmlType::kI16, "I16", 1, 2},
    {GgmlType::kI32, "I32", 1, 4},
    {GgmlType::kI64, "I64", 1, 8},
    {GgmlType::kF64, "F64", 1, 8},
    {GgmlType::kIQ1_M, "IQ1_M", 256, 56},
    {GgmlType::kBF16, "BF16", 1, 2},
    {GgmlType::kTQ1_0, "TQ1_0", 256, 54},
    {GgmlType::kTQ2_0, "TQ2_0", 256, 66},
    {GgmlType::kMXFP4, "MXFP4", 32, 17},
    {GgmlType::kNVFP4, "NVFP4", 64, 36},
    {GgmlType::kQ1_0, "Q1_0", 128, 18},
    {GgmlType::kQ2_0, "Q2_0", 64, 18},
};

struct RemovedType {
  uint32_t id;
  absl::string_view name;
};

constexpr RemovedType kRemovedTypes[] = {
    {4, "Q4_2"},      {5, "Q4_3"},        {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},
    {33, "Q4_0_8_8"}, {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"},
};

}  // namespace

const GgmlTypeInfo* FindGgmlType(uint32_t id) {
  for (const GgmlTypeInfo& info : kTypes) {
    if (static_cast<uint32_t>(info.type) == id) return &info;
  }
  return nullptr;
}

std::string DescribeBadGgmlType(uint32_t id) {
  for (const RemovedType& removed : kRemovedTypes) {
    if (removed.id == id) {
      return absl::StrCat("type ", removed.name, " (", id, "), which was removed from the format");
    }
  }
  return absl::StrCat("unknown type ", id);
}

const GgmlTypeInfo& TypeInfo(GgmlType type) {
  const GgmlTypeInfo* info = FindGgmlType(static_cast<uint32_t>(type));
  CHECK(info != nullptr) << "GgmlType " << static_cast<uint32_t>(type);
  return *info;
}

std::optional<kernels::DType> NativeDType(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
      return kernels::DType::kF32;
    case GgmlType::kF16:
      return kernels::DType::kF16;
    case GgmlType::kBF16:
      return kernels::DType::kBF16;
    case GgmlType::kQ8_0:
      return kernels::DType::kQ8_0;
    case GgmlType::kQ4_0:
      return kernels::DType::kQ4_0;
    case GgmlType::kQ4_1:
      return kernels::DType::kQ4_1;
    case GgmlType::kQ5_0:
      return kernels::DType::kQ5_0;
    case GgmlType::kQ5_1:
      return kernels::DType::kQ5_1;
    case GgmlType::kQ2_K:
      return kernels::DType::kQ2_K;
    case GgmlType::kQ3_K:
      return kernels::DType::kQ3_K;
    case GgmlType::kQ4_K:
      return kernels::DType::kQ4_K;
    case GgmlType::kQ5_K:
      return kernels::DType::kQ5_K;
    case GgmlType::kQ6_K:
      return kernels::DType::kQ6_K;
    case GgmlType::kIQ4_NL:
      return kernels::DType::kIQ4_NL;
    case GgmlType::kIQ4_XS:
      return kernels::DType::kIQ4_XS;
    case GgmlType::kMXFP4:
      return kernels::DType::kMXFP4;
    default:
      return std::nullopt;
  }
}

}  // namespace tidepool::engine
