#ifndef TESSERA_OPS_OPS_HPP
#define TESSERA_OPS_OPS_HPP
#include <tessera/base/push_macros.hpp>

// Every operation.
#include <tessera/ops/attention.hpp>
#include <tessera/ops/constraint.hpp>
#include <tessera/ops/convolution.hpp>
#include <tessera/ops/einsum.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/functional.hpp>
#include <tessera/ops/indexing.hpp>
#include <tessera/ops/random.hpp>
#include <tessera/ops/rearrange.hpp>
#include <tessera/ops/reduction.hpp>
#include <tessera/ops/scan.hpp>
#include <tessera/ops/shape.hpp>
#include <tessera/ops/slicing.hpp>
#include <tessera/ops/sort.hpp>

#include <tessera/base/pop_macros.hpp>

#endif
