#ifndef TESSERA_RUNTIME_ORACLE_ORACLE_FUSED_HPP
#define TESSERA_RUNTIME_ORACLE_ORACLE_FUSED_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/fuse/fused.hpp>
#include <tessera/graph/fuse/units.hpp>
#include <tessera/runtime/oracle/oracle_value.hpp>

namespace tessera::runtime {

/// The result of an elementwise operation on scalars, in double.
inline double apply_number(Op op, DType to, DType from, double a, double b, double c) {
  const OpRow& row = row_of(op);
  if (row.converts) {
    if (to == DType::bool_) return a != 0;
    return is_floating(from) && !is_floating(to) ? std::trunc(a) : a;
  }
  if (row.divides && !is_floating(to)) return b == 0 ? 0 : std::trunc(a / b);
  return row.number(a, b, c);
}

/// Rounding error analysis of one fused unit: evaluates it in double on global tensors and propagates, with each value,
/// a bound of the difference that another order of reductions can cause. A value that depends on no reduction has bound
/// 0.
class OracleFused {
 public:
  struct Operand {
    const WholeValue* value = nullptr;
    double slack = 0;                           ///< bound of the error that every element has already
    kernels::Strides strides;                   ///< by dim of the iteration space
    const Growable<double>* allowed = nullptr;  ///< additional error bound by element; null: 0
  };

  OracleFused(const Fused& fused, const Shape& space, Growable<Operand> inputs, Growable<double> uniforms)
      : fused_(fused), space_(space), inputs_(std::move(inputs)), uniforms_(std::move(uniforms)) {
    if (space_.empty()) space_.push_back(1);
    for (Operand& input : inputs_)
      if (input.strides.empty()) input.strides.push_back(0);
  }

  /// By output: the error bound of each element.
  Growable<Growable<double>> run(Growable<Operand> outputs) {
    for (Operand& output : outputs)
      if (output.strides.empty()) output.strides.push_back(0);
    outputs_ = std::move(outputs);
    for (std::size_t o = 0; o < outputs_.size(); ++o) {
      const auto n = static_cast<std::size_t>(outputs_[o].value->size());
      allowed_.push_back(Growable<double>(n, 0.0));
      terms_.push_back(Growable<double>(n, facts_of(fused_.stores[o].reduction).identity));
    }
    const std::size_t row_dim = space_.size() - 1;
    Shape outer = space_;
    outer[row_dim] = 1;
    index_ = Shape(space_.size(), 0);
    for (std::int64_t row = volume(outer); row > 0 && space_[row_dim] > 0; --row) {
      run_row(space_[row_dim]);
      for (std::size_t d = row_dim; d-- > 0;) {
        if (++index_[d] < space_[d]) break;
        index_[d] = 0;
      }
    }
    for (std::size_t o = 0; o < outputs_.size(); ++o) {
      const Store& store = fused_.stores[o];
      if (store.kind != StoreKind::accumulate || !facts_of(store.reduction).rounds || !is_floating(store.dtype))
        continue;
      const double n = static_cast<double>(volume(space_)) / std::max<double>(1, static_cast<double>(terms_[o].size()));
      const double eps = rounding_of(computed_as(store.dtype));
      for (std::size_t i = 0; i < terms_[o].size(); ++i)
        allowed_[o][i] += order_factor(n) * eps * terms_[o][i] +
                          rounding_of(store.dtype) * std::fabs((*outputs_[o].value)[static_cast<std::int64_t>(i)]);
    }
    return std::move(allowed_);
  }

 private:
  struct Number {
    double value = 0, off = 0;
  };
  const Fused& fused_;
  Shape space_;
  Growable<Operand> inputs_, outputs_;
  Growable<double> uniforms_;
  Shape index_;
  Growable<Growable<double>> allowed_, terms_;
  Number values_[Fused::max_instrs];

  std::int64_t place(const Operand& operand) const {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < space_.size(); ++d) at += index_[d] * operand.strides[d];
    return at;
  }

  void run_row(std::int64_t extent) {
    const std::size_t row_dim = space_.size() - 1;
    index_[row_dim] = 0;
    at_level(0, 0, false);
    double sizes[Fused::max_instrs], off[Fused::max_instrs], sums[Fused::max_instrs];
    for (int pass = 0; pass < fused_.phases; ++pass) {
      const auto reduced_here = [&](const Instr& i) { return i.kind == InstrKind::reduce && i.phase == pass + 1; };
      for (int i = 0; i < fused_.instr_count; ++i) {
        off[i] = 0;
        sums[i] = sizes[i] = facts_of(fused_.instrs[i].reduction).identity;
      }
      for (index_[row_dim] = 0; index_[row_dim] < extent; ++index_[row_dim]) {
        at_level(0, pass, true);
        for (int i = 0; i < fused_.instr_count; ++i) {
          const Instr& instr = fused_.instrs[i];
          if (!reduced_here(instr)) continue;
          const Number& term = values_[instr.a];
          const ReductionFacts& monoid = facts_of(instr.reduction);
          off[i] = monoid.moved(sizes[i], off[i], term.value, term.off);
          sums[i] = monoid.combined(sums[i], term.value);
          sizes[i] = monoid.combined(sizes[i], std::fabs(term.value));
        }
        if (pass + 1 == fused_.phases) store_elements();
      }
      index_[row_dim] = 0;
      for (int i = 0; i < fused_.instr_count; ++i) {
        const Instr& instr = fused_.instrs[i];
        if (!reduced_here(instr)) continue;
        values_[i] = {sums[i], off[i]};
        if (facts_of(instr.reduction).rounds && is_floating(instr.dtype))
          values_[i].off +=
              order_factor(static_cast<double>(extent)) * rounding_of(computed_as(instr.dtype)) * sizes[i];
      }
      at_level(pass + 1, pass + 1, false);
    }
    store_rows(extent);
  }

  /// Evaluates the instructions of passes `first` to `last`: those per element, or those per row.
  void at_level(int first, int last, bool element) {
    for (int i = 0; i < fused_.instr_count; ++i) {
      const Instr& instr = fused_.instrs[i];
      if ((instr.level == Level::element) != element || instr.phase < first || instr.phase > last) continue;
      if (instr.kind == InstrKind::reduce) continue;
      values_[i] = evaluate(instr);
    }
  }
  Number evaluate(const Instr& instr) const {
    if (instr.kind == InstrKind::load) {
      const Operand& from = inputs_[instr.a];
      const std::int64_t at = place(from);
      return {(*from.value)[at],
              from.slack + (from.allowed == nullptr ? 0 : (*from.allowed)[static_cast<std::size_t>(at)])};
    }
    if (instr.kind == InstrKind::uniform) return {uniforms_[instr.a], 0};
    if (instr.kind == InstrKind::index)
      return {static_cast<double>(index_[std::min<std::size_t>(instr.a, index_.size() - 1)]), 0};
    const std::uint8_t from[] = {instr.a, instr.b, instr.c};
    const int arity = row_of(instr.op).arity == any_arity ? 3 : std::min<int>(row_of(instr.op).arity, 3);
    double x[3]{};
    double off = 0;
    for (int k = 0; k < arity; ++k) x[k] = values_[from[k]].value;
    const DType type = fused_.instrs[instr.a].dtype;
    Number made{apply_number(instr.op, instr.dtype, type, x[0], x[1], x[2]), 0};
    bool moved = false;
    for (int k = 0; k < arity; ++k) {
      off = values_[from[k]].off;
      if (off == 0) continue;
      moved = true;
      double most = 0;
      for (const double shifted : {x[k] + off, x[k] - off}) {
        double y[] = {x[0], x[1], x[2]};
        y[k] = shifted;
        const double other = apply_number(instr.op, instr.dtype, type, y[0], y[1], y[2]);
        if (other == made.value || (std::isnan(other) && std::isnan(made.value))) continue;
        const double distance = std::fabs(other - made.value);
        most = std::isnan(distance) ? INFINITY : std::max(most, distance);
      }
      made.off += most;
    }
    if (moved) made.off += rounding_of(instr.dtype) * std::fabs(made.value);
    return made;
  }

  void store_elements() {
    for (std::size_t o = 0; o < outputs_.size(); ++o) {
      const Store& store = fused_.stores[o];
      if (store.kind == StoreKind::row) continue;
      const Instr& from = fused_.instrs[store.instr];
      if (store.kind == StoreKind::accumulate && from.level != Level::element && !store.along_row) continue;
      put(o, values_[store.instr]);
    }
  }
  void store_rows(std::int64_t) {
    for (std::size_t o = 0; o < outputs_.size(); ++o) {
      const Store& store = fused_.stores[o];
      const bool once =
          store.kind == StoreKind::row || (store.kind == StoreKind::accumulate &&
                                           fused_.instrs[store.instr].level != Level::element && !store.along_row);
      if (once) put(o, values_[store.instr]);
    }
  }
  void put(std::size_t o, const Number& number) {
    const Store& store = fused_.stores[o];
    const auto at = static_cast<std::size_t>(place(outputs_[o]));
    if (store.kind == StoreKind::accumulate) {
      const ReductionFacts& monoid = facts_of(store.reduction);
      allowed_[o][at] = monoid.moved(terms_[o][at], allowed_[o][at], number.value, number.off);
      terms_[o][at] = monoid.combined(terms_[o][at], std::fabs(number.value));
    } else {
      allowed_[o][at] = number.off > 0 ? number.off + rounding_of(store.dtype) * std::fabs(number.value) : 0;
    }
  }
};

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
