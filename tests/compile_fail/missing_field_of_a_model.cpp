// expect first: no member named .?fc3
// lines: 2
#include <tessera/nn/linear.hpp>
#include <tessera/tensor/compile.hpp>

namespace ts = tessera;

struct Net {
  ts::nn::Linear<> fc1, fc2;
  constexpr auto operator()(const auto& x) const { return fc2(ts::relu(fc1(x))); }
};
inline auto run(const Net& net, const ts::ShardedTensor<float, 2>& x) {
  return ts::compile([](const auto& model, const auto& in) {
#ifdef TESSERA_TWIN
    return model.fc2(ts::relu(model.fc1(in)));
#else
    return model.fc3(ts::relu(model.fc1(in)));
#endif
  })(net, x);
}
