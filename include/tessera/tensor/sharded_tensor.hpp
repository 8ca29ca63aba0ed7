#ifndef TESSERA_TENSOR_SHARDED_TENSOR_HPP
#define TESSERA_TENSOR_SHARDED_TENSOR_HPP
#include <tessera/base/push_macros.hpp>

/// ts::ShardedTensor, and the code that runs an expression assigned to it. The class itself is in graph/trace/, so that
/// models can have it in programs that include only tessera/static.hpp.

#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/tensor/evaluate.hpp>

#include <tessera/base/pop_macros.hpp>

#endif
