#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "fused_programs.hpp"
#include <gtest/gtest.h>

#include <tessera/kernels/fused_kernel.hpp>

namespace {

using namespace tessera;
using programs::Builder;

constexpr int width = kernels::width;

// ---- programs

constexpr Fused bias_gradient() {
  Builder f;
  const int g = f.load(DType::f32), y = f.load(DType::f32);
  const int masked = f.op(Op::select, f.op(Op::greater, y, f.number()), g, f.op(Op::sub, g, g));
  f.store(masked);
  f.accumulate(Op::sum, masked, false);
  f.accumulate(Op::max, g, false);
  return f.fused;
}

constexpr Fused causal_mask() {
  Builder f;
  const int x = f.load(DType::f32), lowest = f.number(), scale = f.number();
  const int key = f.index(DType::i32, 1, true), query = f.index(DType::i32, 0, false);
  const int scores = f.op(Op::select, f.op(Op::less_equal, key, query), f.op(Op::mul, x, scale), lowest);
  f.store(scores);
  f.store_row(f.reduce(Op::max, scores));
  return f.fused;
}

constexpr Fused totals() {
  Builder f;
  const int x = f.load(DType::f32);
  f.accumulate(Op::sum, x, true);
  f.accumulate(Op::max, x, true);
  f.accumulate(Op::min, f.op(Op::mul, x, x), true);
  f.accumulate(Op::sum, f.number(), true);
  return f.fused;
}

constexpr Fused doubles() {
  Builder f;
  const int x = f.load(DType::f64), y = f.load(DType::f64, false), one = f.number(DType::f64);
  const int positive = f.op(Op::add, f.op(Op::mul, x, x), one);
  const int a = f.op(Op::tanh, f.op(Op::sub, x, y)), b = f.op(Op::log, positive), c = f.op(Op::sigmoid, x);
  const int d = f.op(Op::pow, positive, y), e = f.op(Op::sqrt, positive);
  const int chosen = f.op(Op::select, f.op(Op::less, x, y), f.op(Op::add, a, b), f.op(Op::mul, c, d));
  f.store(chosen);
  f.store(f.cast(DType::f32, f.op(Op::div, chosen, e)));
  f.store_row(f.reduce(Op::sum, f.op(Op::exp, f.op(Op::neg, f.op(Op::abs, x)))));
  f.accumulate(Op::sum, b, true);
  return f.fused;
}

constexpr Fused integers() {
  Builder f;
  const int x = f.load(DType::i32), y = f.load(DType::i64), k = f.number(DType::i32);
  const int column = f.index(DType::i64, 1, true);
  const int wide = f.cast(DType::i64, f.op(Op::div, x, k));
  const int z = f.op(Op::sub, f.op(Op::mul, wide, y), column);
  f.store(z);
  f.store(f.op(Op::maximum, f.op(Op::minimum, x, k), f.op(Op::neg, f.op(Op::abs, x))));
  f.store(f.op(Op::greater_equal, y, wide));
  f.store(f.cast(DType::f32, f.op(Op::sign, z)));
  f.store(f.cast(DType::i32, f.op(Op::div, y, wide)));
  f.accumulate(Op::sum, z, true);
  f.accumulate(Op::max, x, false);
  f.store_row(f.reduce(Op::min, y));
  return f.fused;
}

constexpr Fused narrow_integers() {
  Builder f;
  const int a = f.load(DType::i8), b = f.load(DType::u8), c = f.load(DType::i16);
  f.store(f.op(Op::mul, a, a));
  f.store(f.op(Op::sub, b, f.cast(DType::u8, a)));
  f.store(f.op(Op::add, c, f.cast(DType::i16, f.op(Op::mul, b, b))));
  f.store(f.cast(DType::f32, b));
  f.store(f.cast(DType::i8, f.cast(DType::f32, c)));
  f.store(f.op(Op::less, f.cast(DType::i16, b), c));
  f.accumulate(Op::max, b, false);
  return f.fused;
}

constexpr Fused masks() {
  Builder f;
  const int p = f.load(DType::bool_), q = f.load(DType::bool_, false), x = f.load(DType::f32);
  const int r = f.op(Op::logical_and, p, f.op(Op::logical_not, q));
  const int s = f.op(Op::logical_or, r, f.op(Op::equal, x, f.number()));
  f.store(s);
  f.store(f.op(Op::select, s, f.op(Op::not_equal, p, q), q));
  f.store(f.op(Op::select, p, x, f.op(Op::neg, x)));
  f.store(f.cast(DType::f64, s));
  f.store(f.cast(DType::bool_, x));
  f.store_row(f.reduce(Op::sum, f.cast(DType::i32, s)));
  f.accumulate(Op::max, s, true);
  f.accumulate(Op::min, p, false);
  return f.fused;
}

/// Cross entropy: the loss of each row, and of all.
constexpr Fused cross_entropy() {
  Builder f;
  const int x = f.load(DType::f32), label = f.load(DType::i64, false), zero = f.number(), scale = f.number();
  const int column = f.index(DType::i64, 2, true);
  const int shifted = f.op(Op::sub, x, f.reduce(Op::max, x));
  const int norm = f.op(Op::log, f.reduce(Op::sum, f.op(Op::exp, shifted)));
  const int picked = f.reduce(Op::sum, f.op(Op::select, f.op(Op::equal, column, label), shifted, zero));
  const int loss = f.op(Op::mul, f.op(Op::sub, norm, picked), scale);
  f.store_row(loss);
  f.accumulate(Op::sum, loss, false);
  return f.fused;
}

constexpr Fused floats() {
  Builder f;
  const int x = f.load(DType::f32), y = f.load(DType::f32), third = f.number(), row = f.load(DType::f32, false);
  const int size = f.op(Op::add, f.op(Op::abs, x), third);
  int sum = f.op(Op::add, f.op(Op::sigmoid, x), f.op(Op::silu, y));
  sum = f.op(Op::add, sum, f.op(Op::relu, f.op(Op::sub, x, row)));
  sum = f.op(Op::sub, sum, f.op(Op::log, size));
  sum = f.op(Op::add, sum, f.op(Op::rsqrt, size));
  sum = f.op(Op::add, sum, f.op(Op::sqrt, size));
  sum = f.op(Op::mul, sum, f.op(Op::tanh, y));
  sum = f.op(Op::add, sum, f.op(Op::pow, size, f.op(Op::mul, y, third)));
  sum = f.op(Op::add, sum, f.op(Op::sign, x));
  sum = f.op(Op::div, sum, size);
  sum = f.op(Op::div, sum, f.op(Op::add, f.op(Op::mul, row, row), third));
  sum = f.op(Op::maximum, f.op(Op::minimum, sum, row), y);
  f.store(sum);
  f.store(f.op(Op::broadcast, row, x));
  f.store(f.cast(DType::f64, f.op(Op::exp, y)));
  f.store(f.cast(DType::i64, x));
  return f.fused;
}

/// A row-level value spread over its row, and summed over it.
constexpr Fused spread() {
  Builder f;
  const int x = f.load(DType::f32), y = f.load(DType::f32, false);
  const int mean = f.reduce(Op::sum, f.op(Op::mul, x, y));
  f.store(mean);
  f.store(y);
  f.accumulate(Op::sum, mean, true);
  f.accumulate(Op::sum, y, false);
  return f.fused;
}

constexpr std::array<Fused, 12> table{
    programs::chain(), programs::softmax(), programs::layer_norm(), bias_gradient(), causal_mask(),   totals(),
    doubles(),         integers(),          narrow_integers(),      masks(),         cross_entropy(), floats()};
constexpr std::array<Fused, 1> more{spread()};

constexpr double infinity = std::numeric_limits<double>::infinity();

// ---- the oracle: one element at a time, in double

double wrapped(DType type, double value) {
  const auto whole = [&] {
    return value >= 0x1p63 ? std::numeric_limits<std::int64_t>::max() : static_cast<std::int64_t>(value);
  };
  switch (type) {
    case DType::i8:
      return static_cast<std::int8_t>(whole());
    case DType::u8:
      return static_cast<std::uint8_t>(whole());
    case DType::i16:
      return static_cast<std::int16_t>(whole());
    case DType::i32:
      return static_cast<std::int32_t>(whole());
    case DType::i64:
      return static_cast<double>(whole());
    case DType::bool_:
      return value != 0;
    default:
      return value;
  }
}

double get(DType type, const void* data, std::int64_t i) {
  return dispatch(
      type, [&]<class T>() { return static_cast<double>(static_cast<const T*>(data)[i]); }, [] { return 0.0; });
}
void put(DType type, void* data, std::int64_t i, double value) {
  dispatch(
      type, [&]<class T>() { static_cast<T*>(data)[i] = static_cast<T>(value); }, [] {});
}
/// Memory that begins at a multiple of what a kernel computes at once.
template <class T> struct Aligned {
  using value_type = T;
  Aligned() = default;
  template <class U> Aligned(const Aligned<U>&) {}
  T* allocate(std::size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t{128})); }
  void deallocate(T* data, std::size_t) { ::operator delete(data, std::align_val_t{128}); }
  friend bool operator==(const Aligned&, const Aligned&) { return true; }
};
using Bytes = std::vector<std::byte, Aligned<std::byte>>;

std::vector<double> all_of(DType type, const Bytes& data) {
  std::vector<double> values(data.size() / size_of(type));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = get(type, data.data(), static_cast<std::int64_t>(i));
  return values;
}

double apply(Op op, bool whole, double a, double b, double c) {
  switch (op) {
    case Op::neg:
      return -a;
    case Op::abs:
      return std::fabs(a);
    case Op::exp:
      return std::exp(a);
    case Op::log:
      return std::log(a);
    case Op::sqrt:
      return std::sqrt(a);
    case Op::rsqrt:
      return 1 / std::sqrt(a);
    case Op::tanh:
      return std::tanh(a);
    case Op::sigmoid:
      return 1 / (1 + std::exp(-a));
    case Op::relu:
      return a > 0 ? a : 0;
    case Op::gelu:
      return 0.5 * a * (1 + std::tanh(std::sqrt(2 / M_PI) * (a + 0.044715 * a * a * a)));
    case Op::silu:
      return a / (1 + std::exp(-a));
    case Op::sign:
      return a > 0 ? 1 : a < 0 ? -1 : 0;
    case Op::logical_not:
      return a == 0;
    case Op::cast:
    case Op::broadcast:
      return a;
    case Op::add:
      return a + b;
    case Op::sub:
      return a - b;
    case Op::mul:
      return a * b;
    case Op::div:
      return whole ? (b == 0 ? 0 : std::trunc(a / b)) : a / b;
    case Op::pow:
      return std::pow(a, b);
    case Op::minimum:
      return a < b ? a : b;
    case Op::maximum:
      return a > b ? a : b;
    case Op::equal:
      return a == b;
    case Op::not_equal:
      return a != b;
    case Op::less:
      return a < b;
    case Op::less_equal:
      return a <= b;
    case Op::greater:
      return a > b;
    case Op::greater_equal:
      return a >= b;
    case Op::logical_and:
      return a != 0 && b != 0;
    case Op::logical_or:
      return a != 0 || b != 0;
    case Op::select:
      return a != 0 ? b : c;
    default:
      ADD_FAILURE() << "operation without an oracle";
      return 0;
  }
}

double reduced(Op op, double a, double b) {
  return op == Op::sum ? a + b : op == Op::max ? std::max(a, b) : std::min(a, b);
}

double identity(Op op, DType type) {
  if (op == Op::sum) return 0;
  if (is_floating(type)) return op == Op::max ? -infinity : infinity;
  double result = 0;
  dispatch(
      type,
      [&]<class T>() {
        using Limits = std::numeric_limits<T>;
        result = static_cast<double>(op == Op::max ? Limits::lowest() : Limits::max());
      },
      [] {});
  return result;
}

struct Case {
  const Fused& fused;
  std::vector<std::int64_t> outer;
  std::int64_t inner = 0;
  std::vector<Bytes> input_data, output_data;
  std::vector<std::vector<double>> want;
  std::vector<FusedView> inputs, outputs;
  std::vector<double> uniforms;
  std::int64_t offset[8]{};

  std::int64_t rows() const {
    std::int64_t n = 1;
    for (const auto extent : outer) n *= extent;
    return n;
  }
  std::vector<std::int64_t> indices(std::int64_t row) const {
    std::vector<std::int64_t> index(outer.size());
    for (std::size_t d = outer.size(); d-- > 0; row /= outer[d]) index[d] = row % outer[d];
    return index;
  }
  std::int64_t place(const FusedView& view, std::int64_t row, std::int64_t column) const {
    std::int64_t at = column * view.row_stride;
    const auto index = indices(row);
    for (std::size_t d = 0; d < outer.size(); ++d) at += index[d] * view.outer_stride[d];
    return at;
  }

  /// Value of an instruction at an element; results of reductions come from `reductions`.
  double value(int i, std::int64_t row, std::int64_t column, const std::vector<double>& reductions) const {
    const Instr& instr = fused.instrs[i];
    const auto operand = [&](int k) { return value(k, row, column, reductions); };
    switch (instr.kind) {
      case InstrKind::load: {
        const FusedView& view = inputs[instr.a];
        return get(instr.dtype, view.data, place(view, row, fused.input_in_row[instr.a] ? column : 0));
      }
      case InstrKind::uniform:
        return uniforms[instr.a];
      case InstrKind::index:
        return static_cast<double>(offset[instr.a] + (instr.level == Level::row ? indices(row)[instr.a] : column));
      case InstrKind::reduce:
        return reductions[static_cast<std::size_t>(i)];
      case InstrKind::compute:
        break;
    }
    const bool three = instr.op == Op::select, two = three || (instr.op >= Op::add && instr.op < Op::select);
    const double result = ::apply(instr.op, !is_floating(instr.dtype), operand(instr.a), two ? operand(instr.b) : 0,
                                  three ? operand(instr.c) : 0);
    return wrapped(instr.dtype, result);
  }

  void compute_expected() {
    for (std::size_t i = 0; i < output_data.size(); ++i) want.push_back(all_of(fused.stores[i].dtype, output_data[i]));
    for (std::int64_t row = 0; row < rows(); ++row) {
      std::vector<double> reductions(fused.instr_count);
      for (int i = 0; i < fused.instr_count; ++i) {
        const Instr& instr = fused.instrs[i];
        if (instr.kind != InstrKind::reduce) continue;
        double total = ::identity(instr.op, instr.dtype);
        for (std::int64_t column = 0; column < inner; ++column)
          total = reduced(instr.op, total, value(instr.a, row, column, reductions));
        reductions[static_cast<std::size_t>(i)] = wrapped(instr.dtype, total);
      }
      for (int i = 0; i < fused.store_count; ++i) {
        const Store& store = fused.stores[i];
        const FusedView& view = outputs[static_cast<std::size_t>(i)];
        const bool once = store.kind == StoreKind::row || (store.kind == StoreKind::accumulate && !store.along_row &&
                                                           fused.instrs[store.instr].level != Level::element);
        for (std::int64_t column = 0; column < (once ? 1 : inner); ++column) {
          double& target = want[static_cast<std::size_t>(i)][static_cast<std::size_t>(place(view, row, column))];
          const double x = value(store.instr, row, column, reductions);
          target = wrapped(store.dtype, store.kind == StoreKind::accumulate ? reduced(store.op, target, x) : x);
        }
      }
    }
  }
};

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  std::int64_t below(std::int64_t n) { return std::uniform_int_distribution<std::int64_t>(0, n - 1)(engine_); }
  bool one_in(int n) { return below(n) == 0; }
  template <class T> T pick(std::initializer_list<T> choices) {
    return choices.begin()[below(static_cast<std::int64_t>(choices.size()))];
  }

 private:
  std::mt19937 engine_;
};

/// Lays a tensor out over the iteration space. `repeat[d]` (the row dim last) makes the stride of a dim zero.
FusedView lay_out(Random& random, const Case& c, const std::vector<bool>& repeat, std::int64_t& elements) {
  const std::size_t rank = c.outer.size();
  std::vector<std::size_t> order(rank + 1);
  for (std::size_t d = 0; d <= rank; ++d) order[d] = d;
  if (random.one_in(4))
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(random.below(999))));
  std::int64_t stride = random.one_in(6) ? 3 : 1;
  FusedView view;
  elements = 1;
  for (std::size_t k = rank + 1; k-- > 0;) {
    const std::size_t d = order[k];
    const std::int64_t extent = d == rank ? c.inner : c.outer[d];
    (d == rank ? view.row_stride : view.outer_stride[d]) = repeat[d] ? 0 : stride;
    if (repeat[d]) continue;
    elements += std::max<std::int64_t>(extent - 1, 0) * stride;
    stride *= std::max<std::int64_t>(extent, 1);
  }
  return view;
}

double random_value(Random& random, DType type) {
  switch (type) {
    case DType::bool_:
      return static_cast<double>(random.below(2));
    case DType::u8:
      return static_cast<double>(random.below(256));
    case DType::i8:
      return static_cast<double>(random.below(256) - 128);
    case DType::i16:
      return static_cast<double>(random.below(65536) - 32768);
    case DType::i32:
    case DType::i64:
      return static_cast<double>(random.below(41) - 20);
    // Eighths: sums and products of a few are exact in float.
    default:
      return static_cast<double>(random.below(65) - 32) / 8;
  }
}

Case make_case(const Fused& fused, Random& random, int min_outer) {
  Case c{fused, {}, 0, {}, {}, {}, {}, {}, {}, {}};
  const auto rank = min_outer + random.below(min_outer == 0 ? 3 : 1);
  for (std::int64_t d = 0; d < rank; ++d) c.outer.push_back(random.pick<std::int64_t>({1, 2, 3, 5, 7}));
  if (rank > 0 && random.one_in(12)) c.outer[0] = 0;
  const std::int64_t w = width;
  c.inner = random.pick<std::int64_t>({0, 1, w - 1, w, w + 1, 2 * w + 3, 4 * w, 4 * w + 1, 100, 300});
  if (random.one_in(10)) c.outer.assign(c.outer.size(), 1), c.inner = 9000 + random.below(100);
  for (int d = 0; d <= rank; ++d) c.offset[d] = random.below(3);
  for (int i = 0; i < fused.uniform_count; ++i) c.uniforms.push_back(static_cast<double>(random.below(3) + 1) / 4);
  for (int i = 0; i < fused.instr_count; ++i)
    if (fused.instrs[i].kind == InstrKind::uniform && fused.instrs[i].dtype == DType::i32)
      c.uniforms[fused.instrs[i].a] = static_cast<double>(random.below(4));
  const auto fill = [&](DType type, Bytes& data, std::int64_t elements) {
    data.resize(static_cast<std::size_t>(elements) * size_of(type));
    for (std::int64_t i = 0; i < elements; ++i) put(type, data.data(), i, random_value(random, type));
  };
  for (int i = 0; i < fused.input_count; ++i) {
    std::vector<bool> repeat;
    for (std::int64_t d = 0; d < rank; ++d) repeat.push_back(random.one_in(4));
    repeat.push_back(!fused.input_in_row[i] || random.one_in(5));
    std::int64_t elements = 0;
    c.inputs.push_back(lay_out(random, c, repeat, elements));
    fill(fused.inputs[i], c.input_data.emplace_back(), elements);
    c.inputs.back().data = c.input_data.back().data();
  }
  for (int i = 0; i < fused.store_count; ++i) {
    const Store& store = fused.stores[i];
    std::vector<bool> repeat;
    const bool adds = store.kind == StoreKind::accumulate;
    for (std::int64_t d = 0; d < rank; ++d) repeat.push_back(adds && random.one_in(2));
    repeat.push_back(store.kind == StoreKind::row || store.along_row ||
                     (adds && fused.instrs[store.instr].level != Level::element));
    std::int64_t elements = 0;
    c.outputs.push_back(lay_out(random, c, repeat, elements));
    fill(store.dtype, c.output_data.emplace_back(), elements);
  }
  for (int i = 0; i < fused.store_count; ++i)
    c.outputs[static_cast<std::size_t>(i)].data = c.output_data[static_cast<std::size_t>(i)].data();
  return c;
}

/// Runs a case whole, or cut by rows, by elements of a row, or by passes.
void run(Case& c, FusedKernel kernel, Random& random) {
  FusedCall call;
  call.outer_rank = static_cast<int>(c.outer.size());
  for (std::size_t d = 0; d < c.outer.size(); ++d) call.outer_extent[d] = c.outer[d];
  std::copy(std::begin(c.offset), std::end(c.offset), call.global_offset);
  call.inputs = c.inputs.data();
  call.outputs = c.outputs.data();
  call.uniforms = c.uniforms.data();
  const Fused& fused = c.fused;
  bool whole_rows = fused.phases > 1;
  int reduces = 0;
  for (int i = 0; i < fused.instr_count; ++i) reduces += fused.instrs[i].kind == InstrKind::reduce;
  for (int i = 0; i < fused.store_count; ++i) whole_rows |= fused.instrs[fused.stores[i].instr].level != Level::element;
  const std::int64_t rows = c.rows();
  const std::int64_t row_cut = random.one_in(2) ? random.below(rows + 1) : 0;
  const std::int64_t cut = whole_rows || random.one_in(2) ? 0 : random.below(c.inner + 1);
  std::vector<double> values(static_cast<std::size_t>(reduces * rows), -1e300);
  const bool by_pass = random.one_in(2);
  call.past_caches = random.one_in(2);
  if (by_pass) call.row_values = values.data(), call.row_values_stride = rows;
  const int steps = by_pass ? fused.phases : 1;
  for (int pass = 0; pass < steps; ++pass) {
    call.phase_begin = by_pass ? pass : 0;
    call.phase_end = by_pass ? pass + 1 : fused.phases;
    for (const auto& [row_begin, row_end] : {std::pair(std::int64_t{0}, row_cut), std::pair(row_cut, rows)}) {
      call.row_begin = row_begin;
      call.row_end = row_end;
      for (const auto& [begin, end] : {std::pair(std::int64_t{0}, cut), std::pair(cut, c.inner)}) {
        if (begin == end && end != c.inner) continue;
        call.inner_begin = begin;
        call.inner_end = end;
        kernel(call);
        if (whole_rows) break;
      }
    }
  }
}

void expect_close(const Case& c, const std::string& name) {
  for (int i = 0; i < c.fused.store_count; ++i) {
    const auto k = static_cast<std::size_t>(i);
    const DType type = c.fused.stores[i].dtype;
    const double tolerance = type == DType::f64 ? 1e-6 : type == DType::f32 ? 2e-5 : 0;
    const std::vector<double> all = all_of(type, c.output_data[k]);
    for (std::size_t e = 0; e < all.size(); ++e) {
      const double got = all[e], want = c.want[k][e];
      if (got == want || (std::isnan(got) && std::isnan(want))) continue;
      ASSERT_LE(std::fabs(got - want), tolerance * (1 + std::fabs(want)))
          << name << " output " << i << " element " << e << " got " << got << " want " << want << " inner " << c.inner
          << " rows " << c.rows();
    }
  }
}

template <const auto& Table, int I> void check(const std::string& name, int min_outer = 0) {
  Random random(17 + I);
  for (int round = 0; round < 150; ++round) {
    Case c = make_case(Table[I], random, min_outer);
    c.compute_expected();
    run(c, kernels::fused_kernel<Table, I>, random);
    expect_close(c, name);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(FusedKernel, Chain) { check<table, 0>("chain"); }
TEST(FusedKernel, Softmax) { check<table, 1>("softmax"); }
TEST(FusedKernel, LayerNorm) { check<table, 2>("layer norm"); }
TEST(FusedKernel, BiasGradient) { check<table, 3>("bias gradient"); }
TEST(FusedKernel, CausalMask) { check<table, 4>("causal mask", 1); }
TEST(FusedKernel, Totals) { check<table, 5>("totals"); }
TEST(FusedKernel, Doubles) { check<table, 6>("doubles"); }
TEST(FusedKernel, Integers) { check<table, 7>("integers", 1); }
TEST(FusedKernel, NarrowIntegers) { check<table, 8>("narrow integers"); }
TEST(FusedKernel, Masks) { check<table, 9>("masks"); }
TEST(FusedKernel, CrossEntropy) { check<table, 10>("cross entropy", 2); }
TEST(FusedKernel, Floats) { check<table, 11>("floats"); }
TEST(FusedKernel, RowValuesSpreadOverTheRow) { check<more, 0>("spread"); }

}  // namespace
