// expect first: the options of a convolution have names
#include <tessera/graph/trace/trace.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Call {
  constexpr auto operator()(const auto& x) const {
#ifdef TESSERA_TWIN
    const auto image = ts::unsqueeze<0>(ts::unsqueeze<2>(x));
    return ts::conv2d(image, image, {.strides = {2, 1}});
#else
    const auto image = ts::unsqueeze<0>(ts::unsqueeze<2>(x));
    return ts::conv2d(image, image, {2, 1});
#endif
  }
};
constexpr auto program = ts::Traced<Call, Matrix>::program();
