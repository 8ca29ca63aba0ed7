// Compiled once, with optimisation and without sanitizers, like oracle.cpp.
#include "interpreted_kernel.hpp"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "scalar_ops.hpp"

#include <tessera/ops/rows.hpp>

namespace oracle {
namespace {

using tessera::DType;
using tessera::Fused;
using tessera::FusedCall;
using tessera::FusedView;
using tessera::Instr;
using tessera::InstrKind;
using tessera::Level;
using tessera::Store;
using tessera::StoreKind;

template <class F> auto with_type(DType dtype, F&& f) {
  return tessera::dispatch(dtype, f, []() -> double { throw std::logic_error("interpreter: f16 has no arithmetic"); });
}
double read(DType dtype, const void* from) {
  return with_type(dtype, [&]<class T>() { return static_cast<double>(*static_cast<const T*>(from)); });
}
void write(DType dtype, void* to, double value) {
  with_type(dtype, [&]<class T>() {
    if constexpr (std::is_same_v<T, bool>)
      *static_cast<T*>(to) = value != 0;
    else
      *static_cast<T*>(to) = static_cast<T>(value);
    return 0.0;
  });
}
bool is_whole(DType dtype) { return !tessera::is_floating(dtype); }

double computed(const Instr& instr, DType from, double a, double b, double c) {
  const tessera::OpRow& row = tessera::row_of(instr.op);
  if (row.converts) {
    if (instr.dtype == DType::bool_) return a != 0;
    if (tessera::computed_as(instr.dtype) != instr.dtype) return tessera::rounded_to(instr.dtype, a);
    return tessera::is_floating(from) && is_whole(instr.dtype) ? to_integer(instr.dtype, a) : a;
  }
  if (row.divides && is_whole(instr.dtype)) return b == 0 ? 0 : std::trunc(a / b);
  const double made = row.number(a, b, c);
  return instr.dtype == DType::bool_ ? made != 0 : made;
}

class Call {
 public:
  Call(const Fused& fused, const FusedCall& call) : fused_(fused), call_(call) {}

  void run() {
    for (std::int64_t row = call_.row_begin; row < call_.row_end; ++row) {
      std::int64_t rest = row;
      for (int d = call_.outer_rank - 1; d >= 0; --d) {
        outer_[d] = rest % call_.outer_extent[d];
        rest /= call_.outer_extent[d];
      }
      run_row(row);
    }
  }

 private:
  const Fused& fused_;
  const FusedCall& call_;
  std::int64_t outer_[8]{};
  double values_[Fused::max_instrs]{}, reduced_[Fused::max_instrs]{};

  void run_row(std::int64_t row) {
    for (int stage = 0; stage <= fused_.phases && stage <= call_.phase_end; ++stage) {
      finish_reductions(row, stage);
      evaluate(false, stage, stage, 0);
      const bool runs = stage >= call_.phase_begin && (stage < call_.phase_end || stage == fused_.phases);
      if (!runs) continue;
      for (int o = 0; o < fused_.store_count; ++o)
        if (is_once_a_row(fused_.stores[o]) && phase_of(o) == stage) put(o, 0);
      if (stage < fused_.phases) pass_over(stage);
    }
  }
  void finish_reductions(std::int64_t row, int stage) {
    int slot = 0;
    for (int i = 0; i < fused_.instr_count; ++i) {
      const Instr& instr = fused_.instrs[i];
      if (instr.kind != InstrKind::reduce) continue;
      double* const shared =
          call_.row_values == nullptr ? nullptr : call_.row_values + slot * call_.row_values_stride + row;
      ++slot;
      if (instr.phase != stage) continue;
      if (stage <= call_.phase_begin) {
        values_[i] = is_whole(instr.dtype) ? static_cast<double>(std::bit_cast<std::int64_t>(*shared)) : *shared;
      } else {
        values_[i] = reduced_[i];
        if (shared != nullptr)
          *shared = is_whole(instr.dtype) ? std::bit_cast<double>(static_cast<std::int64_t>(reduced_[i])) : reduced_[i];
      }
    }
  }
  void pass_over(int pass) {
    for (int i = 0; i < fused_.instr_count; ++i)
      if (reduces_in(fused_.instrs[i], pass))
        reduced_[i] = identity(fused_.instrs[i].reduction, fused_.instrs[i].dtype);
    for (std::int64_t at = call_.inner_begin; at < call_.inner_end; ++at) {
      evaluate(true, 0, pass, at);
      for (int i = 0; i < fused_.instr_count; ++i)
        if (const Instr& instr = fused_.instrs[i]; reduces_in(instr, pass))
          reduced_[i] = tessera::facts_of(instr.reduction).combined(reduced_[i], values_[instr.a]);
      for (int o = 0; o < fused_.store_count; ++o)
        if (!is_once_a_row(fused_.stores[o]) && phase_of(o) == pass) put(o, at);
    }
  }
  static bool reduces_in(const Instr& instr, int pass) {
    return instr.kind == InstrKind::reduce && instr.phase == pass + 1;
  }
  /// The max of no integers is the least value of their type, the min the greatest.
  static double identity(tessera::Reduction reduction, DType dtype) {
    const double own = tessera::facts_of(reduction).identity;
    if (!is_whole(dtype) || !std::isinf(own)) return own;
    return with_type(dtype, [&]<class T>() {
      return static_cast<double>(own > 0 ? std::numeric_limits<T>::max() : std::numeric_limits<T>::lowest());
    });
  }

  int phase_of(int o) const { return fused_.instrs[fused_.stores[o].instr].phase; }
  bool is_once_a_row(const Store& store) const {
    return store.kind == StoreKind::row || (store.kind == StoreKind::accumulate && !store.along_row &&
                                            fused_.instrs[store.instr].level != Level::element);
  }

  /// Evaluates the instructions that differ by element (`element`), or those that are constant along a row.
  void evaluate(bool element, int first_phase, int last_phase, std::int64_t at) {
    for (int i = 0; i < fused_.instr_count; ++i) {
      const Instr& instr = fused_.instrs[i];
      if ((instr.level == Level::element) != element || instr.kind == InstrKind::reduce) continue;
      if (instr.phase >= first_phase && instr.phase <= last_phase) values_[i] = value_of(instr, at);
    }
  }
  double value_of(const Instr& instr, std::int64_t at) const {
    switch (instr.kind) {
      case InstrKind::load:
        return read(instr.dtype, place(call_.inputs[instr.a], instr.dtype, instr.level == Level::element ? at : 0));
      case InstrKind::uniform: {
        const double slot = call_.uniforms[instr.a];
        const double given = instr.dtype == DType::i64 ? static_cast<double>(std::bit_cast<std::int64_t>(slot)) : slot;
        return instr.dtype == DType::bool_ ? given != 0 : is_whole(instr.dtype) ? std::trunc(given) : given;
      }
      case InstrKind::index:
        return static_cast<double>(instr.level == Level::element ? call_.global_offset[call_.outer_rank] + at
                                                                 : call_.global_offset[instr.a] + outer_[instr.a]);
      default:
        return computed(instr, fused_.instrs[instr.a].dtype, values_[instr.a], values_[instr.b], values_[instr.c]);
    }
  }

  char* place(const FusedView& view, DType dtype, std::int64_t at) const {
    std::int64_t offset = at * view.row_stride;
    for (int d = 0; d < call_.outer_rank; ++d) offset += outer_[d] * view.outer_stride[d];
    return static_cast<char*>(view.data) + offset * static_cast<std::int64_t>(tessera::size_of(dtype));
  }
  void put(int o, std::int64_t at) const {
    const Store& store = fused_.stores[o];
    char* const to = place(call_.outputs[o], store.dtype, at);
    double value = values_[store.instr];
    if (store.kind == StoreKind::accumulate)
      value = tessera::facts_of(store.reduction).combined(read(store.dtype, to), value);
    write(store.dtype, to, value);
  }
};

}  // namespace

void interpret(const Fused& fused, const FusedCall& call) { Call(fused, call).run(); }

std::vector<tessera::FusedKernel> interpreted_kernels(const Fused* kernels, int count) {
  std::vector<tessera::FusedKernel> code;
  for (int k = 0; k < count; ++k)
    code.push_back({[](const FusedCall& call, const void* own) { interpret(*static_cast<const Fused*>(own), call); },
                    kernels + k});
  return code;
}

}  // namespace oracle
