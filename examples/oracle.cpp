// Shows oracle mode, which compares a run on a mesh with a run on one device, and finds this mistake: the summed dim of
// a product is split, so each device has a partial sum, but the program declares the result as replicated.

#include <cstdint>
#include <iostream>
#include <vector>

#include <tessera/parallel/local_map.hpp>
#include <tessera/tensor/oracle.hpp>
#include <tessera/tessera.hpp>

namespace ts = tessera;

constexpr ts::Mesh mesh({{"data", 3}, {"model", 2}});

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

auto layer(const ts::DTensor<float, 2>& x, const ts::DTensor<float, 2>& w, const ts::Placement& over_model) {
  return ts::local_map(product, {ts::Shard(0), over_model}, ts::LocalMapInputs<2>{{x.placements(), w.placements()}}, x,
                       w);
}

int main() {
  std::vector<float> values;
  for (int i = 0; i < 7 * 10; ++i) values.push_back(static_cast<float>(i % 7));
  const auto x = ts::distribute_tensor(ts::shard(values, {7, 10}, mesh), {ts::Shard(0), ts::Shard(1)});
  const auto w = ts::distribute_tensor(ts::ones<float>({10, 4}, mesh), {ts::Replicate(), ts::Shard(0)});
  {
    ts::OracleScope oracle;
    try {
      layer(x, w, ts::Replicate());
    } catch (const ts::error& e) {
      std::cout << e.what() << "\n";
    }
    layer(x, w, ts::Partial());
  }

  // A correct program: seven rows split over three devices, and a mean over all rows.
  constexpr auto mean_square = [](auto in, auto weight) {
    const auto out = ts::matmul(in, weight);
    return ts::mean(out * out);
  };
  constexpr auto loss = ts::compile(mean_square);
  const auto rows = ts::shard(values, {7, 10}, mesh, {"data", "model"});
  const auto weight = ts::ones<float>({10, 4}, mesh, {"model"});
  {
    ts::OracleScope oracle(ts::OracleScope::On::difference_is_kept);
    loss(rows, weight);
    std::cout << oracle.compared() << " values compared, " << oracle.differences().size() << " differ\n";
  }

  // Deterministic mode: results are bitwise equal on any number of devices, for more communication.
  for (float& value : values) value = value * 0.1f + 0.3f;
  constexpr auto exact = ts::compile(mean_square, {.deterministic = true});
  std::vector<float> results;
  for (const int devices : {1, 2, 3, 8}) {
    const ts::Mesh line = ts::mesh_1d(devices, "data");
    const auto x_of_line = ts::shard(values, {7, 10}, line, {"data"});
    const auto w_of_line = ts::ones<float>({10, 4}, line, {ts::none, "data"});
    results.push_back(ts::to_host(exact(x_of_line, w_of_line))[0]);
    std::cout << "data=" << devices << ": " << (results.back() == results.front() ? "same bits" : "other bits")
              << " as on one device; a device sends " << exact.plan(x_of_line, w_of_line).wire_bytes() << " B, "
              << loss.plan(x_of_line, w_of_line).wire_bytes() << " B without .deterministic\n";
  }
}
