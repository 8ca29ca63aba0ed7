#ifndef TESSERA_NN_PARAMETERS_HPP
#define TESSERA_NN_PARAMETERS_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/base/dtype.hpp>
#include <tessera/graph/trace/tree.hpp>
#include <tessera/tensor/storage/storage_of.hpp>

namespace tessera::nn {

namespace detail {

/// C++20 has no reflection, so a struct lists the names of its fields in order: `static constexpr std::array
/// field_names`.
template <class Model> constexpr const char* field_name(std::size_t i) {
  if constexpr (requires { Model::field_names[i]; })
    return i < Model::field_names.size() ? Model::field_names[i] : nullptr;
  else
    return nullptr;
}
inline std::string joined(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}
inline std::string joined(const std::string& path, const char* name, std::size_t i) {
  return joined(path, name != nullptr ? std::string(name) : std::to_string(i));
}

template <class Model, class F> void for_each_named(Model& model, const std::string& path, F& f) {
  using M = std::remove_const_t<Model>;
  if constexpr (StoredOperand<M>) {
    f(path, model);
  } else if constexpr (tessera::detail::is_leaf_v<M>) {
    // A Dim or a Scalar is no parameter.
  } else if constexpr (tessera::detail::is_stack_v<M>) {
    for (int i = 0; i < model.size(); ++i) for_each_named(model[i], joined(path, std::to_string(i)), f);
  } else if constexpr (tessera::detail::is_tuple_v<M>) {
    std::size_t i = 0;
    std::apply([&](auto&... items) { (for_each_named(items, joined(path, std::to_string(i++)), f), ...); }, model);
  } else if constexpr (tessera::detail::is_array_v<M>) {
    for (std::size_t i = 0; i < model.size(); ++i) for_each_named(model[i], joined(path, std::to_string(i)), f);
  } else if constexpr (!std::is_empty_v<M>) {
    std::size_t i = 0;
    tessera::detail::for_each_field(model, [&](auto& field) {
      for_each_named(field, joined(path, field_name<M>(i), i), f);
      ++i;
    });
  }
}

}  // namespace detail

/// Calls f(name, tensor) for every tensor of a model, in the order in which they are declared:
/// "blocks.3.mlp.up.weight".
///
/// The name of a Stack's layer, an item of a tuple or array, or a field of a struct without `field_names` is its index.
template <class Model, class F> void for_each_named_parameter(Model& model, F&& f) {
  detail::for_each_named(model, {}, f);
}

/// Total number of elements of all tensors of a model.
template <class Model> std::int64_t parameter_count(const Model& model) {
  std::int64_t count = 0;
  for_each_named_parameter(model, [&](const std::string&, const auto& x) { count += size(x); });
  return count;
}

/// Bytes of the shards of all tensors of a model on one device. Errors: `mesh_devices` for a device outside the mesh.
template <class Model> std::int64_t parameter_bytes(const Model& model, int device) {
  std::int64_t bytes = 0;
  for_each_named_parameter(model, [&](const std::string&, const auto& x) { bytes += device_bytes(x, device); });
  return bytes;
}

/// Bytes of the shards of all tensors of a model on the device with the most bytes.
template <class Model> std::int64_t parameter_bytes_per_device(const Model& model) {
  std::int64_t bytes = 0;
  for_each_named_parameter(model, [&](const std::string&, const auto& x) {
    // The first shard along each axis is the largest, so the device at coordinates 0 has the largest of every tensor.
    const Mesh& on = mesh(x);
    bytes += device_bytes(x, on.device_at(Coordinates(static_cast<std::size_t>(on.rank()), 0)));
  });
  return bytes;
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
