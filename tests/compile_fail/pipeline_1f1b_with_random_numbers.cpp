// expect: pipeline_1f1b. layers: they draw
#include <tessera/parallel/pipeline/pipeline_1f1b.hpp>
#include <tessera/parallel/pipeline/pipeline_gpipe.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Layer {
  Matrix w;
  constexpr auto operator()(const auto& x, const auto& key) const {
    return x + ts::dropout(ts::matmul(x, w), 0.1, key);
  }
};
struct Step {
  constexpr auto operator()(const auto& stages, const auto& x, const auto& head, const auto& key) const {
    const auto loss = [](const auto& w, const auto& y, const auto&) { return ts::mean(ts::matmul(y, w)); };
#ifdef TESSERA_TWIN
    return loss(head, ts::pipeline_gpipe(stages, x, 4, std::tuple(), key), x);
#else
    return ts::pipeline_1f1b(loss, stages, x, 4, head, x, std::tuple(), key);
#endif
  }
};
using Stages = ts::Stack<ts::PipelineStage<"pipe", Layer>>;
constexpr auto program = ts::Traced<Step, Stages, Matrix, Matrix, ts::Scalar>::program();
static_assert(program.argument_count > 3);
