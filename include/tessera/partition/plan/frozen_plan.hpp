#ifndef TESSERA_PARTITION_PLAN_FROZEN_PLAN_HPP
#define TESSERA_PARTITION_PLAN_FROZEN_PLAN_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>

#include <tessera/base/fixed_string.hpp>
#include <tessera/partition/plan/plan.hpp>
#include <tessera/partition/plan/plan_memory.hpp>

namespace tessera {

/// A collective of a plan, and how often it runs.
struct PlannedCollective : CollectiveInfo {
  std::int64_t times = 1;
};

/// The collectives, flops and memory of a plan, in a fixed amount of memory: unlike a Plan it can be a constexpr
/// variable.
template <std::size_t N> struct FrozenPlan : Communication<FrozenPlan<N>> {
  Mesh mesh{}, given_mesh{};
  AxisCuts cuts{};
  PlannedCollective collectives[N > 0 ? N : 1]{};
  std::size_t size = 0;  ///< number of collectives
  PlanMemory memory{};

  constexpr FrozenPlan() = default;
  constexpr explicit FrozenPlan(const Plan& plan)
      : mesh(plan.mesh), given_mesh(plan.given_mesh), cuts(plan.cuts), memory(tessera::memory_of(plan)),
        flops_(plan.flops()), traffic_(plan.traffic_bytes()) {
    plan.for_each_collective([&](const CollectiveInfo& c, std::int64_t times) {
      if (size == N) fail(errc::capacity, "[freeze] collectives: the plan has more than ", N);
      collectives[size++] = {c, times};
    });
  }
  template <std::size_t M>
  constexpr explicit FrozenPlan(const FrozenPlan<M>& other)
      : mesh(other.mesh), given_mesh(other.given_mesh), cuts(other.cuts), size(other.size), memory(other.memory),
        flops_(other.flops()), traffic_(other.traffic_bytes()) {
    for (std::size_t i = 0; i < size; ++i) collectives[i] = other.collectives[i];
  }

  constexpr const PlannedCollective* begin() const { return collectives; }
  constexpr const PlannedCollective* end() const { return collectives + size; }
  template <class F> constexpr void for_each_collective(F&& f) const {
    for (const PlannedCollective& c : *this) f(static_cast<const CollectiveInfo&>(c), c.times);
  }
  constexpr std::int64_t flops() const { return flops_; }
  constexpr std::int64_t traffic_bytes() const { return traffic_; }

 private:
  std::int64_t flops_ = 0, traffic_ = 0;
};

template <std::size_t N> constexpr PlanMemory memory_of(const FrozenPlan<N>& plan) { return plan.memory; }

namespace detail {
template <class Make> constexpr FrozenPlan<256> frozen_in_room() { return FrozenPlan<256>(Make{}()); }
template <class Make>
concept Freezable = requires { typename Constant<frozen_in_room<Make>().size>; };
/// A variable, so that the compiler reports an error of the plan once, and not once for each query.
template <class Make> struct Freeze {
  static_assert(frozen_in_room<Make>().size >= 0, "tessera: ts::freeze needs a program that can be planned");
  static constexpr FrozenPlan<0> value{};
};
template <Freezable Make> struct Freeze<Make> {
  static constexpr FrozenPlan<256> roomy = frozen_in_room<Make>();
  static constexpr FrozenPlan<roomy.size> value{roomy};
};
}  // namespace detail

/// A plan as a constant, made once for all queries:
///
///     constexpr auto plan = ts::freeze([] { return ts::plan(Step{}, mesh, ...); });
///     static_assert(plan.wire_bytes("model") < 1 << 20 && plan.memory.peak < 1 << 24);
///
/// `make` captures nothing. Errors: those of `make`; `capacity` for more than 256 collectives, where a collective of a
/// repeat's body counts once.
template <class Make> constexpr auto freeze(Make) { return detail::Freeze<Make>::value; }

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
