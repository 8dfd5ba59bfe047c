#include "kernels/cpu/isa.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tidepool::kernels {
namespace {

struct Form {
  Isa isa;
  // null if this build does not have them, or the machine does not support them
  const KernelTable* kernels;
  const char* needs;
};

KernelTable WithAvx512(KernelTable table, const Avx512Forms& forms) {
  table.name = "avx512";
  table.multiply_int8 = forms.multiply_int8;
  table.multiply_float = forms.multiply_float;
  table.quantize = forms.quantize;
  table.glu[static_cast<int>(GluForm::kSwiGlu)] = forms.swiglu;
  table.attention = *Avx512Attention();
  table.recurrent.advance_delta = forms.advance_delta;
  table.recurrent.delta_tiles = forms.delta_tiles;
  return table;
}

KernelTable WithVnni(KernelTable table) {
  table.name = "avx512vnni";
  table.multiply_int8 = VnniMultiplyInt8();
  return table;
}

}  // namespace

CpuFeatures DetectCpu() {
  CpuFeatures features;
#if defined(__x86_64__)
  // These functions also check that the operating system saves the registers.
  features.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("f16c");
  features.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  features.avx512_vnni = __builtin_cpu_supports("avx512vnni");
#endif
  return features;
}

const KernelTable* Avx512Kernels() {
  if (OwnAvx512Forms() == nullptr) return nullptr;
  static const KernelTable table = WithAvx512(*Avx2Kernels(), *OwnAvx512Forms());
  return &table;
}

const KernelTable* Avx512VnniKernels() {
  if (VnniMultiplyInt8() == nullptr) return nullptr;
  static const KernelTable table = WithVnni(*Avx512Kernels());
  return &table;
}

absl::StatusOr<const KernelTable*> ChooseKernels(Isa isa, const CpuFeatures& features) {
  const bool avx512 = features.avx2 && features.avx512;
  // The fastest is the first.
  const Form forms[] = {
      {Isa::kAvx512Vnni, avx512 && features.avx512_vnni ? Avx512VnniKernels() : nullptr,
       "AVX-512 F, BW, VL, DQ and VNNI"},
      {Isa::kAvx512, avx512 ? Avx512Kernels() : nullptr, "AVX-512 F, BW, VL and DQ"},
      {Isa::kAvx2, features.avx2 ? Avx2Kernels() : nullptr, "AVX2, FMA and F16C"},
  };
  for (const Form& form : forms) {
    if ((isa == form.isa || isa == Isa::kBest) && form.kernels != nullptr) return form.kernels;
    if (isa == form.isa) {
      return absl::FailedPreconditionError(absl::StrCat(
          "this machine does not have ", form.needs, ": choose the portable or the best kernels"));
    }
  }
  return &PortableKernels();
}

}  // namespace tidepool::kernels
