#ifndef TESSERA_TESTS_UNIT_KERNELS_FUSED_PROGRAMS_HPP
#define TESSERA_TESTS_UNIT_KERNELS_FUSED_PROGRAMS_HPP

#include <array>
#include <cstdint>

#include <tessera/graph/fuse/fused.hpp>
#include <tessera/ops/rows.hpp>

// Fused programs written by hand, for tests and benchmarks.
namespace programs {

using namespace tessera;

/// Appends instructions; levels and phases follow from the operands.
struct Builder {
  Fused fused;

  constexpr int load(DType dtype, bool in_row = true) {
    fused.inputs[fused.input_count] = dtype;
    fused.input_in_row[fused.input_count] = in_row;
    return add({InstrKind::load, Op::constant, dtype, in_row ? Level::element : Level::row, 0, fused.input_count++});
  }
  constexpr int number(DType dtype = DType::f32) {
    return add({InstrKind::uniform, Op::constant, dtype, Level::uniform, 0, fused.uniform_count++});
  }
  /// The index along an outer dim, or along the row when `dim` is the number of outer dims.
  constexpr int index(DType dtype, int dim, bool along_row) {
    return add({InstrKind::index, Op::iota, dtype, along_row ? Level::element : Level::row, 0, narrow(dim)});
  }
  constexpr int op(Op op, int a, int b = 0, int c = 0) {
    const bool compares = row_of(op).predicate;
    return compute(op, compares ? DType::bool_ : fused.instrs[op == Op::select ? b : a].dtype, a, b, c);
  }
  constexpr int cast(DType dtype, int a) { return compute(Op::cast, dtype, a, 0, 0); }
  constexpr int reduce(Reduction reduction, int a) {
    const int phase = fused.instrs[a].phase + 1;
    if (phase > fused.phases) fused.phases = narrow(phase);
    return add({InstrKind::reduce, Op::constant, fused.instrs[a].dtype, Level::row, narrow(phase), narrow(a), 0, 0,
                reduction});
  }
  constexpr void store(int value) {
    leave({StoreKind::element, Reduction::sum, false, narrow(value), dtype_of(value)});
  }
  constexpr void store_row(int value) {
    leave({StoreKind::row, Reduction::sum, false, narrow(value), dtype_of(value)});
  }
  constexpr void accumulate(Reduction reduction, int value, bool along_row) {
    leave({StoreKind::accumulate, reduction, along_row, narrow(value), dtype_of(value)});
  }

 private:
  static constexpr std::uint8_t narrow(int i) { return static_cast<std::uint8_t>(i); }
  constexpr DType dtype_of(int value) const { return fused.instrs[value].dtype; }
  constexpr int add(const Instr& instr) {
    fused.instrs[fused.instr_count] = instr;
    return fused.instr_count++;
  }
  constexpr int compute(Op op, DType dtype, int a, int b, int c) {
    Instr instr{InstrKind::compute, op, dtype, Level::uniform, 0, narrow(a), narrow(b), narrow(c)};
    const int operands[] = {a, b, c};
    const int count = op == Op::broadcast ? 1 : row_of(op).arity;
    for (int i = 0; i < count; ++i) {
      const Instr& operand = fused.instrs[operands[i]];
      if (operand.level > instr.level) instr.level = operand.level;
      if (operand.phase > instr.phase) instr.phase = operand.phase;
    }
    return add(instr);
  }
  constexpr void leave(const Store& store) {
    fused.stores[fused.store_count++] = store;
    const Instr& value = fused.instrs[store.instr];
    const bool every_element = store.kind == StoreKind::element || store.along_row || value.level == Level::element;
    if (every_element && value.phase + 1 > fused.phases) fused.phases = narrow(value.phase + 1);
  }
};

/// gelu(a x + b) m + x, with uniforms a and b.
constexpr Fused chain() {
  Builder f;
  const int a = f.number(), b = f.number(), x = f.load(DType::f32), m = f.load(DType::f32);
  const int t = f.op(Op::add, f.op(Op::mul, a, x), b);
  f.store(f.op(Op::add, f.op(Op::mul, f.op(Op::gelu, t), m), x));
  return f.fused;
}

constexpr Fused softmax() {
  Builder f;
  const int x = f.load(DType::f32);
  const int e = f.op(Op::exp, f.op(Op::sub, x, f.reduce(Reduction::max, x)));
  f.store(f.op(Op::div, e, f.reduce(Reduction::sum, e)));
  return f.fused;
}

/// Layer norm with uniforms 1 / width and epsilon; mean and 1 / deviation are row outputs.
constexpr Fused layer_norm() {
  Builder f;
  const int scale = f.number(), epsilon = f.number();
  const int x = f.load(DType::f32), gamma = f.load(DType::f32), beta = f.load(DType::f32);
  const int mean = f.op(Op::mul, f.reduce(Reduction::sum, x), scale);
  const int d = f.op(Op::sub, x, mean);
  const int variance = f.op(Op::mul, f.reduce(Reduction::sum, f.op(Op::mul, d, d)), scale);
  const int inverse = f.op(Op::rsqrt, f.op(Op::add, variance, epsilon));
  f.store(f.op(Op::add, f.op(Op::mul, f.op(Op::mul, d, inverse), gamma), beta));
  f.store_row(mean);
  f.store_row(inverse);
  return f.fused;
}

}  // namespace programs

#endif
