// A simulated GPU: the functions of chip.cuh for a CPU. Every thread of a cluster is a fibre, and fibres take turns.
//
// The schedule is random, and now and then a warp sleeps until no other can continue without it. Remote stores arrive at a
// random time; asynchronous copies arrive either at once or not before someone waits for them. So a kernel with a missing
// wait, or one that overwrites data still to be read, computes wrong results or deadlocks.

#include "standard.hpp"

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)

typedef unsigned int word;
typedef unsigned short half_bits;
typedef long long offset;

struct alignas(8) uint2 { word x, y; };
struct alignas(16) uint4 { word x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct float16 { half_bits bits; };
struct bfloat16 { half_bits bits; };

using std::max;

namespace simulated {

constexpr int STACK = 256 * 1024;
constexpr int SHARED_BITS = 20;
constexpr int BEYOND = 4096;  // guard bytes after the shared memory of a thread block

struct Meeting {  // a barrier of `size` threads
    int size = 0, arrived = 0;
    long round = 0;
};

struct Warp {
    Meeting meeting;
    word exchanged[32];
    word a[32][4];
    uint2 b[32];
};

struct Block {
    std::vector<unsigned char> bytes;
    unsigned char* memory;
    Meeting meeting;
    std::vector<Warp> warps;
    int rank;
};

struct Copy { void* to; const void* from; int bytes; };

struct Thread {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    Block* block;
    Warp* warp;
    int index, lane;
    std::vector<std::vector<Copy>> fetches{1};
    bool done = false;
};

struct Delivery { unsigned char *to, *box; word content[4]; };

struct Letterbox { int32_t missing; uint16_t expected, phase; };
static_assert(sizeof(Letterbox) == 8);

inline std::vector<Block> blocks;
inline std::vector<Delivery> under_way;
inline Meeting cluster_meeting;
inline std::mt19937 random;
inline Thread* present;
inline ucontext_t scheduler;
inline int block_of_grid;
inline bool progress;
inline bool misaligned;

inline void others_turn() { swapcontext(&present->context, &scheduler); }

inline void wait_until(const std::function<bool()>& holds) {
    while (!holds()) others_turn();
    progress = true;
}

inline void attend(Meeting& meeting) {
    long round = meeting.round;
    if (++meeting.arrived == meeting.size) meeting.arrived = 0, ++meeting.round, progress = true;
    wait_until([&] { return meeting.round != round; });
}

inline unsigned char* place(word address) {
    return blocks[address >> SHARED_BITS].memory + (address & ((1u << SHARED_BITS) - 1));
}

inline void expect_aligned(const void* address, int bytes) {
    if ((uintptr_t)address % bytes) throw std::runtime_error("a place that is not aligned");
}

inline void opened(Letterbox& box) {
    if (box.expected && box.missing == 0) box.expected = 0, box.phase ^= 1;
}

inline void deliver_one() {
    size_t which = random() % under_way.size();
    Delivery delivery = under_way[which];
    under_way.erase(under_way.begin() + which);
    std::memcpy(delivery.to, delivery.content, 16);
    Letterbox& box = *(Letterbox*)delivery.box;
    box.missing -= 16;
    opened(box);
    progress = true;
}

inline void arrive(const Copy& copy) {
    std::memcpy(copy.to, copy.from, copy.bytes);
}

inline void ask_for(const Copy& copy) {
    if (random() % 2) arrive(copy); else present->fetches.back().push_back(copy);
}

// Runs a kernel, one cluster after the other. Returns 0, or an error code, see ../simulation.py.
inline int run(int groups, int cluster, int threads, int shared_bytes, int seed, const std::function<void()>& kernel) {
    static const std::function<void()>* body;
    static bool failed;
    body = &kernel;
    failed = misaligned = false;
    under_way.clear();  // left over from a failed run
    random.seed(seed);
    for (int group = 0; group < groups; ++group) {
        blocks.assign(cluster, Block{});
        cluster_meeting = {cluster * threads};
        std::vector<std::unique_ptr<Thread>> all;
        for (int rank = 0; rank < cluster; ++rank) {
            Block& block = blocks[rank];
            block.bytes.assign(shared_bytes + 128 + BEYOND, 0xFF);  // NaN
            block.memory = (unsigned char*)(((uintptr_t)block.bytes.data() + 127) & ~(uintptr_t)127);
            block.meeting = {threads};
            block.warps.resize(threads / 32);
            block.rank = rank;
            for (Warp& warp : block.warps) warp.meeting = {32};
            for (int i = 0; i < threads; ++i) {
                auto thread = std::make_unique<Thread>();
                thread->stack.reset(new char[STACK]);
                thread->block = &block;
                thread->warp = &block.warps[i / 32];
                thread->index = i, thread->lane = i % 32;
                getcontext(&thread->context);
                thread->context.uc_stack.ss_sp = thread->stack.get();
                thread->context.uc_stack.ss_size = STACK;
                thread->context.uc_link = &scheduler;
                makecontext(&thread->context, (void (*)())+[] {
                    try {
                        (*body)();
                    } catch (...) {
                        failed = true;
                    }
                    present->done = progress = true;
                }, 0);
                all.push_back(std::move(thread));
            }
        }
        std::vector<Thread*> waiting;
        for (auto& thread : all) waiting.push_back(thread.get());
        Warp* asleep = all[random() % all.size()]->warp;
        while (!waiting.empty()) {
            progress = false;
            std::shuffle(waiting.begin(), waiting.end(), random);
            if (!asleep && random() % 8 == 0) asleep = waiting.front()->warp;
            for (Thread* thread : waiting) {
                if (thread->warp == asleep) continue;
                present = thread;
                block_of_grid = group * cluster + thread->block->rank;
                swapcontext(&scheduler, &thread->context);
                if (failed) return 2;
                if (misaligned) return 3;
                if (!under_way.empty() && random() % 16 == 0) deliver_one();
            }
            waiting.erase(std::remove_if(waiting.begin(), waiting.end(), [](Thread* t) { return t->done; }), waiting.end());
            if (!progress && !under_way.empty()) deliver_one();
            if (!progress && !asleep) return 1;
            if (!progress) asleep = nullptr;
        }
        if (!under_way.empty()) return 2;  // a remote store to a thread block that has exited
        for (Block& block : blocks)
            if (std::any_of(block.memory + shared_bytes, block.memory + shared_bytes + BEYOND, [](int byte) { return byte != 0xFF; }))
                return 4;
    }
    return 0;
}

template <typename Value>
Value taken(const char*& from) {
    from = (const char*)(((uintptr_t)from + alignof(Value) - 1) & ~(uintptr_t)(alignof(Value) - 1));
    Value value;
    std::memcpy(&value, from, sizeof(Value));
    from += sizeof(Value);
    return value;
}

// The same with kernel arguments packed as the driver takes them.
template <typename... Types>
int run(void (*kernel)(Types...), const char* packed, int groups, int cluster, int threads, int shared_bytes, int seed) {
    std::tuple<Types...> arguments{taken<Types>(packed)...};
    return run(groups, cluster, threads, shared_bytes, seed, [&] { std::apply(kernel, arguments); });
}

}  // namespace simulated

inline struct { struct { operator int() const { return simulated::present->index; } } x; } threadIdx;
inline struct { struct { operator int() const { return simulated::block_of_grid; } } x; } blockIdx;

// Called by the sanitizer's instrumentation at an access that is not aligned; ends the thread.
extern "C" void __ubsan_handle_type_mismatch_v1_abort(void*, void*) {
    simulated::misaligned = true;
    swapcontext(&simulated::present->context, &simulated::scheduler);
    std::abort();
}

#define shared (simulated::present->block->memory)

inline void __syncwarp() { simulated::attend(simulated::present->warp->meeting); }
inline void __syncthreads() { simulated::attend(simulated::present->block->meeting); }
inline word __float_as_uint(float x) { word bits; std::memcpy(&bits, &x, 4); return bits; }
inline float __uint_as_float(word bits) { float x; std::memcpy(&x, &bits, 4); return x; }

inline word shared_address(const void* place) {
    auto& block = *simulated::present->block;
    return (word)block.rank << simulated::SHARED_BITS | (word)((unsigned char*)place - block.memory);
}

inline word rank_in_cluster() { return simulated::present->block->rank; }
inline void meet() { simulated::attend(simulated::cluster_meeting); }

inline word address_in(word rank, word address) {
    return rank << simulated::SHARED_BITS | (address & ((1u << simulated::SHARED_BITS) - 1));
}

inline void make_letterbox(word box) { *(simulated::Letterbox*)simulated::place(box) = {0, 0, 0}; }
inline void letterboxes_made() {}

inline void expect(word box, word bytes) {
    auto& letterbox = *(simulated::Letterbox*)simulated::place(box);
    if (letterbox.expected) throw std::runtime_error("a letterbox that expects two deliveries");
    letterbox.missing += bytes, letterbox.expected = 1;
    simulated::opened(letterbox);
}

inline void wait_for(word box, word parity) {
    simulated::wait_until([=] { return ((simulated::Letterbox*)simulated::place(box))->phase != parity; });
}

inline void deliver(word there, word box, word a, word b, word c, word d) {
    simulated::expect_aligned(simulated::place(there), 16);
    simulated::under_way.push_back({simulated::place(there), simulated::place(box), {a, b, c, d}});
}

inline float half_value(half_bits bits) {
    int exponent = bits >> 10 & 31, digits = bits & 1023;
    float size = exponent == 31 ? (digits ? NAN : INFINITY)
                 : exponent     ? std::ldexp((float)(digits + 1024), exponent - 25)
                                : std::ldexp((float)digits, -24);
    return bits & 0x8000 ? -size : size;
}

inline half_bits half_of(float x) {  // round to nearest, ties to even
    half_bits sign = std::signbit(x) ? 0x8000 : 0;
    float size = std::fabs(x);
    if (std::isnan(x)) return 0x7FFF;
    if (size >= 65520.0f) return sign | 0x7C00;
    int exponent = size < 0x1p-14f ? -14 : std::ilogb(size);
    int digits = (int)std::nearbyint(std::ldexp(size, 10 - exponent));  // 1024 to 2048; fewer below 2^-14
    return sign | (digits < 1024 ? digits : ((exponent + 14) << 10) + digits);
}

inline void multiply(float* sums, const word* a, uint2 b) {
    auto& thread = *simulated::present;
    auto& warp = *thread.warp;
    std::copy(a, a + 4, warp.a[thread.lane]);
    warp.b[thread.lane] = b;
    simulated::attend(warp.meeting);
    int g = thread.lane / 4, q = thread.lane % 4;
    for (int e = 0; e < 4; ++e) {
        int row = g + 8 * (e / 2), column = 2 * q + e % 2;
        double sum = sums[e];
        for (int k = 0; k < 16; ++k) {
            int holder = k % 8 / 2, high = k % 2;
            word left = warp.a[row % 8 * 4 + holder][row / 8 + 2 * (k / 8)];
            uint2 both = warp.b[column * 4 + holder];
            word right = k < 8 ? both.x : both.y;
            sum += (double)half_value(left >> 16 * high) * half_value(right >> 16 * high);
        }
        sums[e] = (float)sum;
    }
    simulated::attend(warp.meeting);
}

inline word as_tf32(float x) {  // round to nearest, ties away from zero
    word bits = __float_as_uint(x);
    return std::isfinite(x) ? (bits + 0x1000) & ~0x1FFFu : bits;
}

inline void multiply_tf32(float* sums, word a0, word a1, word a2, word a3, word b0, word b1) {
    auto& thread = *simulated::present;
    auto& warp = *thread.warp;
    word a[4] = {a0, a1, a2, a3};
    std::copy(a, a + 4, warp.a[thread.lane]);
    warp.b[thread.lane] = {b0, b1};
    simulated::attend(warp.meeting);
    auto value = [](word bits) {  // tensor cores ignore the last bits
        return (double)__uint_as_float(bits & ~0x1FFFu);
    };
    int g = thread.lane / 4, q = thread.lane % 4;
    for (int e = 0; e < 4; ++e) {
        int row = g + 8 * (e / 2), column = 2 * q + e % 2;
        double sum = sums[e];
        for (int k = 0; k < 8; ++k) {
            uint2 both = warp.b[column * 4 + k % 4];
            sum += value(warp.a[row % 8 * 4 + k % 4][row / 8 + 2 * (k / 4)]) * value(k < 4 ? both.x : both.y);
        }
        sums[e] = (float)sum;
    }
    simulated::attend(warp.meeting);
}

inline float reciprocal(float x) { return 1.0f / x; }
inline float power_of_two(float x) { return std::exp2(x); }
inline float exponential(float x) { return std::exp2(x * 1.4426950408889634f); }
inline float binary_logarithm(float x) { return std::log2(x); }
inline float exponential_of(float x) { return exponential(x); }
inline float binary_logarithm_of(float x) { return std::log2(x); }
inline float logarithm_of(float x) { return std::log(x); }
inline float infinity() { return INFINITY; }
inline float where_below(float x, float bound, float then, float otherwise) { return x < bound ? then : otherwise; }
inline float square_root(float x) { return std::sqrt(x); }
inline float squared_exponential(float x) { return std::exp2(x * 2.8853900817779268f); }
inline float smaller_of(float x, float y) { return std::isnan(x) || std::isnan(y) ? NAN : std::min(x, y); }
inline float larger_of(float x, float y) { return std::isnan(x) || std::isnan(y) ? NAN : std::max(x, y); }
inline word as_halves(float low, float high) { return half_of(low) | (word)half_of(high) << 16; }
inline word times_halves(word x, word y) {
    return as_halves(half_value(x) * half_value(y), half_value(x >> 16) * half_value(y >> 16));
}
inline word woven(word own, word other, bool upper) {
    return upper ? other >> 16 | (own & 0xFFFF0000u) : (own & 0xFFFFu) | other << 16;
}
inline word one_half(word both, bool upper) { return (upper ? both >> 16 : both & 0xFFFFu) * 0x10001u; }

inline word upper_halves(word low, word high) { return low >> 16 | (high & 0xFFFF0000u); }
inline word larger_halves(word x, word y) { return max(x & 0xFFFFu, y & 0xFFFFu) | max(x & 0xFFFF0000u, y & 0xFFFF0000u); }
inline float rounded_to_half(float x) { return half_value(half_of(x)); }

inline void fetch_aligned(word place, const void* from, int bytes) {
    simulated::expect_aligned(simulated::place(place), bytes);
    simulated::expect_aligned(from, bytes);
    simulated::ask_for({simulated::place(place), from, bytes});
}

inline void fetch(word place, const float* from) { fetch_aligned(place, from, 4); }
inline void fetch_four(word place, const float* from) { fetch_aligned(place, from, 16); }
inline void fetch_four(word place, const float16* from) { fetch_aligned(place, from, 8); }
inline void fetch_four(word place, const bfloat16* from) { fetch_aligned(place, from, 8); }

inline void end_of_fetches() { simulated::present->fetches.emplace_back(); }

template <int N>
void wait_for_fetches() {
    auto& groups = simulated::present->fetches;  // the last group is still open
    while ((int)groups.size() > N + 1) {
        for (auto& copy : groups.front()) simulated::arrive(copy);
        groups.erase(groups.begin());
    }
}

inline float value_of(float number) { return number; }
inline float value_of(float16 number) { return half_value(number.bits); }
inline float value_of(bfloat16 number) { return __uint_as_float((word)number.bits << 16); }

inline void store(float* to, float x) { *to = x; }
inline void store(float16* to, float x) { to->bits = half_of(x); }
inline void store(bfloat16* to, float x);

template <typename Number>
void store_two(Number* to, float x, float y) {
    simulated::expect_aligned(to, 2 * sizeof(Number));
    store(to, x), store(to + 1, y);
}

template <typename Number>
float2 two_values(const Number* numbers) {
    simulated::expect_aligned(numbers, 2 * sizeof(Number));
    return {value_of(numbers[0]), value_of(numbers[1])};
}

template <typename Number>
float4 four_values(const Number* numbers) {
    simulated::expect_aligned(numbers, 4 * sizeof(Number));
    return {value_of(numbers[0]), value_of(numbers[1]), value_of(numbers[2]), value_of(numbers[3])};
}

inline half_bits bfloat16_of(float x) {
    word bits = __float_as_uint(x);
    return std::isnan(x) ? 0x7FC0 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

inline void store(bfloat16* to, float x) { to->bits = bfloat16_of(x); }

inline void store_four(float* to, float4 four) { simulated::expect_aligned(to, 16); *(float4*)to = four; }

inline void store_four(float16* to, float4 four) {
    simulated::expect_aligned(to, 8);
    to[0] = {half_of(four.x)}, to[1] = {half_of(four.y)}, to[2] = {half_of(four.z)}, to[3] = {half_of(four.w)};
}

inline void store_four(bfloat16* to, float4 four) {
    simulated::expect_aligned(to, 8);
    to[0] = {bfloat16_of(four.x)}, to[1] = {bfloat16_of(four.y)}, to[2] = {bfloat16_of(four.z)}, to[3] = {bfloat16_of(four.w)};
}

inline uint4 from_memory(const uint4* place) { return *place; }

inline int pinned(int x) { return x; }
inline offset pinned(offset x) { return x; }

inline void read_again() {}

inline word from_partner(word value, int bits) {
    auto& thread = *simulated::present;
    thread.warp->exchanged[thread.lane] = value;
    simulated::attend(thread.warp->meeting);
    word found = thread.warp->exchanged[thread.lane ^ bits];
    simulated::attend(thread.warp->meeting);
    return found;
}

inline float from_partner(float value, int bits) { return __uint_as_float(from_partner(__float_as_uint(value), bits)); }

inline float from_lane(float value, int lane) {
    auto& thread = *simulated::present;
    return __uint_as_float(from_partner(__float_as_uint(value), thread.lane ^ lane));
}
