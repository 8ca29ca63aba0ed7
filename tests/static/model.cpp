// What a model is. Programs that must not compile for it are in tests/compile_fail.
#include <string>
#include <vector>

#include <tessera/graph/trace/trace.hpp>
#include <tessera/ops/reduction/reduction.hpp>

namespace ts = tessera;

namespace {

using Matrix = ts::ShardedTensor<float, 2>;

struct Relu {};
struct Plain {
  Matrix w;
  Relu act;
  ts::Dim heads;
  ts::Scalar epsilon;
  std::array<Matrix, 3> parts;
  std::tuple<Matrix, ts::Dim> both;
  std::pair<Matrix, Matrix> two;
};
struct Nested {
  Plain first, second;
  ts::Stack<Plain> layers;
};
template <class T> struct WithType {
  using value_type = T;
  ts::ShardedTensor<T, 2> w;
};
static_assert(ts::Model<Plain> && ts::Model<Nested> && ts::Model<Matrix> && ts::Model<ts::Sym<float, 1>>);
static_assert(ts::Model<Relu> && ts::Model<WithType<float>> && ts::Model<std::pair<Plain, Matrix>>);
static_assert(ts::Model<std::tuple<>> && ts::Model<std::array<Nested, 2>> && ts::Model<ts::Dim>);

struct Weight {
  Matrix w;
};
struct Functions {};
struct OnlyBase : Weight {};
struct BaseAndField : Weight {
  Matrix b;
};
struct EmptyBase : Functions {
  Matrix w;
};
static_assert(!ts::Model<OnlyBase> && !ts::Model<BaseAndField> && !ts::Model<EmptyBase>);

struct Constructor {
  Matrix w;
  constexpr Constructor() {}
};
class Private {
  Matrix w;

 public:
  constexpr auto operator()(const auto& x) const { return x * w; }
};
struct Virtual {
  Matrix w;
  virtual ~Virtual() = default;
};
static_assert(!ts::Model<Constructor> && !ts::Model<Private> && !ts::Model<Virtual>);

struct Integer {
  Matrix w;
  int heads;
};
struct Reference {
  Matrix& w;
};
struct Constant {
  const Matrix w;
};
struct Pointer {
  Matrix* w;
};
struct Function {
  void (*f)();
};
struct Strings {
  std::string name;
};
struct Vector {
  std::vector<Matrix> layers;
};
struct Deep {
  Plain plain;
  std::tuple<Matrix, std::array<Vector, 2>> rest;
};
static_assert(!ts::Model<Integer> && !ts::Model<Reference> && !ts::Model<Constant> && !ts::Model<Pointer>);
static_assert(!ts::Model<Function> && !ts::Model<Strings> && !ts::Model<Vector> && !ts::Model<Deep>);
static_assert(!ts::Model<int> && !ts::Model<float> && !ts::Model<ts::Stack<Vector>>);

// Initialisers fill a built-in array element by element, so the fields can't be counted.
struct Array {
  Matrix w[2];
};
struct ArrayOfOne {
  Matrix w[1];
};
struct ArrayAmongFields {
  Matrix first;
  Plain plain;
  Matrix w[3];
  Matrix last;
};
struct Many {
  Matrix a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q;
};
static_assert(!ts::Model<Array> && !ts::Model<ArrayOfOne> && !ts::Model<ArrayAmongFields> && !ts::Model<Many>);

// A pair and an array of results are what they are, with tensors in place of what was traced.
struct Results {
  constexpr auto operator()(const auto& x) const { return std::pair(x * 2, std::array{ts::sum(x), ts::sum(x + 1)}); }
};
static_assert(
    std::is_same_v<ts::Traced<Results, Matrix>::result, std::pair<Matrix, std::array<ts::ShardedTensor<float, 0>, 2>>>);

}  // namespace
