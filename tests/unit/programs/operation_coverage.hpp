#ifndef TESSERA_TESTS_UNIT_PROGRAMS_OPERATION_COVERAGE_HPP
#define TESSERA_TESTS_UNIT_PROGRAMS_OPERATION_COVERAGE_HPP

#include <cstdint>
#include <iostream>
#include <set>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/base/dtype.hpp>
#include <tessera/ops/ops.hpp>

/// Which operations the tests of an element type must contain, and how many ran.
/// Element types differ in how elements are loaded, converted, summed and stored; between these, kernels compute in the
/// lanes of few types. So f32, i32 and bool stand for all types where an operation is only elementwise: functions of
/// floats, comparisons, and arithmetic in expressions. With TESSERA_EVERY_OPERATION defined as 1, all operations are
/// tested on all types, which takes twice as long to compile.
#ifndef TESSERA_EVERY_OPERATION
#define TESSERA_EVERY_OPERATION 0
#endif
namespace programs::operations {

enum class Front : std::uint8_t { traced, expression };
using Seen = std::set<tessera::Op>;

template <class T>
inline constexpr bool stands_for_others =
    TESSERA_EVERY_OPERATION || std::is_same_v<T, float> || std::is_same_v<T, std::int32_t> || std::is_same_v<T, bool>;

/// Functions of one floating element. Integers are converted to f32 first, which `exp` and similar functions test.
inline bool is_function_of_floats(tessera::Op op) {
  const auto in = [op]<class... Operation>(tessera::ops::OperationList<Operation...>) {
    return ((op == tessera::ops::op_v<Operation>) || ...);
  };
  using namespace tessera::ops;
  return in(OperationList<Expm1Op, Log1pOp, Exp2Op, Log2Op, Log10Op, SoftplusOp>{}) || in(TrigonometricOperations{}) ||
         in(SpecialOperations{}) || in(RoundingOperations{});
}

/// Operations on the bits of integers; for bools these are logical operations.
inline bool is_operation_on_bits(tessera::Op op) {
  using namespace tessera::ops;
  for (const tessera::Op own : {op_v<BitwiseAndOp>, op_v<BitwiseOrOp>, op_v<BitwiseXorOp>, op_v<BitwiseNotOp>,
                                op_v<LeftShiftOp>, op_v<RightShiftOp>})
    if (op == own) return true;
  return false;
}

/// Whether a front must test an operation on an element type: if the operation is defined for the type. Operations that
/// occur only in gradients are for floating types; operations that occur only in traced functions are in no expression.
template <class T> bool is_tested(tessera::Op op, Front front) {
  using enum tessera::Op;
  constexpr bool is_bool = std::is_same_v<T, bool>, floats = tessera::is_floating_v<T>;
  const bool traced = front == Front::traced;
  if (op == tessera::ops::op_v<tessera::ops::ErfOp> || op == tessera::ops::op_v<tessera::ops::Atan2Op>)
    return stands_for_others<T> || (floats && traced);
  if (op == tessera::ops::op_v<tessera::ops::FmodOp>) return !is_bool && (traced || stands_for_others<T>);
  if (is_operation_on_bits(op)) return !is_bool && !floats && (traced || stands_for_others<T>);
  if (is_function_of_floats(op)) return floats && (traced || stands_for_others<T>);
  if (op == tessera::ops::op_v<tessera::ops::ProdOp> || op == tessera::ops::op_v<tessera::ops::CumprodOp>) return true;
  if (op == tessera::ops::op_v<tessera::ops::CummaxOp> || op == tessera::ops::op_v<tessera::ops::CumminOp>)
    return traced;
  if (op == tessera::ops::op_v<tessera::ops::FlipOp>) return true;
  if (op == tessera::ops::op_v<tessera::ops::StopGradientOp>) return false;
  if (op == tessera::ops::op_v<tessera::ops::FoldInOp>) return false;     // random_keys_test.cpp
  if (op == tessera::ops::op_v<tessera::ops::RaggedDotOp>) return false;  // moves_test.cpp
  if (op == tessera::ops::op_v<tessera::ops::RaggedOuterOp>) return false;
  if (op == tessera::ops::op_v<tessera::ops::NextafterOp>) return false;  // draws_and_bits_test.cpp
  for (const tessera::Op own : {tessera::ops::op_v<tessera::ops::GcdOp>, tessera::ops::op_v<tessera::ops::IgammaOp>,
                                tessera::ops::op_v<tessera::ops::IgammacOp>, tessera::ops::op_v<tessera::ops::ZetaOp>})
    if (op == own) return false;                                                // draws_and_bits_test.cpp
  if (op == tessera::ops::op_v<tessera::ops::RandomGammaGradOp>) return false;  // gamma_gradients_test.cpp
  if (op == tessera::ops::op_v<tessera::ops::ReparametrizedGammaOp>) return false;
  switch (op) {
    case argument:
    case dim:
    case scalar:
      return true;
    case constant:
    case extent:
    case constraint:
    case alike:
    case repeat:
    case project:
      return traced;
    case axis_size:
    case arange:
    case permute:
      return false;  // inside shard_map: shard_map_test.cpp
    case variable:
    case name:
    case custom_gradient:
    case custom_result:
    case sum_examples:
    case gather_examples:
    case own_example:
      return false;  // no program contains them: derivatives_test.cpp
    case custom_call:
      return false;  // of functions of the user: interop/linalg_test.cpp
    case barrier:
      return false;  // in gradients of checkpoints: checkpoint_test.cpp
    case iota:
      return true;
    case random:
    case patches:
    case attention_lse:
    case attention:
      return floats && (traced || stands_for_others<T>);
    case scatter:
      return traced;
    case fold_patches:
    case scatter_add:
    case index_add:
    case attention_grad:
      return floats && traced;
    case einsum:
      return !is_bool;
    case neg:
    case abs:
    case relu:
    case sign:
    case sub:
    case pow:
      return !is_bool && (traced || stands_for_others<T>);
    case add:
    case minimum:
    case maximum:
      return traced || stands_for_others<T>;
    case log:
    case sqrt:
    case rsqrt:
    case tanh:
    case sigmoid:
    case gelu:
    case silu:
      return stands_for_others<T> || (floats && traced);
    case equal:
    case not_equal:
    case less_equal:
    case greater:
    case greater_equal:
    case logical_and:
    case logical_or:
    case logical_not:
      return stands_for_others<T>;
    case exp:
    case cast:
    case mul:
    case div:
    case less:
    case select:
    case broadcast:
    case sum:
    case max:
    case min:
    case rearrange:
    case slice:
    case pad:
    case concat:
    case cumsum:
    case argsort:
    case gather:
    case embedding:
      return true;
  }
  ADD_FAILURE() << "is_tested does not list the operation " << tessera::row_of(op).name;
  return false;
}

/// The operations that ran, printed when the tests end.
struct Counts : testing::Environment {
  struct Of {
    tessera::DType dtype;
    Front front;
    int operations, programs;
    std::int64_t layouts;
  };
  std::vector<Of> all;
  void TearDown() override {
    int pairs = 0;
    std::int64_t layouts = 0;
    for (const Of& of : all) {
      std::cout << tessera::name_of(of.dtype) << (of.front == Front::traced ? " traced:     " : " expression: ")
                << of.operations << " operations in " << of.programs << " programs on " << of.layouts << " layouts\n";
      pairs += of.operations;
      layouts += of.layouts;
    }
    std::cout << "operations x element types x fronts: " << pairs << ", on " << layouts << " random layouts\n";
  }
  static Counts& instance() {
    static Counts& counts = *static_cast<Counts*>(testing::AddGlobalTestEnvironment(new Counts));
    return counts;
  }
};
inline Counts& counts = Counts::instance();

template <class T> inline constexpr bool is_bool = std::is_same_v<T, bool>;

}  // namespace programs::operations

#endif
