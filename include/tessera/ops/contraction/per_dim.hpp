#ifndef TESSERA_OPS_CONTRACTION_PER_DIM_HPP
#define TESSERA_OPS_CONTRACTION_PER_DIM_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>

namespace tessera {

/// A number for each of N spatial dims: `{2, 1}`, or `2` for all of them, as in PyTorch.
template <int N> struct PerDim {
  std::array<std::int64_t, N> numbers{};

  constexpr PerDim() : PerDim(0) {}
  /// Written one by one: in the name of a template argument g++ 12 leaves out elements that an initializer left out, so
  /// that options which are changed later would share one name.
  template <std::integral I> constexpr PerDim(I all) {
    for (auto& own : numbers) own = static_cast<std::int64_t>(all);
  }
  template <std::integral... I>
    requires(N > 1 && sizeof...(I) == N)
  constexpr PerDim(I... each) : numbers{static_cast<std::int64_t>(each)...} {}
  constexpr PerDim(const std::array<std::int64_t, N>& each) : numbers(each) {}

  constexpr std::int64_t operator[](std::size_t d) const { return numbers[d]; }
  constexpr std::int64_t& operator[](std::size_t d) { return numbers[d]; }
  constexpr auto begin() const { return numbers.begin(); }
  constexpr auto end() const { return numbers.end(); }
  friend constexpr bool operator==(const PerDim&, const PerDim&) = default;
};

namespace detail {
/// The first member of options, which are given by name: nothing that is written without a name converts to it, so that
/// {3, 2} is no stride of 3 with a padding of 2.
/// A member of this type is [[no_unique_address]]: of a template argument with padding before its second member, clang
/// 16 reads other values at run time.
struct GivenByName {
  explicit GivenByName() = default;
  friend constexpr bool operator==(GivenByName, GivenByName) = default;
};
}  // namespace detail

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
