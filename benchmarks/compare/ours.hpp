#ifndef TESSERA_BENCHMARKS_COMPARE_OURS_HPP
#define TESSERA_BENCHMARKS_COMPARE_OURS_HPP

#include <memory>

#include "peer.hpp"

#include <tessera/tensor/host.hpp>

namespace compare {

/// Runs a compiled program on its arguments, and keeps the tensor that it returned last.
template <class Program, class... Args> Task tensor_task(Program program, Args... args) {
  const auto result = std::make_shared<decltype(program(args...))>();
  return Task([=] { *result = program(args...); }, [=] { return tessera::to_host(*result); });
}

}  // namespace compare

#endif
