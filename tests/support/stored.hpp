#ifndef TESSERA_TESTS_SUPPORT_STORED_HPP
#define TESSERA_TESTS_SUPPORT_STORED_HPP

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iomanip>
#include <memory>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "oracle.hpp"

#include <tessera/kernels/random.hpp>
#include <tessera/ops/rows.hpp>
#include <tessera/runtime/executor/compiled_program.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>

/// Converts arrays of the oracle to tensors and back, and bounds how far results may differ.
namespace oracle {

template <class F> void with_type(tessera::DType dtype, F&& f) {
  tessera::dispatch(dtype, f, [] { throw std::logic_error("oracle: a dtype without arithmetic"); });
}

inline tessera::StoragePtr store(const tessera::Mesh& mesh, tessera::DType dtype, const tessera::PartitionSpec& spec,
                                 const tessera::Shape& shape, const double* from) {
  tessera::StoragePtr made(
      new tessera::TensorStorage(mesh, dtype, shape, tessera::resolve(spec, mesh, static_cast<int>(shape.size()))));
  with_type(dtype, [&]<class T>() {
    const auto count = static_cast<std::size_t>(tessera::volume(shape));
    const std::unique_ptr<T[]> host(new T[count + 1]);
    for (std::size_t i = 0; i < count; ++i) host[i] = static_cast<T>(from[i]);
    tessera::detail::copy_from_host(*made, host.get(), tessera::kernels::contiguous_strides(shape));
  });
  return made;
}

inline Array load(const tessera::Leaf& leaf) {
  if (leaf.is_number) return Array::number(leaf.number.real());
  Array all;
  all.shape = leaf.layers[0]->shape();
  if (leaf.stacked) all.shape.insert(0, static_cast<std::int64_t>(leaf.layers.size()));
  for (const tessera::StoragePtr& layer : leaf.layers)
    with_type(layer->dtype(), [&]<class T>() {
      const auto count = static_cast<std::size_t>(tessera::volume(layer->shape()));
      const std::unique_ptr<T[]> host(new T[count + 1]);
      tessera::detail::copy_to_host(*layer, host.get());
      for (std::size_t i = 0; i < count; ++i) all.data.push_back(static_cast<double>(host[i]));
    });
  return all;
}

inline double draw_philox(const tessera::Node& node, double number, const Layers& layers, std::int64_t index) {
  const tessera::RandomDraw draw = tessera::RandomDraw::of(node);
  std::uint64_t key = tessera::kernels::fold_in(static_cast<std::uint64_t>(number), draw.stream);
  // A double can't hold the key that a kernel derives, so no program of random_programs has such a key.
  for (const int layer : layers) key = tessera::kernels::fold_in(key, static_cast<std::uint64_t>(layer) + 1);
  double value = 0;
  with_type(node.dtype, [&]<class T>() {
    T one{};
    tessera::kernels::fill_random(node.dtype, draw.distribution, &one, {1}, key, {index + 1}, {index}, {1});
    value = static_cast<double>(one);
  });
  return value;
}

/// Changes each rounded result at random, by at most its rounding error.
class Rounding {
 public:
  explicit Rounding(std::uint32_t seed) : random_(seed) {}
  void operator()(const tessera::Node& node, Array& value, const Array& terms) {
    const tessera::OpRow& row = tessera::row_of(node.op);
    const bool rounds = row.unit == tessera::UnitKind::contraction || node.op == tessera::Op::sum ||
                        (row.kind == tessera::OpKind::elementwise && node.op != tessera::Op::select &&
                         node.op != tessera::Op::broadcast);
    if (!rounds || !tessera::is_floating(node.dtype)) return;
    // The oracle itself rounds in a cast to a type of 16 or 8 bits.
    if (node.op == tessera::Op::cast && tessera::computed_as(node.dtype) != node.dtype) return;
    const double unit = node.dtype == tessera::DType::bf16  ? 0x1p-8
                        : node.dtype == tessera::DType::f16 ? 0x1p-11
                        : node.dtype == tessera::DType::f32 ? 0x1p-23
                                                            : 0x1p-52;
    const std::vector<double> size = terms.data;
    for (std::size_t i = 0; i < size.size(); ++i) value.data[i] += unit * draw_(random_) * size[i];
  }

 private:
  std::mt19937 random_;
  std::uniform_real_distribution<double> draw_{-1, 1};
};

/// Text on the elements of a result that differ by more than `tolerance` times its largest element; empty if none do.
/// Arguments have magnitudes near 1, so far smaller results are the remainders of cancelled sums.
inline std::string difference(const Array& got, const Array& want, double tolerance) {
  if (!(got.shape == want.shape)) return "shape";
  const double scale = largest(want, 0.1);
  for (std::size_t i = 0; i < want.data.size(); ++i) {
    const double a = got.data[i], b = want.data[i];
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    if (std::isfinite(b) && std::fabs(a - b) <= tolerance * scale + 1e-30) continue;
    std::ostringstream text;
    text << std::setprecision(12) << "element " << i << " of " << want.data.size() << ": " << a << ", not " << b
         << "; largest " << scale;
    return text.str();
  }
  return {};
}

}  // namespace oracle

#endif
