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
    u64 beyond;                                                          // not ASCII
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
        else if (c >= 0x80) m.beyond |= bit;
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
        spill_ = {};
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

    struct Bits {
        u64 letter = 0, number = 0, space = 0, not_small = 0, not_capital = 0, continuation = 0;
    };
    Bits spill_;  // of a character that began in the word before

    void fill_word(const u8* s, const u8* block, std::size_t word, u64 valid, bool by_case) {
        const BlockMasks m = masks(block);
        Bits bits = spill_;
        spill_ = {};
        if (m.beyond) beyond_ascii(s, word, m.beyond, bits);
        nul |= (m.nul & valid) != 0;
        bits.letter |= m.small | m.capital;
        bits.number |= m.number;
        bits.space |= m.space;
        letter[word] = bits.letter;
        number[word] = bits.number;
        space[word] = bits.space;
        other[word] = valid & ~(bits.letter | bits.number | bits.space);
        blank[word] = m.blank;
        newline[word] = m.newline;
        continuation[word] = bits.continuation;
        apostrophe[word] = m.apostrophe;
        if (by_case) {
            not_small[word] = bits.not_small | m.capital;
            not_capital[word] = bits.not_capital | m.small;
        }
    }

    void beyond_ascii(const u8* s, std::size_t word, u64 beyond, Bits& bits) {
        const ClassTable& table = classes();
        for (u64 left = beyond; left; left &= left - 1) {
            const unsigned k = static_cast<unsigned>(std::countr_zero(left));
            const u8* p = s + word * 64 + k;
            if (*p < 0xC0) continue;  // a continuation byte
            const unsigned length = utf8_length(*p);
            const u8 flags = table[decode_utf8(p)];
            const u64 run = (u64{1} << length) - 1;
            const u64 here = run << k;
            const u64 next = k + length > 64 ? run >> (64 - k) : 0;
            bits.continuation |= here & (here << 1);
            spill_.continuation |= next;
            if (!flags) continue;
            const auto set = [&](u64 Bits::*map, u8 flag) {
                const u64 on = flags & flag ? ~u64{0} : 0;
                bits.*map |= here & on;
                spill_.*map |= next & on;
            };
            set(&Bits::letter, kLetter);
            set(&Bits::number, kNumber);
            set(&Bits::space, kSpace);
            set(&Bits::not_small, kNotSmall);
            set(&Bits::not_capital, kNotCapital);
            wide_space |= (flags & kSpace) != 0;
        }
    }
};

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
