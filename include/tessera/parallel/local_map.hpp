#ifndef TESSERA_PARALLEL_LOCAL_MAP_HPP
#define TESSERA_PARALLEL_LOCAL_MAP_HPP

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>

#include <tessera/parallel/dtensor.hpp>

namespace tessera {

/// How local_map takes its operands.
template <std::size_t N> struct LocalMapInputs {
  std::array<Placements, N> placements;
  bool redistribute = false;  ///< bring operands to these placements; false: those that differ are an error
};

/// A function of the arrays of one device, run on each device of a mesh: f(array...) gives a LocalArray, and the
/// results are a tensor of these placements, which are believed. The mesh is that of the first operand. Errors:
/// `mesh_mismatch`; `structure` for an operand of other placements than `inputs` says; those of from_local.
/// Communication: none but that of bringing operands to their placements, where that is asked for.
///
///     auto y = ts::local_map([](const auto& a) { return a; }, {ts::Shard(0)}, {{{{ts::Shard(0)}}}}, x);
template <class F, std::size_t N, class... T, int... Rank>
auto local_map(F&& f, const Placements& out, const LocalMapInputs<N>& inputs, const DTensor<T, Rank>&... xs) {
  static_assert(N == sizeof...(xs), "tessera: local_map takes placements for each operand");
  using Result = std::remove_cvref_t<decltype(f(xs.local()[0]...))>;
  const Mesh* mesh = nullptr;
  std::size_t next = 0;
  const auto place = [&](const auto& x) {
    const Placements wanted =
        normalized(inputs.placements[next], x.mesh(), std::remove_cvref_t<decltype(x)>::rank, "local_map");
    if (mesh == nullptr) mesh = &x.mesh();
    if (!(x.mesh() == *mesh))
      fail(errc::mesh_mismatch, "[local_map] one mesh: operand ", next, " lies on ", x.mesh().text(),
           ", those before it on ", mesh->text());
    if (!(wanted == x.placements()) && !inputs.redistribute)
      fail(errc::structure, "[local_map] placements of operand ", next, ": ", x.text(), ", and ", text(wanted),
           " is wanted");
    ++next;
    return redistribute(x, wanted);
  };
  // Braces keep the operands in order.
  const std::tuple<DTensor<T, Rank>...> placed{place(xs)...};
  const LocalTensor<typename Result::element, Result::rank> made(
      *mesh, [&](int device) { return std::apply([&](const auto&... x) { return f(x.local()[device]...); }, placed); });
  return from_local(made, out);
}

}  // namespace tessera

#endif
