// Collectives as functions, for code that is written for one device of many: an array of its own on each device,
// reductions along an axis, many small arrays in one bucket, and what it all sends.

#include <cstdio>
#include <vector>

#include <tessera/parallel/buckets.hpp>
#include <tessera/parallel/collectives.hpp>

namespace ts = tessera;
namespace tc = tessera::collective;

constexpr ts::Mesh mesh({{"data", 2}, {"model", 2}});

void print(const char* what, const ts::LocalTensor<float, 1>& x) {
  std::printf("%s", what);
  for (int device = 0; device < mesh.size(); ++device) {
    std::printf(device == 0 ? " {" : ", {");
    for (std::int64_t i = 0; i < x[device].shape[0]; ++i)
      std::printf(i == 0 ? "%g" : ", %g", static_cast<double>(x[device].data[i]));
    std::printf("}");
  }
  std::printf("\n");
}

int main() {
  const ts::LocalTensor<float, 1> x(mesh, [](int device) {
    return ts::LocalTensor<float, 1>::array({2}, std::vector<float>{static_cast<float>(device + 1), 1.0f});
  });
  ts::CommunicationScope scope;
  print("of each device ", x);
  print("sum of all     ", tc::all_reduce(x));
  print("mean over data ", tc::all_reduce(x, ts::ReduceOp::avg, "data"));
  print("parts of sums  ", tc::reduce_scatter(x, 0, ts::ReduceOp::sum, "model"));
  print("joined         ", tc::all_gather(x, 0, "model"));
  print("to the next    ", tc::collective_permute(x, {{0, 1}, {1, 2}, {2, 3}, {3, 0}}));

  // Gradients of many small parameters, averaged in one all-reduce.
  std::vector<ts::LocalTensor<float, 1>> gradients{x, x, x};
  tc::all_reduce_bucketed(gradients, ts::ReduceOp::avg, "data");
  print("third gradient ", gradients[2]);
  std::printf("%s", scope.text().c_str());
}
