// What steps and products have in common: marks of functions and loops, and rows.
// A row is a sequence at one step.

#include <cstdint>
#include <cstring>

#define __device__
#define __forceinline__ static inline __attribute__((always_inline))

#ifdef __clang__
#define SIDE_BY_SIDE _Pragma("clang loop vectorize(assume_safety)")
#define UNROLLED _Pragma("unroll")
#else
#define SIDE_BY_SIDE _Pragma("GCC ivdep")
#define UNROLLED _Pragma("GCC unroll 16")
#endif

template <typename Number>
struct Rows {
    Number* first;
    int64_t apart;  // from a row to the next
};

constexpr int64_t MOST_ROWS = 48;  // that a thread goes through steps with: what they need stays next to the processor
