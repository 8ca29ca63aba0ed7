// Shows collectives as functions, for code that is written for a single device: each device has its own local array,
// arrays are reduced and exchanged along a mesh axis, many small arrays are reduced in one bucket, and a
// CommunicationScope counts the bytes that were sent.

#include <cstdio>
#include <vector>

#include <tessera/parallel/buckets.hpp>
#include <tessera/parallel/collectives.hpp>

namespace ts = tessera;
namespace tc = tessera::collective;

constexpr ts::Mesh mesh({{"data", 2}, {"model", 2}});

/// Prints the local arrays of devices 0 to 3, in this order.
void print(const char* what, const ts::LocalTensor<float, 1>& x) {
  std::printf("%-32s", what);
  for (int device = 0; device < mesh.size(); ++device) {
    std::printf(device == 0 ? "{" : ", {");
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
  print("arrays of devices 0 to 3", x);
  print("all_reduce, sum, all devices", tc::all_reduce(x));
  print("all_reduce, avg, over data", tc::all_reduce(x, ts::ReduceOp::avg, "data"));
  print("reduce_scatter, sum, over model", tc::reduce_scatter(x, 0, ts::ReduceOp::sum, "model"));
  print("all_gather over model", tc::all_gather(x, 0, "model"));
  print("permute to the next device", tc::collective_permute(x, {{0, 1}, {1, 2}, {2, 3}, {3, 0}}));

  // Gradients of many small parameters, averaged in one all-reduce.
  std::vector<ts::LocalTensor<float, 1>> gradients{x, x, x};
  tc::all_reduce_bucketed(gradients, ts::ReduceOp::avg, "data");
  print("third array of an avg bucket", gradients[2]);
  std::printf("communication of each device:\n%s", scope.text().c_str());
}
