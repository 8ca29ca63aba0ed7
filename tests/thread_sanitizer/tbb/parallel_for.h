#include "loops.hpp"
