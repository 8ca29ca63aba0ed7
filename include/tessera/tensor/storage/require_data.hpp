#ifndef TESSERA_TENSOR_STORAGE_REQUIRE_DATA_HPP
#define TESSERA_TENSOR_STORAGE_REQUIRE_DATA_HPP
#include <tessera/base/push_macros.hpp>

#include <string_view>
#include <type_traits>

#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/named_leaves.hpp>
#include <tessera/ops/rows.hpp>

namespace tessera::detail {

/// Throws `empty_tensor`, with the operation, the name of the tensor in the model and the line, for a model with a
/// tensor that was never assigned or was moved from.
template <class Model> void require_data(std::string_view operation, const Model& model, Here at) {
  for_each_named_leaf(model, VisitLayers::each, [&](std::string_view name, const auto& leaf, int) {
    if constexpr (StoredOperand<std::remove_cvref_t<decltype(leaf)>>)
      if (!leaf.storage())
        fail(errc::empty_tensor, "[", operation, "] ", name, name.empty() ? "" : ": ",
             "an empty tensor, which was never assigned or was moved from", Source::from(at));
  });
}

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
