#ifndef TESSERA_KERNELS_FUSED_MADE_KERNEL_HPP
#define TESSERA_KERNELS_FUSED_MADE_KERNEL_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/graph/fuse/fused.hpp>
#ifdef TESSERA_KERNEL_DEFINITIONS
#include <cstdint>
#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/monoid.hpp>
#include <tessera/kernels/fused/fused_program.hpp>
#include <tessera/kernels/fused/walked_kernel.hpp>
#include <tessera/ops/rows.hpp>
#endif

namespace tessera::kernels {
/// The walked kernel of a list of instructions that is known only when the program runs. Its lists are never freed.
/// Only tessera::compiled has it, with the code of all instructions for all types.
FusedKernel make_kernel(const Fused& fused);
}  // namespace tessera::kernels

#ifdef TESSERA_KERNEL_DEFINITIONS
TESSERA_KERNEL_CODE_BEGIN
namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

using ComputeCode = decltype(WalkedStep<RowCursor>::compute);
template <class Cursor> using ReadCode = decltype(WalkedStep<Cursor>::read);

/// Calls `f.template operator()<T>()` with the type of the lanes in which elements of `type` are computed.
template <class F> auto with_lanes(DType type, F f) {
  return dispatch(
      type, [&]<class T>() { return f.template operator()<lane_t<T>>(); },
      []() -> decltype(f.template operator()<float>()) { return {}; });
}

/// Integers that are computed as i32 and then wrapped.
inline constexpr DTypeSet narrow_dtypes =
    static_cast<DTypeSet>(set_of(DType::i8) | set_of(DType::i16) | set_of(DType::i32) | set_of(DType::u8));

/// Whether an operation has code for lanes of type T.
template <class Operation, class T> constexpr bool computes() {
  constexpr const OpRow& row = ops::row_v<Operation>;
  if constexpr (!std::is_floating_point_v<T>)  // kernels divide integers where an operation is composed of quotients
    return std::is_same_v<T, bool> ? !row.fractional && row.of_bools : !row.fractional || row.divides;
  else if constexpr (requires { Operation::of_floats; })
    return Operation::of_floats;
  else
    return true;
}

/// The code of an operation. All types of one lane type share it; results of narrow integers are wrapped.
template <class Operation> struct ComputeCodes {
  static constexpr Op op = ops::op_v<Operation>;
  static constexpr const OpRow& row = ops::row_v<Operation>;

  static ComputeCode find(DType to, DType from) {
    return with_lanes(from, [&]<class S>() -> ComputeCode {
      if constexpr (row.converts)
        return with_result<all_dtypes, S>(to);
      else if constexpr (!computes<Operation, S>())
        return nullptr;
      else if constexpr (row.predicate)
        return with_result<set_of(DType::bool_), S>(DType::bool_);
      else if constexpr (std::is_same_v<S, std::int32_t>)
        return with_result<narrow_dtypes, S>(to);
      else
        return with_result<set_of(dtype_v<S>), S>(dtype_v<S>);
    });
  }
  template <DTypeSet Results, class S> static ComputeCode with_result(DType to) {
    return dispatch<Results>(
        to, []<class T>() -> ComputeCode { return &compute<op, dtype_v<T>, dtype_v<S>, WalkedFile>; },
        []() -> ComputeCode { return nullptr; });
  }
};

template <class... Operation> constexpr auto compute_table(ops::OperationList<Operation...>) {
  ops::detail::OperationTable<ComputeCode (*)(DType to, DType from)> table;
  (table.add(ops::op_v<Operation>, &ComputeCodes<Operation>::find), ...);
  return table;
}
inline constexpr auto compute_codes = compute_table(ops::detail::InKernels{});

template <class Cursor> ReadCode<Cursor> read_code(InstrKind kind, DType type) {
  return dispatch(
      type,
      [&]<class T>() -> ReadCode<Cursor> {
        constexpr DType own = dtype_v<T>;
        if (kind == InstrKind::load) return &read<InstrKind::load, own, WalkedFile, Cursor>;
        if (kind == InstrKind::uniform) return &read<InstrKind::uniform, own, WalkedFile, Cursor>;
        if constexpr ((number_dtypes & set_of(own)) != 0) return &read<InstrKind::index, own, WalkedFile, Cursor>;
        return nullptr;
      },
      []() -> ReadCode<Cursor> { return nullptr; });
}

/// Values that passes keep are floating.
template <bool Saves> auto keep_code(DType type) {
  using Code = decltype(WalkedStep<ElementCursor>::save);
  return with_lanes(type, []<class T>() -> Code {
    if constexpr (!std::is_floating_point_v<T>)
      return nullptr;
    else if constexpr (Saves)
      return &save<dtype_v<T>, WalkedFile>;
    else
      return &restore<dtype_v<T>, WalkedFile>;
  });
}

template <class Cursor> WalkedStep<Cursor> made_step(const Step& step) {
  WalkedStep<Cursor> made;
  made.step = step;
  if constexpr (std::is_same_v<Cursor, ElementCursor>) {
    if (step.keep == Keep::restore) made.restore = keep_code<false>(step.dtype);
    if (step.keep == Keep::save) made.save = keep_code<true>(step.dtype);
  }
  if (step.keep == Keep::restore) return made;
  if (step.kind == InstrKind::compute)
    made.compute = compute_codes[step.op](step.dtype, step.source);
  else
    made.read = read_code<Cursor>(step.kind, step.dtype);
  if (made.compute == nullptr && made.read == nullptr)
    fail(errc::graph_invalid, "[fused] ", row_of(step.op).name, " of ", name_of(step.source), " to ",
         name_of(step.dtype), ": no kernel has this instruction");
  return made;
}

/// Calls `f.template operator()<R, Type>()` with a reduction and the element type of its results.
template <class F> auto with_reduction(Reduction reduction, DType type, F f) {
  using Made = decltype(f.template operator()<Reduction::sum, DType::f32>());
  return with_monoid(reduction, [&]<class M>() -> Made {
    return dispatch<all_partial_types[M::kind]>(
        type, [&]<class T>() -> Made { return f.template operator()<M::kind, dtype_v<T>>(); },
        []() -> Made { return {}; });
  });
}

inline WalkedExit made_exit(const Exit& exit) {
  WalkedExit made;
  made.exit = exit;
  using Code = decltype(made.leave);
  if (exit.kind == StoreKind::element && exit.sums == Sums::nothing) {
    made.leave = dispatch(
        exit.dtype,
        [&]<class T>() -> Code {
          return with_lanes(exit.source, []<class S>() -> Code {
            return &leave<StoreKind::element, Reduction::sum, false, dtype_v<T>, dtype_v<S>, WalkedFile>;
          });
        },
        []() -> Code { return nullptr; });
  } else {
    const bool same = with_lanes(exit.dtype, []<class T>() { return dtype_v<T>; }) ==
                      with_lanes(exit.source, []<class T>() { return dtype_v<T>; });
    if (same) {
      made.leave = with_reduction(exit.reduction, exit.dtype, [&]<Reduction R, DType To>() -> Code {
        if (exit.sums == Sums::nothing) return &leave<StoreKind::accumulate, R, false, To, To, WalkedFile>;
        return &leave<StoreKind::accumulate, R, true, To, To, WalkedFile>;
      });
      if (exit.sums != Sums::nothing)
        made.sum = with_reduction(exit.reduction, exit.dtype, []<Reduction R, DType To>() -> const WalkedAccumulation* {
          return &walked_accumulation<R, To>;
        });
    }
  }
  if (made.leave == nullptr)
    fail(errc::graph_invalid, "[fused] ", name_of(exit.reduction), " of ", name_of(exit.source), " to ",
         name_of(exit.dtype), ": no kernel has this result");
  return made;
}

inline WalkedRowExit made_row_exit(const Exit& exit) {
  WalkedRowExit made;
  made.exit = exit;
  using Code = decltype(made.leave);
  if (exit.kind == StoreKind::row)
    made.leave = dispatch(
        exit.dtype,
        [&]<class T>() -> Code {
          return with_lanes(exit.source, []<class S>() -> Code {
            return &leave_row<StoreKind::row, Reduction::sum, dtype_v<T>, dtype_v<S>, WalkedFile>;
          });
        },
        []() -> Code { return nullptr; });
  else
    made.leave = with_reduction(exit.reduction, exit.dtype, []<Reduction R, DType To>() -> Code {
      return &leave_row<StoreKind::accumulate, R, To, To, WalkedFile>;
    });
  if (made.leave == nullptr)
    fail(errc::graph_invalid, "[fused] ", name_of(exit.dtype), ": no kernel has this result of a row");
  return made;
}

}  // namespace detail

/// The lists of a walked kernel. Not to be copied: they point into the object.
class MadeKernel {
 public:
  explicit MadeKernel(const Fused& fused) : lists_{shape_, ranges_, nullptr, nullptr, nullptr, nullptr} {
    constexpr ScheduleSize largest{Fused::max_instrs, Fused::max_instrs, Fused::max_phases};
    const auto schedule = make_schedule<largest>(fused);
    shape_ = detail::make_shape(fused, schedule);
    ranges_ = detail::walked_ranges(
        schedule, fused.phases, [&](const Step& step) { rows_.push_back(detail::made_step<detail::RowCursor>(step)); },
        [&](const Step& step) { elements_.push_back(detail::made_step<detail::ElementCursor>(step)); },
        [&](const Exit& exit) { exits_.push_back(detail::made_exit(exit)); },
        [&](const Exit& exit) { row_exits_.push_back(detail::made_row_exit(exit)); });
    lists_.rows = rows_.data();
    lists_.elements = elements_.data();
    lists_.exits = exits_.data();
    lists_.row_exits = row_exits_.data();
    size_ = detail::file_size(fused.instr_count + fused.store_count);
  }
  MadeKernel(const MadeKernel&) = delete;
  MadeKernel& operator=(const MadeKernel&) = delete;

  /// Runs this kernel, as long as the object exists.
  FusedKernel code() const {
    return {size_ == 16   ? &detail::run_walked<16>
            : size_ == 48 ? &detail::run_walked<48>
                          : &detail::run_walked<most_registers>,
            &lists_};
  }

 private:
  detail::KernelShape shape_;
  detail::WalkedRanges ranges_;
  Growable<detail::WalkedStep<detail::RowCursor>> rows_;
  Growable<detail::WalkedStep<detail::ElementCursor>> elements_;
  Growable<detail::WalkedExit> exits_;
  Growable<detail::WalkedRowExit> row_exits_;
  detail::WalkedLists lists_;
  int size_;
};

}  // namespace tessera::kernels::inline TESSERA_ISA
TESSERA_KERNEL_CODE_END

namespace tessera::kernels {
FusedKernel make_kernel(const Fused& fused) { return (new MadeKernel(fused))->code(); }
}  // namespace tessera::kernels
#endif

#include <tessera/base/pop_macros.hpp>

#endif
