// Standard headers that chip.hpp uses, as one header that can be precompiled.

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
