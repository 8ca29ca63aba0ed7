#ifndef TESSERA_PARALLEL_REDUCE_OP_HPP
#define TESSERA_PARALLEL_REDUCE_OP_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera {

/// How values of several devices become one. Bitwise ones are for integers and bools, and for no Partial placement.
enum class ReduceOp : std::uint8_t { sum, avg, min, max, product, bit_and, bit_or };

constexpr std::string_view name_of(ReduceOp op) {
  constexpr std::string_view names[] = {"sum", "avg", "min", "max", "product", "bit_and", "bit_or"};
  return names[static_cast<std::size_t>(op)];
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
