#include "pipelined_gpt.hpp"
#include "trainer_of.hpp"

#include <tessera/parallel/fsdp.hpp>

namespace train_gpt {

/// The weights of a stage are gathered once, in front of all ticks.
constexpr ts::FsdpPolicy gathered_once{.reshard_after_forward = false};

std::unique_ptr<Trainer> make_fsdp_pipeline_trainer(ts::Key key, int classes, const Options& o) {
  return trainer_of(o, [&]<class T>() {
    return ts::fsdp<gathered_once>(make_pipelined_gpt<T>(key, classes, o), o.mesh, {.split_sharded = true});
  });
}

}  // namespace train_gpt
