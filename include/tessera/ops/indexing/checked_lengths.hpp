#ifndef TESSERA_OPS_INDEXING_CHECKED_LENGTHS_HPP
#define TESSERA_OPS_INDEXING_CHECKED_LENGTHS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/graph/trace/dim.hpp>
#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/indexing/embedding.hpp>

namespace tessera::detail {

/// The lengths of sequences, i32. A lookup in the table of all lengths, 0, ..., most, gives each length itself, and
/// refuses others when the program runs (dim_range); `name` is what the error calls them.
template <class Lengths>
constexpr auto checked_lengths(const Lengths& lengths, const Dim& most, const char* name, Here at) {
  const FunctionCall named(name, lengths);
  return embedding(arange<std::int32_t>(most + 1, lengths, at), cast<std::int64_t>(lengths, at), at);
}

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
