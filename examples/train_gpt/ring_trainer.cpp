#include "trainer_of.hpp"

namespace train_gpt {

std::unique_ptr<Trainer> make_ring_trainer(ts::Key key, int classes, const Options& o) {
  return trainer_of(
      o, [&]<class T>() { return make_gpt<T, Ring>(key, classes, o, strategy_of(o.strategy.strategy, o.mesh)); });
}

}  // namespace train_gpt
