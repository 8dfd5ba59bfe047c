// The element-wise functions of math.h for vectors of 8 floats. Each lane computes the same
// operations as math.h, and branches become selections at the end. inner.h describes V.
#ifndef TIDEPOOL_KERNELS_CPU_ACTIVATION_INNER_H_
#define TIDEPOOL_KERNELS_CPU_ACTIVATION_INNER_H_

#include "kernels/backend.h"
#include "kernels/math.h"

namespace tidepool::kernels {

template <typename V>
struct ActivationInner {
  using F = typename V::F;

  // x / (1 + e^minus)
  static F DivideByOnePlusExp(F x, F minus) {
    return V::Div(x, V::Add(V::Set(1.0f), V::Exp(minus)));
  }

  static F Sigmoid(F x) { return DivideByOnePlusExp(V::Set(1.0f), V::Negate(x)); }

  static F Tanh(F x) {
    const F a = V::Abs(x);
    const F z = V::Mul(x, x);
    F p = V::Fma(V::Set(kTanhP.c[4]), z, V::Set(kTanhP.c[3]));
    for (int i = 2; i >= 0; --i) p = V::Fma(p, z, V::Set(kTanhP.c[i]));
    const F small = V::Fma(V::Mul(p, z), x, x);
    const F one = V::Set(1.0f);
    const F t = V::ExpBelowZero(V::Mul(a, V::Set(-2.0f)));
    const F large = V::CopySign(V::Div(V::Sub(one, t), V::Add(one, t)), x);
    return V::SelectLess(a, V::Set(kTanhSmall), small, large);
  }

  static F SoftCap(F x, F factor, F cap) {
    const F capped = V::Mul(cap, Tanh(V::Mul(x, factor)));
    return V::SelectLess(V::Abs(x), V::Set(__builtin_inff()), capped, x);
  }

  static F GeluTanh(F x) {
    const F c = V::Fma(V::Set(kGeluC1), V::Mul(x, x), V::Set(kGeluC0));
    return DivideByOnePlusExp(x, V::Mul(x, c));
  }

  static F Gelu(F x) {
    const F a = V::Mul(V::Abs(x), V::Set(kRootHalf));
    F q = V::Set(kErfcQ.c[10]);
    for (int i = 9; i >= 0; --i) q = V::Fma(q, a, V::Set(kErfcQ.c[i]));
    const F zero = V::Set(0.0f);
    // A NaN is not greater than kErfcMax, so the result for a NaN is `tail`, which is NaN.
    const F tail = V::Mul(V::Set(0.5f), V::Exp(V::Negate(V::Mul(a, q))));
    const F kept = V::SelectLess(V::Set(kErfcMax), a, zero, tail);
    return V::Mul(x, V::SelectLess(x, zero, kept, V::Sub(V::Set(1.0f), kept)));
  }

  static F ClampedSwiGlu(F gate, F up, const Glu& glu) {
    const F limit = V::Set(glu.limit);
    // Min and Max return their second argument if it is a NaN. So `gate` and `up` come second, and
    // a NaN in them is kept.
    const F g = V::Min(limit, gate);
    const F u = V::Min(limit, V::Max(V::Set(-glu.limit), up));
    return V::Mul(V::Add(u, V::Set(1.0f)),
                  DivideByOnePlusExp(g, V::Negate(V::Mul(g, V::Set(glu.alpha)))));
  }

  template <GluForm kForm>
  static F GluVector(F gate, F up, const Glu& glu) {
    if constexpr (kForm == GluForm::kSwiGlu) {
      return V::Mul(DivideByOnePlusExp(gate, V::Negate(gate)), up);
    } else if constexpr (kForm == GluForm::kGeGlu) {
      return V::Mul(Gelu(gate), up);
    } else if constexpr (kForm == GluForm::kGeGluTanh) {
      return V::Mul(GeluTanh(gate), up);
    } else {
      return ClampedSwiGlu(gate, up, glu);
    }
  }
};

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_ACTIVATION_INNER_H_
