// Shared by steps and matmuls: macros for functions and loops, and rows. A row is one sequence at one step.

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

// Around the longest loop of a register tile. Not measured to pay off elsewhere.
#if defined(__AVX__) && defined(__clang__)
#define TWO_AT_A_TIME _Pragma("unroll 2")
#elif defined(__AVX__)
#define TWO_AT_A_TIME _Pragma("GCC unroll 2")
#else
#define TWO_AT_A_TIME
#endif

template <typename Number>
struct Rows {
    Number* first;
    int64_t apart;  // stride from a row to the next, in elements
};

constexpr int64_t MOST_ROWS = 64;  // rows that a thread processes at a time, so that their data stays in the core's cache
