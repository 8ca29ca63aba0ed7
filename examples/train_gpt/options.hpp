#ifndef TRAIN_GPT_OPTIONS_HPP
#define TRAIN_GPT_OPTIONS_HPP

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/base/dtype.hpp>
#include <tessera/mesh/mesh.hpp>

namespace train_gpt {

namespace ts = tessera;

/// How the model is sharded.
enum class Strategy {
  single,
  dp,
  zero1,
  zero2,
  fsdp,
  hsdp,
  tp,
  sp,
  fsdp_tp,
  cp,
  ulysses,
  ring,
  pp,
  fsdp_pp,
  cp_pp,
  ep
};

inline bool is_pipeline(Strategy strategy) {
  return strategy == Strategy::pp || strategy == Strategy::fsdp_pp || strategy == Strategy::cp_pp;
}

struct StrategyInfo {
  Strategy strategy;
  std::string_view name;
  std::vector<std::string_view> axes;  ///< of the mesh, over which it shards
  std::string_view default_mesh;       ///< for a run without --mesh
};
inline const std::vector<StrategyInfo> strategies{
    {Strategy::single, "single", {}, ""},
    {Strategy::dp, "dp", {"data"}, "data=2"},
    {Strategy::zero1, "zero1", {"data"}, "data=2"},
    {Strategy::zero2, "zero2", {"data"}, "data=2"},
    {Strategy::fsdp, "fsdp", {"data"}, "data=2"},
    {Strategy::hsdp, "hsdp", {"data", "fsdp"}, "data=2,fsdp=2"},
    {Strategy::tp, "tp", {"model"}, "model=2"},
    {Strategy::sp, "sp", {"model"}, "model=2"},
    {Strategy::fsdp_tp, "fsdp+tp", {"data", "model"}, "data=2,model=2"},
    {Strategy::cp, "cp", {"context"}, "context=2"},
    {Strategy::ulysses, "ulysses", {"context"}, "context=2"},
    {Strategy::ring, "ring", {"context"}, "context=2"},
    {Strategy::pp, "pp", {"pipe"}, "pipe=2"},
    {Strategy::pp, "dp+pp", {"data", "pipe"}, "data=2,pipe=2"},
    {Strategy::pp, "tp+pp", {"model", "pipe"}, "model=2,pipe=2"},
    {Strategy::fsdp_pp, "fsdp+pp", {"fsdp", "pipe"}, "fsdp=2,pipe=2"},
    {Strategy::fsdp_pp, "fsdp+tp+pp", {"fsdp", "model", "pipe"}, "fsdp=2,model=2,pipe=2"},
    {Strategy::cp_pp, "cp+pp", {"context", "pipe"}, "context=2,pipe=2"},
    {Strategy::ep, "ep", {"expert"}, "expert=2"},
};

/// A strategy on a mesh, as --compare names it: "tp", "tp:model=4" or, with 8 microbatches, "pp:pipe=4:8".
struct Layout {
  StrategyInfo strategy;
  ts::Mesh mesh;
  int microbatches = 0;  ///< 0: those of --microbatches
};

struct Options {
  std::vector<std::string> text;  ///< files; empty: the sources and documents of this project
  int layers = 2, dim = 64, heads = 4, context = 64;
  int experts = 0;  ///< of each layer; 0: an MLP
  int batch = 16, microbatches = 4, steps = 200, warmup = 20;
  double lr = 5e-3, clip = 1;
  std::uint64_t seed = 1;
  StrategyInfo strategy = strategies[0];
  ts::Mesh mesh;
  ts::DType dtype = ts::DType::f32;  ///< of activations: f32 or bf16
  int threads = 0;                   ///< 0: all processors of the machine
  std::string csv, svg;
  bool explain = false;
  int sample = 200;
  std::string prompt;
  double temperature = 0.8;
  std::vector<Layout> compare;  ///< empty: one run, of `strategy`
};

}  // namespace train_gpt

#endif
