#ifndef TESSERA_GRAPH_TRACE_SYM_HPP
#define TESSERA_GRAPH_TRACE_SYM_HPP
#include <tessera/base/push_macros.hpp>

#include <type_traits>

#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/expression/operators.hpp>
#include <tessera/graph/trace/operand.hpp>

namespace tessera {

/// A tensor computed by a traced function: a handle of a node, with static element type and rank.
template <class T, int Rank> struct Sym : SymTag, Operators<Sym<T, Rank>> {
  using element = T;
  static constexpr int rank = Rank;
  Value value{};

  constexpr Sym() = default;
  constexpr explicit Sym(Value v) : value(v) {}
  template <class B> constexpr auto operator=(const B&) const&& { detail::no_assignment<B>(); }
  template <class S = Sym> constexpr auto shape() const {
    static_assert(std::is_void_v<S>,
                  "tessera: shapes are not known while a function is traced; instead of x.shape() use the ts::Dim "
                  "ts::extent<0>(x)");
    return rank;
  }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
