"""No class has more than 20 data members or 25 methods, except for a reason in the comment above it.

This applies to C++ and Python. The reason has the form "Large because ...". Constructors, destructors,
assignments and static data members do not count. `class_size_test.py --largest` prints the largest classes.
"""

import sys
import unittest

from class_sizes import class_sizes, python_class_sizes
from tree import files, python_files, read

MAX_MEMBERS = 20
MAX_METHODS = 25
REASON = "Large because "
NOT_OURS = ("third_party/",)

SAMPLE = """
// Large because it is a sample.
class A final : public B<int> {
 public:
  A() : x_{1}, y_(2) {}
  ~A() override;
  A(const A&) = delete;
  A& operator=(const A&) = delete;
  bool operator==(const A&) const = default;
  template <typename T, int N = 2>
  static std::map<T, int> F(std::function<void(T)> f) { return {{f, 1}}; }
  void G() const TIDEPOOL_REQUIRES(mutex_);
  using C = std::vector<int>;
  enum class D { kE, kF };
  friend class H;
 private:
  struct I {
    int a = 0, b = 1;
    char c[4] = {'{', ';', '"', '('};  // int d;
  };
  int x_ = 0;
  std::function<int(int, int)> y_ TIDEPOOL_GUARDED_BY(mutex_);
  static constexpr int kJ = 3;
  const std::map<int, std::string> names_ = {{1, "a;"}, {2, "}"}};
  struct {
    int k = 0;
  } both_;
};
"""

PYTHON_SAMPLE = '''
# Large because
# it is a sample.
@decorated
class A(B):
    C = 1
    d: int = 2
    e: ClassVar[int] = 3
    def __init__(this, f):
        this.f, (this.g, h) = f, (1, 2)
        this.f.i = 3
    @property
    def j(self):
        with open("") as self.k:
            self.f += 1
        class L:
            def m(self):
                self.n = self.o
    @j.setter
    def j(self, value):
        self.p: int = value
        q.r = lambda: 1
    @staticmethod
    def s(t):
        return t
    async def u(self, *, v):
        for self.g in v:
            def w(x):
                self.y = x
'''


def sizes_by_file():
    sizes = {name: list(class_sizes(read(name))) for name in files(".h", ".cc")
             if not name.startswith(NOT_OURS)}
    for name in python_files():
        sizes[name] = list(python_class_sizes(read(name)))
    return sizes


def is_too_large(size):
    return size.members > MAX_MEMBERS or size.methods > MAX_METHODS


class ClassSizeTest(unittest.TestCase):
    def test_counts_members_and_methods(self):
        sizes = {size.name: size for size in class_sizes(SAMPLE)}
        self.assertEqual((sizes["A"].members, sizes["A"].methods), (4, 3))
        self.assertEqual((sizes["I"].members, sizes["I"].methods), (3, 0))
        self.assertIn(REASON, sizes["A"].comment)
        self.assertEqual(sizes["I"].comment, "")

    def test_counts_those_of_python(self):
        sizes = {size.name: size for size in python_class_sizes(PYTHON_SAMPLE)}
        self.assertEqual((sizes["A"].members, sizes["A"].methods), (6, 3))
        self.assertEqual((sizes["L"].members, sizes["L"].methods), (1, 1))
        self.assertEqual(sizes["A"].comment, "Large because it is a sample.")
        self.assertEqual(sizes["L"].comment, "")

    def test_classes_stay_small(self):
        wrong = []
        for name, sizes in sizes_by_file().items():
            for size in filter(is_too_large, sizes):
                if REASON in size.comment:
                    continue
                wrong.append(f"{name}:{size.line}: {size.name} has {size.members} data members and "
                             f"{size.methods} methods (at most {MAX_MEMBERS} and {MAX_METHODS}); "
                             f'split it, or give the reason above it: "{REASON}..."')
        self.assertEqual(wrong, [])


def print_largest():
    for name, sizes in sizes_by_file().items():
        for size in sizes:
            if size.members > MAX_MEMBERS * 3 // 4 or size.methods > MAX_METHODS * 4 // 5:
                print(f"{name}:{size.line}: {size.name}: {size.members} data members, "
                      f"{size.methods} methods")


if __name__ == "__main__":
    if "--largest" in sys.argv:
        print_largest()
    else:
        unittest.main()
