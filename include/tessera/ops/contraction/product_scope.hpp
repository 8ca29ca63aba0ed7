#ifndef TESSERA_OPS_CONTRACTION_PRODUCT_SCOPE_HPP
#define TESSERA_OPS_CONTRACTION_PRODUCT_SCOPE_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/base/error.hpp>
#include <tessera/graph/ir/precision.hpp>
#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/stack.hpp>
#include <tessera/ops/elementwise.hpp>

namespace tessera::detail {

/// f, in whose trace products of f32 operands have this precision, of operands rounded to this type.
template <Precision P, DType Type, class F> constexpr auto with_products(const F& f, const char* outside) {
  return [f, outside](const auto&... given) {
    const auto arguments = std::tuple<decltype(settle(given))...>(settle(given)...);
    const Value context = trace_in(arguments);
    if (context.module == nullptr) fail(errc::unsupported, outside);
    Module& module = *context.module;
    const Precision precision = module.matmul_precision;
    const DType type = module.product_type;
    module.matmul_precision = P, module.product_type = Type;
    auto result = settle(std::apply(f, arguments));
    module.matmul_precision = precision, module.product_type = type;
    return result;
  };
}

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
