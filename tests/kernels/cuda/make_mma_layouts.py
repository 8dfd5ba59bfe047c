"""Writes mma_layouts.txt: which element of a matrix each lane of a warp holds in mma and ldmatrix.

Usage: python3 make_mma_layouts.py INCLUDE > mma_layouts.txt

INCLUDE is the folder cutlass_library/source/include of the PyPI package nvidia-cutlass (4.2.0.0),
whose cute library has these layouts as types. Needs g++ and the CUDA headers (CUDA_HOME, default
/usr/local/cuda). No code of ours is used.

Each table begins with a line of its name. Then it has one line for each of the 32 lanes. For mma,
number i of a line is the element that the lane's value i holds: row * columns + column of A (16 x
K), of B as K x 8, or of C (16 x 8). For ldmatrix, number i is the byte that the lane's byte i
holds, in the 512 bytes of the rows that lanes 0 to 31 point to, in this order.
"""

import os
import subprocess
import sys
import tempfile

PROGRAM = r"""
#include <cstdio>
#include <cute/atom/copy_traits_sm75.hpp>
#include <cute/atom/mma_traits_sm80.hpp>

using namespace cute;

// cute numbers the elements of an operand column by column of (M or N, K or N).
template <class Layout>
void Print(const char* name, const Layout& layout, int rows, int columns, bool transposed) {
  std::printf("%s\n", name);
  for (int lane = 0; lane < 32; ++lane) {
    for (int value = 0; value < int(size<1>(layout)); ++value) {
      const int at = layout(lane, value);
      const int row = at % rows;
      const int column = at / rows;
      std::printf("%s%d", value ? " " : "", transposed ? column * rows + row : row * columns + column);
    }
    std::printf("\n");
  }
}

template <class Atom, int kK>
void PrintMma(const char* a, const char* b, const char* c) {
  using Traits = MMA_Traits<Atom>;
  Print(a, typename Traits::ALayout{}, 16, kK, false);
  Print(b, typename Traits::BLayout{}, 8, kK, true);
  Print(c, typename Traits::CLayout{}, 16, 8, false);
}

int main() {
  PrintMma<SM80_16x8x32_S32S8S8S32_TN, 32>("m16n8k32.a", "m16n8k32.b", "m16n8k32.c");
  PrintMma<SM80_16x8x16_S32S8S8S32_TN, 16>("m16n8k16.a", "m16n8k16.b", "m16n8k16.c");
  using Load = Copy_Traits<SM75_U32x4_LDSM_N>;
  std::printf("ldmatrix.x4\n");
  Load::SrcLayout source;
  Load::DstLayout target;
  for (int lane = 0; lane < 32; ++lane) {
    for (int value = 0; value < 128; value += 8) {
      const int bit = target(lane, value);
      // Lane bit / 128 points to the row that contains this bit.
      if (source(bit / 128, bit % 128) != bit) return 1;
      std::printf("%s%d", value ? " " : "", bit / 8);
    }
    std::printf("\n");
  }
  return 0;
}
"""


def main():
    cuda = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "layouts.cc")
        binary = os.path.join(folder, "layouts")
        with open(source, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        includes = [f"-I{sys.argv[1]}", f"-I{cuda}/include", f"-I{cuda}/include/cccl"]
        subprocess.run(["g++", "-std=c++17", "-w", *includes, source, "-o", binary], check=True)
        subprocess.run([binary], check=True)


if __name__ == "__main__":
    main()
