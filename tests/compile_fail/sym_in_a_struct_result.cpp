// expect: tessera: a struct in the result of the traced function has a ts::Sym as a field, which exists only
#include <type_traits>

#include <tessera/tensor/compile.hpp>

namespace ts = tessera;

template <class X> struct Pair {
  X first, second;
};
struct Step {
  constexpr auto operator()(const auto& x) const {
#ifdef TESSERA_TWIN
    return Pair<ts::ShardedTensor<float, 1>>{x, x};
#else
    return Pair<std::remove_cvref_t<decltype(x)>>{x, x};
#endif
  }
};
auto run(const ts::ShardedTensor<float, 1>& x) { return ts::compile(Step{})(x); }
