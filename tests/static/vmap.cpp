#include <tuple>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/partition/plan/static_plan.hpp>
#include <tessera/partition/plan/verify_plan.hpp>

// What a ts::vmap over split examples communicates: its collectives and its branches, and nothing else.

namespace ts = tessera;

namespace {

constexpr ts::Mesh mesh({{"data", 4}});

/// The plan of a function of x [8, 6], whose examples are split.
template <class F> constexpr ts::Plan plan_of(F) { return ts::plan(F{}, mesh, ts::abstract<float>({8, 6}, {"data"})); }
template <class F> struct Step {
  constexpr auto operator()(auto x) const {
    return ts::value_and_grad([](const auto& own) { return ts::sum(ts::sin(F{}(own))); })(x);
  }
};
constexpr bool only_reduces(const ts::Plan& plan, int reduces, std::int64_t bytes) {
  return plan.count(ts::all_reduce) == reduces && plan.payload_bytes(ts::all_reduce) == bytes &&
         plan.count(ts::all_gather) + plan.count(ts::reduce_scatter) + plan.count(ts::all_to_all) +
                 plan.count(ts::Collective::permute) ==
             0;
}

// A sum over split examples is an all_reduce of the sum of one example's size.
constexpr auto summed = [](const auto& xs) {
  return ts::vmap([](const auto& x) { return x - ts::psum<"batch">(x * x); }, ts::axis_name<"batch">)(xs);
};
static_assert(only_reduces(plan_of(summed), 1, 6 * 4));

// Standardized over the batch: two means; the axis may be anywhere among the arguments of vmap.
constexpr auto standardized = [](const auto& xs) {
  return ts::vmap(
      [](const auto& x, double) {
        const auto centered = x - ts::pmean<"batch">(x);
        return centered * ts::rsqrt(ts::pmean<"batch">(centered * centered) + 1e-5);
      },
      ts::in_axes<0, ts::not_mapped>, ts::axis_name<"batch">)(xs, 1.0);
};
static_assert(only_reduces(plan_of(standardized), 2, 2 * 6 * 4));

// Examples that differ in whether they take a branch, or in how often a loop runs: their number is reduced, to find out
// whether any does. Examples stay split, also in the gradient.
constexpr auto branches = [](const auto& xs) {
  return ts::vmap([](const auto& x) {
    return ts::cond(
        ts::sum(x) > 0.0, [&] { return ts::exp(x); }, [&] { return x * 2.0; });
  })(xs);
};
static_assert(only_reduces(plan_of(branches), 2, 2 * 4));
static_assert(only_reduces(plan_of(Step<decltype(branches)>{}), 3, 3 * 4));  // and the loss

}  // namespace
