#include "pipelined_gpt.hpp"
#include "trainer_of.hpp"

namespace train_gpt {

std::unique_ptr<Trainer> make_pipeline_trainer(ts::Key key, int classes, const Options& o) {
  return trainer_of(o, [&]<class T>() { return make_pipelined_gpt<T>(key, classes, o); });
}

}  // namespace train_gpt
