#ifndef TESSERA_NN_PARAMETERS_HPP
#define TESSERA_NN_PARAMETERS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tessera/base/dtype.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/trace/named_leaves.hpp>
#include <tessera/tensor/storage/require_data.hpp>
#include <tessera/tensor/storage/storage_of.hpp>

namespace tessera::nn {

namespace detail {
template <class F> struct CallWithString {
  F& f;
  void operator()(std::string_view name, auto& leaf, int) { f(std::string(name), leaf); }
};
template <class F> struct CallForTensors {
  F& f;
  template <class Leaf> void operator()(std::string_view name, Leaf& leaf, int) {
    if constexpr (StoredOperand<std::remove_const_t<Leaf>>) f(std::string(name), leaf);
  }
};
}  // namespace detail

/// Calls f(name, leaf) for every tensor, Dim and Scalar of a model or of an optimizer state, in the order of
/// declaration. Names are "blocks.3.mlp.up.weight" or "norm.epsilon".
///
/// A layer of a Stack, an item of a tuple or array, and a field of a struct without `field_names` is named by its
/// index.
template <class Model, class F> void for_each_named_leaf(Model& model, F&& f) {
  tessera::detail::for_each_named_leaf(model, tessera::detail::VisitLayers::each,
                                       detail::CallWithString<std::remove_reference_t<F>>{f});
}
/// The same for tensors only.
template <class Model, class F> void for_each_named_parameter(Model& model, F&& f) {
  tessera::detail::for_each_named_leaf(model, tessera::detail::VisitLayers::each,
                                       detail::CallForTensors<std::remove_reference_t<F>>{f});
}

/// One leaf of a model, in the result of named_parameters.
struct NamedParameter {
  std::string name;
  DType dtype = DType::f32;
  Shape shape{};                  ///< of a Dim or a Scalar: of rank 0
  std::string sharding{};         ///< "{data*,model}"; of a Dim or a Scalar ""
  std::int64_t elements = 0;      ///< 0 for a Dim or a Scalar, which have no memory on devices
  std::int64_t bytes = 0;         ///< of all elements
  std::int64_t device_bytes = 0;  ///< on the device with the largest shard
  double value = 0;               ///< of a Dim or a Scalar
  int layers = 1;                 ///< how many layers of a Stack it stands for
  bool is_tensor = true;
};

namespace detail {
/// Bytes of a tensor on the device with its largest shard.
template <class T, int Rank> std::int64_t largest_device_bytes(const ShardedTensor<T, Rank>& x) {
  // The first shard along each axis is the largest, so the device at coordinates 0 has the largest of every tensor.
  const Mesh& on = mesh(x);
  return device_bytes(x, on.device_at(Coordinates(static_cast<std::size_t>(on.rank()), 0)));
}
struct CountElements {
  std::int64_t count = 0;
  void operator()(const std::string&, const auto& x) { count += size(x); }
};
struct CountBytes {
  int device;
  std::int64_t bytes = 0;
  void operator()(const std::string&, const auto& x) { bytes += device_bytes(x, device); }
};
struct CountLargestBytes {
  std::int64_t bytes = 0;
  void operator()(const std::string&, const auto& x) { bytes += largest_device_bytes(x); }
};
template <class Leaf> NamedParameter describe(std::string_view name, const Leaf& leaf, int layers) {
  NamedParameter made;
  made.name = name;
  made.layers = layers;
  if constexpr (StoredOperand<Leaf>) {
    made.dtype = dtype_v<typename Leaf::element>;
    made.shape = shape(leaf);
    made.sharding = text(sharding(leaf), mesh(leaf));
    made.elements = size(leaf);
    made.bytes = made.elements * static_cast<std::int64_t>(sizeof(typename Leaf::element));
    made.device_bytes = largest_device_bytes(leaf);
  } else {
    made.dtype = std::is_same_v<Leaf, Dim> ? DType::i64 : DType::f64;
    made.value = static_cast<double>(leaf.value());
    made.is_tensor = false;
  }
  return made;
}
struct DescribeLeaves {
  std::vector<NamedParameter> list{};
  void operator()(std::string_view name, const auto& leaf, int layers) { list.push_back(describe(name, leaf, layers)); }
};
template <class Model> std::vector<NamedParameter> described(const Model& model, tessera::detail::VisitLayers layers) {
  DescribeLeaves describe;
  tessera::detail::for_each_named_leaf(model, layers, describe);
  return std::move(describe.list);
}
}  // namespace detail

/// Every leaf of a model or of the state of an optimizer, with its name, shape, sharding and bytes: as
/// torch.nn.Module.named_parameters and named_buffers together. Errors: empty_tensor for a tensor without data.
template <class Model> std::vector<NamedParameter> named_parameters(const Model& model, Here at = Here::current()) {
  tessera::detail::require_data("named_parameters", model, at);
  return detail::described(model, tessera::detail::VisitLayers::each);
}

/// Total number of elements of all tensors of a model. Errors: empty_tensor.
template <class Model> std::int64_t parameter_count(const Model& model, Here at = Here::current()) {
  tessera::detail::require_data("parameter_count", model, at);
  detail::CountElements elements;
  for_each_named_parameter(model, elements);
  return elements.count;
}

/// Bytes of the shards of all tensors of a model on one device. Errors: `mesh_devices` for a device outside the mesh,
/// `empty_tensor`.
template <class Model> std::int64_t parameter_bytes(const Model& model, int device, Here at = Here::current()) {
  tessera::detail::require_data("parameter_bytes", model, at);
  detail::CountBytes count{device};
  for_each_named_parameter(model, count);
  return count.bytes;
}

/// Bytes of the shards of all tensors of a model on the device with the most bytes. Errors: empty_tensor.
template <class Model> std::int64_t parameter_bytes_per_device(const Model& model, Here at = Here::current()) {
  tessera::detail::require_data("parameter_bytes_per_device", model, at);
  detail::CountLargestBytes count;
  for_each_named_parameter(model, count);
  return count.bytes;
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
