#ifndef TESSERA_OPS_OPS_HPP
#define TESSERA_OPS_OPS_HPP
#include <tessera/base/push_macros.hpp>

// Every operation, and the tensor that they take.
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/ops/attention/attention.hpp>
#include <tessera/ops/checkpoint.hpp>
#include <tessera/ops/cond.hpp>
#include <tessera/ops/constraint.hpp>
#include <tessera/ops/contraction/convolution.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/custom_gradient.hpp>
#include <tessera/ops/data_movement/diagonal.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/repeat.hpp>
#include <tessera/ops/data_movement/reshape.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/data_movement/slice_scatter.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/data_movement/stack.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/functional.hpp>
#include <tessera/ops/indexing/cumulative.hpp>
#include <tessera/ops/indexing/dynamic_slice.hpp>
#include <tessera/ops/indexing/embedding.hpp>
#include <tessera/ops/indexing/embedding_bag.hpp>
#include <tessera/ops/indexing/gather.hpp>
#include <tessera/ops/indexing/index_put.hpp>
#include <tessera/ops/indexing/nonzero.hpp>
#include <tessera/ops/indexing/one_hot.hpp>
#include <tessera/ops/indexing/scatter.hpp>
#include <tessera/ops/indexing/searchsorted.hpp>
#include <tessera/ops/indexing/sort.hpp>
#include <tessera/ops/indexing/unique.hpp>
#include <tessera/ops/random.hpp>
#include <tessera/ops/random_draws.hpp>
#include <tessera/ops/reduction/distances.hpp>
#include <tessera/ops/reduction/normalization.hpp>
#include <tessera/ops/reduction/pooling.hpp>
#include <tessera/ops/reduction/reduction.hpp>
#include <tessera/ops/reduction/statistics.hpp>
#include <tessera/ops/stop_gradient.hpp>
#include <tessera/ops/vmap.hpp>

#include <tessera/base/pop_macros.hpp>

#endif
