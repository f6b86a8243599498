// One bit a byte: which bytes of a text belong to letters, numbers, white space, and so on.
//
// Everything Unicode happens here, once: the bytes of a character outside ASCII all get its class, so the scanners of
// split.hpp look for the ends of runs of bits and need not know what a character is. Cost: 64 bytes of ASCII take some
// ten vector instructions (AVX-512 or AVX2, as this file is compiled; elsewhere byte by byte); a character outside ASCII
// takes one table lookup.
#pragma once

#include "text.hpp"

namespace minigpt {

// The masks of 64 bytes; bit k is byte k.
struct BlockMasks {
    u64 small, capital, number, space, blank, newline, apostrophe, nul;  // blank is U+0020, newline \n or \r
    u64 beyond, lead;  // not ASCII, and the first bytes of such characters
};

#if defined(__AVX512BW__)
inline BlockMasks masks(const u8* s) {
    const __m512i c = _mm512_loadu_si512(s);
    const auto below = [&](char first, char count) {
        return _mm512_cmplt_epu8_mask(_mm512_sub_epi8(c, _mm512_set1_epi8(first)), _mm512_set1_epi8(count));
    };
    BlockMasks m;
    m.small = below('a', 26);
    m.capital = below('A', 26);
    m.number = below('0', 10);
    m.blank = _mm512_cmpeq_epi8_mask(c, _mm512_set1_epi8(' '));
    m.space = below(9, 5) | m.blank;
    m.newline = _mm512_cmpeq_epi8_mask(c, _mm512_set1_epi8('\n')) | _mm512_cmpeq_epi8_mask(c, _mm512_set1_epi8('\r'));
    m.apostrophe = _mm512_cmpeq_epi8_mask(c, _mm512_set1_epi8('\''));
    m.nul = _mm512_testn_epi8_mask(c, c);
    m.beyond = _mm512_movepi8_mask(c);
    m.lead = _mm512_cmpge_epu8_mask(c, _mm512_set1_epi8(static_cast<char>(0xC0)));
    return m;
}
#elif defined(__AVX2__)
inline BlockMasks masks(const u8* s) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(s));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(s + 32));
    const auto bits = [](__m256i a, __m256i b) {
        return static_cast<u64>(static_cast<u32>(_mm256_movemask_epi8(a))) |
               static_cast<u64>(static_cast<u32>(_mm256_movemask_epi8(b))) << 32;
    };
    // Unsigned c - first < count: the smaller of it and count - 1 is itself.
    const auto below = [&](char first, char count) {
        const __m256i f = _mm256_set1_epi8(first), last = _mm256_set1_epi8(static_cast<char>(count - 1));
        const __m256i a = _mm256_sub_epi8(low, f), b = _mm256_sub_epi8(high, f);
        return bits(_mm256_cmpeq_epi8(_mm256_min_epu8(a, last), a), _mm256_cmpeq_epi8(_mm256_min_epu8(b, last), b));
    };
    const auto equal = [&](char value) {
        const __m256i v = _mm256_set1_epi8(value);
        return bits(_mm256_cmpeq_epi8(low, v), _mm256_cmpeq_epi8(high, v));
    };
    BlockMasks m;
    m.small = below('a', 26);
    m.capital = below('A', 26);
    m.number = below('0', 10);
    m.blank = equal(' ');
    m.space = below(9, 5) | m.blank;
    m.newline = equal('\n') | equal('\r');
    m.apostrophe = equal('\'');
    m.nul = equal(0);
    m.beyond = bits(low, high);
    const __m256i least = _mm256_set1_epi8(static_cast<char>(0xC0));
    m.lead = bits(_mm256_cmpeq_epi8(_mm256_max_epu8(low, least), low), _mm256_cmpeq_epi8(_mm256_max_epu8(high, least), high));
    return m;
}
#else
inline BlockMasks masks(const u8* s) {
    BlockMasks m{};
    for (unsigned k = 0; k < 64; ++k) {
        const u8 c = s[k];
        const u64 bit = u64{1} << k;
        if (static_cast<u8>(c - 'a') < 26) m.small |= bit;
        else if (static_cast<u8>(c - 'A') < 26) m.capital |= bit;
        else if (c == ' ') m.space |= bit, m.blank |= bit;
        else if (static_cast<u8>(c - '0') < 10) m.number |= bit;
        else if (c == '\n' || c == '\r') m.space |= bit, m.newline |= bit;
        else if (static_cast<u8>(c - 9) < 5) m.space |= bit;
        else if (c == '\'') m.apostrophe |= bit;
        else if (c == 0) m.nul |= bit;
        else if (c >= 0x80) m.beyond |= bit, m.lead |= c >= 0xC0 ? bit : 0;
    }
    return m;
}
#endif

// The bitmaps of one window of text. Words past the text's end are zero, so that every run ends there.
class Bitmaps {
   public:
    std::vector<u64> letter, number, space, other, blank, newline, apostrophe;
    std::vector<u64> continuation;            // all bytes of a character but its first
    std::vector<u64> not_small, not_capital;  // filled only where asked for (o200k)
    bool wide_space = false;                  // white space outside ASCII is among it
    bool nul = false;                         // a byte 0 is among it

    // `s` must be valid UTF-8 that ends with a whole character.
    void fill(const u8* s, std::size_t n, bool by_case) {
        const std::size_t words = n / 64 + 2;
        if (letter.size() < words)
            for (auto* map : all()) map->resize(words);
        wide_space = nul = false;
        std::size_t word = 0;
        for (; (word + 1) * 64 <= n; ++word) fill_word(s, s + word * 64, word, ~u64{0}, by_case);
        const std::size_t rest = n - word * 64;
        alignas(64) u8 tail[64] = {};
        std::memcpy(tail, s + word * 64, rest);
        fill_word(s, tail, word, rest ? ~u64{0} >> (64 - rest) : 0, by_case);
        for (auto* map : all()) (*map)[word + 1] = 0;
    }

   private:
    std::array<std::vector<u64>*, 10> all() {
        return {&letter, &number, &space, &other, &blank, &newline, &apostrophe, &continuation, &not_small, &not_capital};
    }

    void fill_word(const u8* s, const u8* block, std::size_t word, u64 valid, bool by_case) {
        const BlockMasks m = masks(block);
        nul |= (m.nul & valid) != 0;
        letter[word] = m.small | m.capital;
        number[word] = m.number;
        space[word] = m.space;
        blank[word] = m.blank;
        newline[word] = m.newline;
        apostrophe[word] = m.apostrophe;
        continuation[word] = m.beyond & ~m.lead;
        if (by_case) not_small[word] = m.capital, not_capital[word] = m.small;
        if (m.beyond) beyond_ascii(s, word, m.lead, by_case);
        other[word] = valid & ~(letter[word] | number[word] | space[word]);
    }

    // Classes of the characters whose first bytes are `lead`, and of the rest of the character that the word begins within.
    void beyond_ascii(const u8* s, std::size_t word, u64 lead, bool by_case) {
        const ClassTable& table = classes();
        const auto each = [&](const auto& use) {
            for (u64 left = lead; left; left &= left - 1) {
                const int k = std::countr_zero(left);
                use(u64{table[decode_utf8(s + word * 64 + k)]}, k);
            }
        };
        static_assert(kLetter == 1 && kNumber == 2 && kSpace == 4 && kNotSmall == 8 && kNotCapital == 16);
        u64 l = 0, n = 0, w = 0, small = 0, capital = 0, any = 0;
        each([&](u64 flags, int k) { l |= (flags & 1) << k, any |= flags; });
        if (any & (kNumber | kSpace)) each([&](u64 flags, int k) { n |= (flags >> 1 & 1) << k, w |= (flags >> 2 & 1) << k; });
        if (by_case) each([&](u64 flags, int k) { small |= (flags >> 3 & 1) << k, capital |= (flags >> 4 & 1) << k; });
        wide_space |= w != 0;
        // All bytes of a character get what its first byte has.
        const auto spread = [&](std::vector<u64>& map, u64 first) {
            const u64 before = word ? map[word - 1] >> 63 : 0;
            for (int byte = 1; byte < 4; ++byte) first |= (first << 1 | before) & continuation[word];
            map[word] |= first;
        };
        spread(letter, l), spread(number, n), spread(space, w);
        if (by_case) spread(not_small, small), spread(not_capital, capital);
    }
};

// Writes base + the places of the bits, ascending, and gives how many there are. `to` must have room for kPlacesRoom more.
constexpr std::size_t kPlacesRoom = 16;
inline std::size_t write_places(u64 bits, u32 base, u32* to) {
#if defined(__AVX512F__)
    u32* const start = to;
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (u32 k = 0; k < 64; k += 16) {
        const auto mask = static_cast<__mmask16>(bits >> k);
        const __m512i places = _mm512_add_epi32(first, _mm512_set1_epi32(static_cast<int>(base + k)));
        _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(mask, places));
        to += std::popcount(mask);
    }
    return static_cast<std::size_t>(to - start);
#else
    // Eight at a time, wanted or not: how often the loop is gone through is guessed right more often than where it ends.
    const auto count = static_cast<std::size_t>(std::popcount(bits));
    for (std::size_t done = 0; done < count; done += 8)
        for (std::size_t k = done; k < done + 8; ++k, bits &= bits - 1) to[k] = base + static_cast<u32>(std::countr_zero(bits));
    return count;
#endif
}

// The first position from `p` on whose bit is 0.
inline std::size_t run_end(const std::vector<u64>& map, std::size_t p) {
    for (;;) {
        u64 word = ~map[p / 64] >> (p % 64);
        if (word) return p + static_cast<std::size_t>(std::countr_zero(word));
        p = (p / 64 + 1) * 64;
    }
}

inline bool bit(const std::vector<u64>& map, std::size_t p) { return map[p / 64] >> (p % 64) & 1; }

}  // namespace minigpt
