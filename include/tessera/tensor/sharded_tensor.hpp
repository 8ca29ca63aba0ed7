#ifndef TESSERA_TENSOR_SHARDED_TENSOR_HPP
#define TESSERA_TENSOR_SHARDED_TENSOR_HPP
#include <tessera/base/push_macros.hpp>

/// ts::ShardedTensor, with what runs the expressions that are assigned to one. The class itself stands in graph/trace/,
/// so that programs that only plan, with tessera/static.hpp, can have it in their models.

#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/tensor/evaluate.hpp>

#include <tessera/base/pop_macros.hpp>

#endif
