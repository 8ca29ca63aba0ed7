// Shows DTensor placements and local_map, as in PyTorch: a matrix product whose summed dim is split among devices, so
// that each device computes a partial sum, and what is communicated to turn the partial sums into each placement.

#include <cstdio>
#include <vector>

#include <tessera/parallel/local_map.hpp>
#include <tessera/tensor/creation.hpp>

namespace ts = tessera;

constexpr ts::Mesh mesh({{"model", 4}});

/// The product of a [m, k] and b [k, n], the local arrays of one device.
ts::LocalArray<float, 2> product(const ts::LocalArray<float, 2>& a, const ts::LocalArray<float, 2>& b) {
  auto [result, out] = ts::LocalTensor<float, 2>::allocate({a.shape[0], b.shape[1]});
  for (std::int64_t i = 0; i < a.shape[0]; ++i)
    for (std::int64_t j = 0; j < b.shape[1]; ++j) {
      float sum = 0;
      for (std::int64_t k = 0; k < a.shape[1]; ++k) sum += a.data[i * a.shape[1] + k] * b.data[k * b.shape[1] + j];
      out[i * b.shape[1] + j] = sum;
    }
  return result;
}

int main() {
  std::vector<float> values;
  for (int i = 0; i < 8 * 10; ++i) values.push_back(static_cast<float>(i % 7));
  // DTensor splits ten columns over four devices into 3, 3, 3 and 1.
  const auto x = ts::distribute_tensor(ts::shard(values, {8, 10}, mesh), {ts::Shard(1)});
  const auto w = ts::distribute_tensor(ts::ones<float>({10, 4}, mesh), {ts::Shard(0)});

  const auto partial =
      ts::local_map(product, {ts::Partial()}, ts::LocalMapInputs<2>{{x.placements(), w.placements()}}, x, w);
  std::printf("local_map returns %s\n", partial.text().c_str());
  for (const ts::Placement& to : {ts::Replicate(), ts::Shard(0)}) {
    ts::CommunicationScope scope;
    const auto y = ts::redistribute(partial, {to});
    std::printf("redistributed to %s: %s", y.text().c_str(), scope.text().c_str());
  }
  std::printf("element 0,0 is %g\n", static_cast<double>(ts::full_values(partial)[0]));
}
