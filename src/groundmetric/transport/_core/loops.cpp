#include "loops.hpp"

#include <cstdlib>
#include <string_view>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define ISA baseline
#define NAME "baseline"
#define LANES 4
#define TARGET
#include "loops_isa.inc"
#undef ISA
#undef NAME
#undef LANES
#undef TARGET

#if defined(__x86_64__)
#define ISA avx2
#define NAME "avx2"
#define LANES 8
#define TARGET __attribute__((target("avx2")))
#include "loops_isa.inc"
#undef ISA
#undef NAME
#undef LANES
#undef TARGET

#define ISA avx512
#define NAME "avx512"
#define LANES 16
#define TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl")))
#include "loops_isa.inc"
#endif

namespace groundmetric {

#if defined(__x86_64__)
struct Supported {
    bool avx2 = false, avx512 = false;
};

/// Instruction sets that the processor has and whose registers the operating system saves.
/// (`__builtin_cpu_supports` and `target_clones` do not link into a shared library under zig.)
static Supported supported() {
    unsigned a, b, c, d, saved, unused;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return {};
    __asm__("xgetbv" : "=a"(saved), "=d"(unused) : "c"(0));
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return {};
    constexpr unsigned wide = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
    return {(saved & 0x06) == 0x06 && (b & bit_AVX2), (saved & 0xe6) == 0xe6 && (b & wide) == wide};
}
#endif

static const Loops& choose() {
    const char* requested = std::getenv("GROUNDMETRIC_ISA");
    [[maybe_unused]] const std::string_view name = requested ? requested : "";
#if defined(__x86_64__)
    const Supported has = supported();
    if (has.avx512 && (name.empty() || name == "avx512")) return avx512::kLoops;
    if (has.avx2 && name != "baseline") return avx2::kLoops;
#endif
    return baseline::kLoops;
}

const Loops& loops() {
    static const Loops& chosen = choose();
    return chosen;
}

}  // namespace groundmetric
