#ifndef TESSERA_DATA_DATA_HPP
#define TESSERA_DATA_DATA_HPP
#include <tessera/base/push_macros.hpp>

// Data sets as columns, files, and the DataLoader. Not in tessera.hpp.
#include <tessera/data/array.hpp>
#include <tessera/data/column.hpp>
#include <tessera/data/data_loader.hpp>
#include <tessera/data/idx.hpp>
#include <tessera/data/map.hpp>
#include <tessera/data/mapped_file.hpp>
#include <tessera/data/npy.hpp>
#include <tessera/data/permutation.hpp>
#include <tessera/data/prefetcher.hpp>
#include <tessera/data/sampler.hpp>
#include <tessera/data/windows.hpp>

#include <tessera/base/pop_macros.hpp>

#endif
