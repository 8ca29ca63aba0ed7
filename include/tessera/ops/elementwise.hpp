#ifndef TESSERA_OPS_ELEMENTWISE_HPP
#define TESSERA_OPS_ELEMENTWISE_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/ops/elementwise/activation.hpp>
#include <tessera/ops/elementwise/arithmetic.hpp>
#include <tessera/ops/elementwise/comparison.hpp>
#include <tessera/ops/elementwise/composition.hpp>
#include <tessera/ops/elementwise/exponential.hpp>
#include <tessera/ops/elementwise/integer.hpp>
#include <tessera/ops/elementwise/rounding.hpp>
#include <tessera/ops/elementwise/select.hpp>
#include <tessera/ops/elementwise/special.hpp>
#include <tessera/ops/elementwise/trigonometric.hpp>
#include <tessera/ops/rows.hpp>

#include <tessera/base/pop_macros.hpp>

#endif
