// Random calls of fused kernels, and what they give by an oracle that computes one element at a time, in double.
#ifndef TESSERA_TESTS_UNIT_KERNELS_FUSED_CASE_HPP
#define TESSERA_TESTS_UNIT_KERNELS_FUSED_CASE_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "../../support/scalar_ops.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/fuse/fused.hpp>
#include <tessera/kernels/simd/simd.hpp>
#include <tessera/ops/rows.hpp>

namespace fused_case {

using namespace tessera;

inline constexpr int width = kernels::width;
inline constexpr double infinity = std::numeric_limits<double>::infinity();

inline double wrapped(DType type, double value) {
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

inline double get(DType type, const void* data, std::int64_t i) {
  return dispatch(
      type, [&]<class T>() { return static_cast<double>(static_cast<const T*>(data)[i]); }, [] { return 0.0; });
}
inline void put(DType type, void* data, std::int64_t i, double value) {
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

inline std::vector<double> all_of(DType type, const Bytes& data) {
  std::vector<double> values(data.size() / size_of(type));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = get(type, data.data(), static_cast<std::int64_t>(i));
  return values;
}

inline double reduced(Reduction op, double a, double b) {
  return op == Reduction::sum       ? a + b
         : op == Reduction::product ? a * b
         : op == Reduction::max     ? std::max(a, b)
                                    : std::min(a, b);
}

inline double identity(Reduction op, DType type) {
  if (op == Reduction::sum || op == Reduction::product) return op == Reduction::product;
  if (is_floating(type)) return op == Reduction::max ? -infinity : infinity;
  double result = 0;
  dispatch(
      type,
      [&]<class T>() {
        using Limits = std::numeric_limits<T>;
        result = static_cast<double>(op == Reduction::max ? Limits::lowest() : Limits::max());
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
    const int arity = row_of(instr.op).arity;
    const bool three = arity == 3, two = arity > 1 && instr.op != Op::broadcast;
    const DType from = fused.instrs[instr.a].dtype;
    const double result = oracle::apply(instr.op, instr.dtype, from, operand(instr.a), two ? operand(instr.b) : 0,
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
        double total = identity(instr.reduction, instr.dtype);
        for (std::int64_t column = 0; column < inner; ++column)
          total = reduced(instr.reduction, total, value(instr.a, row, column, reductions));
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
          target = wrapped(store.dtype, store.kind == StoreKind::accumulate ? reduced(store.reduction, target, x) : x);
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
inline FusedView lay_out(Random& random, const Case& c, const std::vector<bool>& repeat, std::int64_t& elements) {
  const std::size_t rank = c.outer.size();
  std::vector<std::size_t> order(rank + 1);
  for (std::size_t d = 0; d <= rank; ++d) order[d] = d;
  if (random.one_in(4))
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(random.below(999))));
  std::int64_t stride = random.one_in(6) ? 3 : 1;
  FusedView view{};
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

inline double random_value(Random& random, DType type) {
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

inline Case make_case(const Fused& fused, Random& random, int min_outer) {
  Case c{fused, {}, 0, {}, {}, {}, {}, {}, {}, {}};
  const auto rank = min_outer + random.below(min_outer == 0 ? 3 : 1);
  for (std::int64_t d = 0; d < rank; ++d) c.outer.push_back(random.pick<std::int64_t>({1, 2, 3, 5, 7}));
  if (rank > 0 && random.one_in(12)) c.outer[0] = 0;
  const std::int64_t w = width;
  c.inner = random.pick<std::int64_t>({0, 1, w - 1, w, w + 1, 2 * w, 2 * w + 3, 4 * w, 4 * w + 1, 100, 300});
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
inline void run(Case& c, FusedKernel kernel, Random& random) {
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

inline void expect_close(const Case& c, const std::string& name) {
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

}  // namespace fused_case

#endif
