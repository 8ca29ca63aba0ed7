// Compiled with -O0 -march=x86-64-v4, on any processor: building is passing. There intrinsics are macros that demand
// exact types, and xsimd 8.1 has some for AVX-512 that only an optimising g++ takes.
#include <cstdint>

#include <tessera/kernels/simd/lane_ops.hpp>

namespace unoptimised {

using namespace tessera;
using namespace tessera::kernels;

template <class T> void store_all(T* to, const T* from) {
  using L = lane_t<T>;
  const Lanes<L> x = load(from), y = load(from + width);
  const Mask less = apply<Op::less>(x, y), equal = apply<Op::equal>(x, y);
  store(reinterpret_cast<bool*>(to), apply<Op::logical_or>(less, equal));
  store(to, wrap<T>(select(less, x, y)));
  if constexpr (!std::is_same_v<T, bool>) {
    store(to, wrap<T>(apply<Op::abs>(apply<Op::neg>(x))));
    store(to, wrap<T>(apply<Op::sign>(apply<Op::mul>(apply<Op::add>(x, y), apply<Op::sub>(x, y)))));
    store(to, wrap<T>(apply<Op::maximum>(apply<Op::minimum>(x, y), apply<Op::div>(x, y))));
    store(to, wrap<T>(apply<Op::pow>(x, apply<Op::relu>(y))));
    store(to, convert<L>(convert<std::int64_t>(convert<double>(x))));
    store(to, convert<L>(convert<std::int32_t>(convert<bool>(x))));
    *to = static_cast<T>(reduce_lanes<monoids::Sum>(x) + reduce_lanes<monoids::Max>(y));
  }
  if constexpr (std::is_floating_point_v<L>) {
    store(to, apply<Op::gelu>(apply<Op::silu>(apply<Op::tanh>(apply<Op::sigmoid>(x)))));
    store(to, apply<Op::exp>(apply<Op::log>(apply<Op::rsqrt>(apply<Op::sqrt>(divide_by_invariant(x, y))))));
  }
}

template void store_all(float*, const float*);
template void store_all(double*, const double*);
template void store_all(bf16*, const bf16*);
template void store_all(f16*, const f16*);
template void store_all(std::int8_t*, const std::int8_t*);
template void store_all(std::int16_t*, const std::int16_t*);
template void store_all(std::int32_t*, const std::int32_t*);
template void store_all(std::int64_t*, const std::int64_t*);
template void store_all(std::uint8_t*, const std::uint8_t*);
template void store_all(bool*, const bool*);

}  // namespace unoptimised
