// UTF-8 and the Unicode classes that the patterns speak of.
//
// The class table is not compiled in: Python hands over the ranges of minigpt_tok/bpe/unicode_classes.py when the module
// loads, so the reference and this core can never disagree about a code point.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#ifdef __SSE2__
#include <immintrin.h>
#endif

static_assert(std::endian::native == std::endian::little, "the packed keys and bitmaps assume little-endian words");

namespace minigpt {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

// What a code point is, as flags. No flag: "other", [^\s\p{L}\p{N}] without marks.
enum Class : u8 {
    kLetter = 1,      // L*
    kNumber = 2,      // N*
    kSpace = 4,       // White_Space
    kNotSmall = 8,    // Lu, Lt, Lm, Lo, M*
    kNotCapital = 16  // Ll, Lm, Lo, M*
};

// Code point -> flags: a plain table for the first plane, two stages beyond (blocks of 128 code points, equal ones stored once).
class ClassTable {
   public:
    void assign(const std::vector<u8>& flags) {  // one entry for each of 0x110000 code points
        plane_.assign(flags.begin(), flags.begin() + kPlane);
        blocks_.clear();
        for (std::size_t block = 0; block < kBlocks; ++block) {
            const u8* entries = flags.data() + kPlane + block * kBlock;
            std::size_t at = 0;
            while (at < blocks_.size() && std::memcmp(blocks_.data() + at, entries, kBlock) != 0) at += kBlock;
            if (at == blocks_.size()) blocks_.insert(blocks_.end(), entries, entries + kBlock);
            index_[block] = static_cast<u32>(at);
        }
    }
    u8 operator[](u32 code_point) const {
        if (code_point < kPlane) return plane_[code_point];
        return blocks_[index_[(code_point - kPlane) >> kShift] + (code_point & (kBlock - 1))];
    }

   private:
    static constexpr unsigned kShift = 7;
    static constexpr std::size_t kBlock = 1 << kShift, kPlane = 0x10000;
    static constexpr std::size_t kBlocks = (0x110000 - kPlane) >> kShift;
    std::vector<u8> plane_ = std::vector<u8>(kPlane);
    std::array<u32, kBlocks> index_{};
    std::vector<u8> blocks_ = std::vector<u8>(kBlock);
};

inline ClassTable& classes() {
    static ClassTable& table = *new ClassTable;  // never freed: a thread may still be cutting text when the process ends
    return table;
}

inline bool is_continuation(u8 byte) { return (byte & 0xC0) == 0x80; }

// Bytes of the character that starts with `lead` (of valid UTF-8).
inline unsigned utf8_length(u8 lead) { return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4; }

// The character at `s`, of valid UTF-8.
inline u32 decode_utf8(const u8* s) {
    if (s[0] < 0x80) return s[0];
    if (s[0] < 0xE0) return (s[0] & 0x1Fu) << 6 | (s[1] & 0x3Fu);
    if (s[0] < 0xF0) return (s[0] & 0x0Fu) << 12 | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3Fu);
    return (s[0] & 0x07u) << 18 | (s[1] & 0x3Fu) << 12 | (s[2] & 0x3Fu) << 6 | (s[3] & 0x3Fu);
}

constexpr std::size_t kValid = static_cast<std::size_t>(-1);

// How many of the bytes from s[i] to s[n] are ASCII before the first that is not.
inline std::size_t ascii_run(const u8* s, std::size_t i, std::size_t n) {
    const std::size_t from = i;
#if defined(__AVX512BW__)
    for (; i + 64 <= n; i += 64)
        if (const u64 beyond = _mm512_movepi8_mask(_mm512_loadu_si512(s + i))) return i - from + std::countr_zero(beyond);
#elif defined(__AVX2__)
    for (; i + 32 <= n; i += 32)
        if (const int beyond = _mm256_movemask_epi8(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(s + i))))
            return i - from + std::countr_zero(static_cast<u32>(beyond));
#endif
    for (u64 word; i + 8 <= n; i += 8)
        if (std::memcpy(&word, s + i, 8), word &= 0x8080808080808080u) return i - from + std::countr_zero(word) / 8;
    while (i < n && s[i] < 0x80) ++i;
    return i - from;
}

// The offset of the first byte that is not UTF-8, or kValid. Runs of ASCII by vectors, else by the standard's table.
inline std::size_t first_invalid_utf8(const u8* s, std::size_t n) {
    std::size_t i = 0;
    while (i < n) {
        if (s[i] < 0x80) {
            i += ascii_run(s, i, n);
            continue;
        }
        const u8 lead = s[i];
        const unsigned length = utf8_length(lead);
        if (lead < 0xC2 || lead > 0xF4 || i + length > n) return i;
        const u8 low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
        const u8 high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
        if (s[i + 1] < low || s[i + 1] > high) return i;
        for (unsigned k = 2; k < length; ++k)
            if (!is_continuation(s[i + k])) return i;
        i += length;
    }
    return kValid;
}

}  // namespace minigpt
