#ifndef TESSERA_OPTIM_CG_HPP
#define TESSERA_OPTIM_CG_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/scalar.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/ops/cond.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/optim/tree_map.hpp>
#include <tessera/optim/tree_vdot.hpp>

namespace tessera::optim {

/// When ts::optim::cg stops: at a residual of at most tol times the norm of b, or of at most atol.
struct Cg {
  Scalar tol = 1e-5;
  Scalar atol = 0.0;
};

/// Inside a traced function: the solution x of a(x) = b by conjugate gradients, for a linear function `a` that is
/// symmetric and positive definite, such as the product with a Hessian. b is a tensor, a model or a tuple of them, and
/// so is x; all their tensors are floating. It begins at x = 0 and ends as `Cg` says, or after `most` steps, each with
/// one call of `a`. The result is (x, the number of steps).
///
///     const auto [step, count] =
///         ts::optim::cg([&](const auto& v) { return ts::hvp(loss, m, v); }, gradient, 100, {.tol = 1e-6});
/// Errors: structure if `a` returns another structure than that of b. Communication: in each step that of `a`, and two
/// all_reduces of rank-0 tensors. Source: Hestenes and Stiefel, J. Res. NBS 49 (1952), as jax.scipy.sparse.linalg.cg.
template <class A, class B, SizeOperand Most>
constexpr auto cg(const A& a, const B& b, const Most& most, const Cg& options = {}, Here at = Here::current()) {
  detail::require_traced("cg", "ts::optim::cg", Source::from(at), b);
  const auto plus = [](const auto& x, const auto& factor, const auto& y) {  // x + factor y
    return tree_map([&](auto p, auto q) { return p + cast<typename decltype(p)::element>(factor) * q; }, x, y);
  };
  const auto norm2 = tree_vdot(b, b, at);
  const auto least = maximum(norm2 * (options.tol * options.tol), options.atol * options.atol);
  const auto end =
      while_loop([&](const auto& state) { return std::get<3>(state) > least; },
                 [&](const auto& state) {
                   const auto& [x, r, p, rr, count] = state;
                   const auto image = a(p);
                   const auto alpha = rr / tree_vdot(p, image, at);
                   const auto next_r = plus(r, -alpha, image);
                   const auto next_rr = tree_vdot(next_r, next_r, at);
                   return std::tuple(plus(x, alpha, p), next_r, plus(next_r, next_rr / rr, p), next_rr, count + 1);
                 },
                 std::tuple(tree_map([](auto g) { return zeros_like(g); }, b), b, b, norm2, 0), most, at);
  return std::tuple(std::get<0>(end), std::get<4>(end));
}

}  // namespace tessera::optim

#include <tessera/base/pop_macros.hpp>

#endif
