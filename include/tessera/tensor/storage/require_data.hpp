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

/// What require_data does with each leaf.
struct RequireData {
  std::string_view operation;
  Source source;
  template <class Leaf> void operator()(std::string_view name, const Leaf& leaf, int) const {
    if constexpr (StoredOperand<Leaf>)
      if (!leaf.storage())
        fail(errc::empty_tensor, "[", operation, "] ", name, name.empty() ? "" : ": ",
             "an empty tensor, which was never assigned or was moved from", source);
  }
};

/// Throws `empty_tensor`, with the operation, the name of the tensor in the model and the line, for a model with a
/// tensor that was never assigned or was moved from.
template <class Model> void require_data(std::string_view operation, const Model& model, Here at) {
  for_each_named_leaf(model, VisitLayers::each, RequireData{operation, Source::from(at)});
}

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
