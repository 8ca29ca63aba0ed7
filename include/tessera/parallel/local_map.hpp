#ifndef TESSERA_PARALLEL_LOCAL_MAP_HPP
#define TESSERA_PARALLEL_LOCAL_MAP_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/base/here.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/parallel/dtensor.hpp>
#include <tessera/runtime/oracle/oracle.hpp>
#include <tessera/runtime/oracle/oracle_rounding.hpp>

namespace tessera {

/// Expected placements of the operands of local_map.
template <std::size_t N> struct LocalMapInputs {
  std::array<Placements, N> placements;
  bool redistribute = false;  ///< redistribute operands to these placements; false: a difference is an error
};

/// Placements of a result, with the source line where they are written.
struct OutPlacements {
  Placements placements;
  Source source;
  OutPlacements(const Placements& own, Here at = Here::current()) : placements(own), source(Source::from(at)) {}
  OutPlacements(std::initializer_list<Placement> own, Here at = Here::current())
      : placements(own), source(Source::from(at)) {}
};

namespace detail {

/// Compares a local_map's result with that of its function on whole tensors. The tolerance allows for a function that
/// sums all elements of its largest operand, since the function itself is not known.
template <class T, int Rank>
void compare_local_map(const DTensor<T, Rank>& made, const LocalArray<T, Rank>& whole, std::int64_t largest,
                       Source source) {
  OracleDifference found;
  found.what = concat_text("local_map ", made.text());
  found.source = source;
  found.elements = volume(whole.shape);
  if (!(made.shape() == whole.shape))
    fail(errc::oracle, "[oracle] values differ: ", found.what, source, ": on a single device the result is ",
         shape_text(dtype_v<T>, whole.shape));
  double most = 0, distance = -1;
  for (const T& x : whole.values())
    if (std::isfinite(static_cast<double>(x))) most = std::max(most, std::fabs(static_cast<double>(x)));
  const double allowed = runtime::order_factor(static_cast<double>(largest)) * runtime::rounding_of(dtype_v<T>) * most;
  const auto compare = [&](const Box& box, const T* values, int device) {
    const Shape extent = extents(box);
    for (std::int64_t i = 0; i < volume(extent); ++i) {
      OracleElement element{box.begin, device, static_cast<double>(values[i]), 0, allowed};
      std::int64_t at = 0, left = i;
      for (std::size_t d = extent.size(); d-- > 0; left /= extent[d]) element.index[d] += left % extent[d];
      for (std::size_t d = 0; d < extent.size(); ++d) at = at * whole.shape[d] + element.index[d];
      element.one_device = static_cast<double>(whole.data[at]);
      const double a = element.sharded, b = element.one_device;
      if (a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= allowed) continue;
      if (++found.count == 1) found.first = element;
      const double apart = std::isnan(a - b) ? INFINITY : std::fabs(a - b);
      if (apart > distance) found.largest = element;
      distance = std::max(distance, apart);
    }
  };
  if (partial_axes(made.placements()) != 0) {
    const std::vector<T> values = full_values(made);
    compare(Box{Shape(whole.shape.size(), 0), whole.shape}, values.data(), -1);
  } else {
    found.elements = 0;
    for (int device = 0; device < made.mesh().size(); ++device) {
      const Box box = placed_box(made.shape(), made.placements(), made.mesh(), made.mesh().coordinates_of(device));
      found.elements += volume(extents(box));
      compare(box, made.local()[device].data, device);
    }
  }
  Growable<OracleDifference> differences;
  if (found.count > 0) differences.push_back(std::move(found));
  add_differences(1, std::move(differences));
}

}  // namespace detail

/// Runs f on the local arrays of each device, as PyTorch's local_map does: f(array...) returns a LocalArray, and the
/// results become a DTensor with placements `out`, which are not checked. All operands are on one mesh.
/// Errors: `mesh_mismatch`; `structure` for an operand whose placements differ from `inputs`; those of from_local;
/// `oracle` in an OracleScope, when f computes a different result from the whole operands on one device.
/// Communication: only that of redistributing the operands, with `inputs.redistribute`.
///
///     auto y = ts::local_map([](const auto& a) { return a; }, {ts::Shard(0)}, {{{{ts::Shard(0)}}}}, x);
template <class F, std::size_t N, class... T, int... Rank>
auto local_map(F&& f, const OutPlacements& out, const LocalMapInputs<N>& inputs, const DTensor<T, Rank>&... xs) {
  static_assert(N == sizeof...(xs), "tessera: local_map takes placements for each operand");
  using Result = std::remove_cvref_t<decltype(f(xs.local()[0]...))>;
  const Mesh* mesh = nullptr;
  std::size_t next = 0;
  const auto place = [&](const auto& x) {
    const Placements wanted =
        normalized(inputs.placements[next], x.mesh(), std::remove_cvref_t<decltype(x)>::rank, "local_map");
    if (mesh == nullptr) mesh = &x.mesh();
    if (!(x.mesh() == *mesh))
      fail(errc::mesh_mismatch, "[local_map] one mesh: operand ", next, " is on ", x.mesh().text(),
           ", but earlier operands are on ", mesh->text());
    if (!(wanted == x.placements()) && !inputs.redistribute)
      fail(errc::structure, "[local_map] placements of operand ", next, ": the operand is ", x.text(),
           ", but the function expects ", text(wanted), "; call ts::redistribute or set LocalMapInputs::redistribute");
    ++next;
    return redistribute(x, wanted);
  };
  // A braced initializer evaluates place(x) from left to right; `place` counts its calls.
  const std::tuple<DTensor<T, Rank>...> placed{place(xs)...};
  const LocalTensor<typename Result::element, Result::rank> made(
      *mesh, [&](int device) { return std::apply([&](const auto&... x) { return f(x.local()[device]...); }, placed); });
  auto result = from_local(made, out.placements);
  if (detail::oracle_is_on()) {
    const detail::Uncounted uncounted;
    std::int64_t largest = 1;
    const auto whole = [&](const auto& x) {
      largest = std::max(largest, volume(x.shape()));
      return redistribute(x, Placements(static_cast<std::size_t>(mesh->rank()), Replicate())).local()[0];
    };
    const std::tuple<LocalArray<T, Rank>...> wholes =
        std::apply([&](const auto&... x) { return std::tuple<LocalArray<T, Rank>...>{whole(x)...}; }, placed);
    detail::compare_local_map(result, std::apply(f, wholes), largest, out.source);
  }
  return result;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
