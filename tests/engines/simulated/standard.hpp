// What chip.hpp takes from the library of C++: read once, where the compiler can keep what it has read.

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <tuple>
#include <vector>
