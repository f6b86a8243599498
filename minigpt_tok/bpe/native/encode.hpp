// From text to ids: windows of text, cut into pieces, looked up, merged where they are new.
//
// Text comes as UTF-8 in memory, or as the characters of a Python string, which are turned into UTF-8 a window at a time: the
// window stays in the processor's cache and no second copy of the text is made.
#pragma once

#include "cache.hpp"
#include "split.hpp"
#include "stop.hpp"
#include "vocab.hpp"

namespace minigpt {

// A growing array of ids with room to spare, so that 16 bytes may always be stored at its end.
template <class Id>
class Ids {
   public:
    Ids() = default;
    Ids(const Ids&) = delete;
    Ids& operator=(const Ids&) = delete;
    Ids& operator=(Ids&& other) noexcept {
        std::swap(data_, other.data_), std::swap(size_, other.size_), std::swap(room_, other.room_);
        return *this;
    }
    Ids(Ids&& other) noexcept : data_(other.data_), size_(other.size_), room_(other.room_) { other.data_ = nullptr, other.size_ = other.room_ = 0; }
    ~Ids() { std::free(data_); }

    void reserve_more(std::size_t ids) {
        if (size_ + ids + kSlack <= room_) return;
        const std::size_t room = std::max(size_ + ids + kSlack, room_ * 2);
        void* data = std::realloc(data_, room * sizeof(Id));
        if (!data) throw std::bad_alloc();
        data_ = static_cast<Id*>(data), room_ = room;
    }
    Id* end() { return data_ + size_; }
    void advance(std::size_t ids) { size_ += ids; }
    void append(const Id* ids, std::size_t count) {
        reserve_more(count);
        std::memcpy(end(), ids, count * sizeof(Id));
        size_ += count;
    }
    void clear() { size_ = 0; }
    const Id* data() const { return data_; }
    std::size_t size() const { return size_; }
    std::size_t room() const { return room_; }
    // The memory, cut to size; the caller frees it.
    Id* release() {
        void* data = std::realloc(data_, std::max<std::size_t>(size_, 1) * sizeof(Id));
        Id* ids = static_cast<Id*>(data ? data : data_);
        data_ = nullptr, size_ = room_ = 0;
        return ids;
    }

   private:
    static constexpr std::size_t kSlack = 16;
    Id* data_ = nullptr;
    std::size_t size_ = 0, room_ = 0;
};

// A text that cannot be encoded: Python finds out what is wrong with it and says so.
struct BadText {};

// What one thread needs to encode: its caches and scratch space. Results never depend on what it has seen before.
template <class Id>
class Worker {
   public:
    Worker(const Vocab& vocab, PatternChoice pattern, bool whole_piece)
        : vocab_(vocab), splitter_(pattern), whole_piece_(whole_piece) {}

    // While it lives, `go_on` is asked within long pieces too, which throw Stopped at a no.
    class Asking {
       public:
        Asking(Worker& worker, const GoOn& go_on) : worker_(worker) { worker_.asked_ = &go_on; }
        ~Asking() { worker_.asked_ = nullptr; }
        Asking(const Asking&) = delete;

       private:
        Worker& worker_;
    };

    // Gives back what only a very long piece has needed. The caches stay.
    void trim() {
        if (buffer_.size() + ends_.size() <= kKept) return;
        for (auto* one : {&ends_, &ids_, &units_}) std::vector<u32>().swap(*one);
        std::vector<u8>().swap(buffer_);
        splitter_ = Splitter(splitter_.choice());
    }

    static constexpr std::size_t kKept = std::size_t{1} << 20;
    static constexpr std::size_t kWindow = 16 << 10;  // bytes
    static constexpr std::size_t kRoom = 64;          // bytes behind a window that may be read, and mean nothing

    // Valid UTF-8. `go_on` is asked now and then; false stops early.
    template <class GoOn>
    void encode_utf8(const u8* s, std::size_t n, Ids<Id>& out, GoOn go_on) {
        std::size_t window = kWindow;
        for (std::size_t at = 0; at < n;) {
            std::size_t size = std::min(window, n - at);
            check_size(size);
            const bool last = at + size == n;
            const u8* from = s + at;
            if (last) {  // nothing may be read behind the text, so its end is copied to where there is room
                if (buffer_.size() < size + kRoom) buffer_.resize(size + kRoom);
                std::memcpy(buffer_.data(), from, size);
                from = buffer_.data();
            } else {
                while (is_continuation(s[at + size])) --size;
            }
            const std::size_t done = encode_window(from, size, last, out);
            window = done ? kWindow : window * 2;  // a piece longer than the window: look at more
            at += done;
            if (!go_on()) return;
        }
    }

    // The code points of a Python string, 1, 2 or 4 bytes each.
    template <class Char, class GoOn>
    void encode_characters(const Char* s, std::size_t n, Ids<Id>& out, GoOn go_on) {
        std::size_t held = 0;  // bytes in the buffer that belong to no piece yet
        std::size_t take = kWindow;
        for (std::size_t at = 0; at < n;) {
            take = std::min(std::max(take, held / 4), n - at);
            if (buffer_.size() < held + take * 4 + kRoom) buffer_.resize(held + take * 4 + kRoom);
            u8* const end = to_utf8(s + at, take, buffer_.data() + held);
            at += take;
            const std::size_t size = static_cast<std::size_t>(end - buffer_.data());
            const std::size_t done = encode_window(buffer_.data(), size, at == n, out);
            held = size - done;
            std::memmove(buffer_.data(), buffer_.data() + done, held);
            take = done ? kWindow : take * 2;
            if (!go_on()) return;
        }
    }

    // One piece as it is, for patterns that are not cut here.
    void encode_piece(const u8* s, std::size_t n, Ids<Id>& out) {
        out.reserve_more(n);
        if (buffer_.size() < n + kRoom) buffer_.resize(n + kRoom);
        std::memcpy(buffer_.data(), s, n);
        if (n) piece(buffer_.data(), n, out);
    }

   private:
    const Vocab& vocab_;
    Splitter splitter_;
    bool whole_piece_;
    LineTable<u64> short_;                   // pieces of up to 8 bytes
    LineTable<std::array<u64, 2>> middle_;  // of 9 to 16
    LongCache<Id> long_;
    std::vector<u32> ends_, ids_, units_;
    std::vector<u8> buffer_;
    const GoOn* asked_ = nullptr;

    static constexpr std::size_t kLongPiece = 256;  // bytes; a longer one is cut where no token reaches across

    // Places in a window have 32 bits; a window is longer than kWindow only where a piece is.
    static void check_size(std::size_t n) {
        if (n > 0xFFFFFF00) throw std::overflow_error("a piece of the text is longer than 4 GiB, the most that can be merged");
    }

    // Encodes the pieces that a window decides, and gives the end of the last of them. `s` has room for 16 bytes more.
    std::size_t encode_window(const u8* s, std::size_t n, bool last, Ids<Id>& out) {
        check_size(n);
        const std::size_t room = (splitter_.choice().pattern == Pattern::none ? 1 : n) + 2;
        if (ends_.size() < room) ends_.resize(room);
        ends_[0] = 0;
        u32* const ends = ends_.data() + 1;  // so that a piece begins at ends[i - 1]
        const std::size_t count = splitter_.cut(s, n, last, ends);
        out.reserve_more(n);
        if (splitter_.has_nul())
            for (std::size_t i = 0; i < count; ++i) piece(s + ends[i - 1], ends[i] - ends[i - 1], out);
        else
            for (std::size_t i = 0; i < count; i += kStride) encode_stride(s, ends + i, std::min(kStride, count - i), out);
        return ends_[count];
    }

    // Some pieces at a time, in passes without a branch that could be guessed wrong: keys, and where they will be looked for,
    // so that those lines are on their way from memory; what is there; and the ids in order. What is new is learned last.
    static constexpr std::size_t kStride = 128;

    void encode_stride(const u8* s, const u32* ends, std::size_t count, Ids<Id>& out) {
        u64 keys[kStride], values[kStride];
        u32 lines[kStride];
        u16 short_ones[kStride], others[kStride];
        std::size_t shorts = 0, longer = 0;
        for (std::size_t k = 0; k < count; ++k) {
            const std::size_t start = ends[k - 1], length = ends[k] - start;  // NOLINT: ends[-1] is the start of the first
            keys[k] = first_bytes(s + start, length);
            const std::size_t line = short_.line(keys[k]);
            lines[k] = static_cast<u32>(line);
            short_.prefetch(line);
            short_ones[shorts] = others[longer] = static_cast<u16>(k);
            shorts += length <= 8;
            longer += length > 8;
        }
        for (std::size_t i = 0; i < longer; ++i) {
            const std::size_t k = others[i], start = ends[k - 1], length = ends[k] - start;
            const std::size_t line = middle_.line({keys[k], first_bytes(s + start + 8, std::min<std::size_t>(length - 8, 8))});
            lines[k] = static_cast<u32>(line);
            middle_.prefetch(line);
        }
        for (std::size_t i = 0; i < shorts; ++i) values[short_ones[i]] = short_.find(keys[short_ones[i]], lines[short_ones[i]]);
        for (std::size_t i = 0; i < longer; ++i) {
            const std::size_t k = others[i], start = ends[k - 1], length = ends[k] - start;
            values[k] = length > 16 ? kUnknown : middle_.find({keys[k], first_bytes(s + start + 8, length - 8)}, lines[k]);
        }
        Id* to = out.end();
        for (std::size_t k = 0; k < count; ++k) {
            if (values[k] != kUnknown) [[likely]] {
                Packed<Id>::store(values[k], to);
                to += values[k] >> Packed<Id>::kCountShift;
            } else {
                out.advance(static_cast<std::size_t>(to - out.end()));
                piece(s + ends[k - 1], ends[k] - ends[k - 1], out);
                to = out.end();
            }
        }
        out.advance(static_cast<std::size_t>(to - out.end()));
    }

    // The first bytes of a piece in a word, at most 8, the rest zero.
    static u64 first_bytes(const u8* s, std::size_t n) {
        u64 word;
        std::memcpy(&word, s, 8);
        return n >= 8 ? word : word & ~(~u64{0} << (n * 8));
    }

    // One piece that is not in the first table, or any other piece. `s` has room for 16 bytes more.
    void piece(const u8* s, std::size_t n, Ids<Id>& out) {
        // A part of a piece is no piece: where whole pieces are looked up, a long one stays whole.
        if (n > kLongPiece) return whole_piece_ ? merge(s, n, out) : parts(s, n, out);
        if (n > 16) return static_cast<void>(long_piece(s, n, out));
        if (std::memchr(s, 0, n)) return merge(s, n, out);
        if (n <= 8) {
            const u64 key = first_bytes(s, n);
            if (const u64 value = short_.find(key, short_.line(key)); value != kUnknown) return emit(value, out);
            learn(short_, key, s, n, out);
        } else {
            const std::array<u64, 2> key{first_bytes(s, 8), first_bytes(s + 8, n - 8)};
            if (const u64 value = middle_.find(key, middle_.line(key)); value != kUnknown) return emit(value, out);
            learn(middle_, key, s, n, out);
        }
    }

    static void emit(u64 value, Ids<Id>& out) {
        Packed<Id>::store(value, out.end());
        out.advance(value >> Packed<Id>::kCountShift);
    }

    template <class Key>
    void learn(LineTable<Key>& table, const Key& key, const u8* s, std::size_t n, Ids<Id>& out) {
        if (!long_piece(s, n, out) && ids_.size() <= Packed<Id>::kMost)
            table.insert(key, Packed<Id>::pack(ids_.data(), ids_.size()));
    }

    // A piece that has no place in a line: long, or of many ids. Whether it was known; new short ones of few ids are not kept.
    bool long_piece(const u8* s, std::size_t n, Ids<Id>& out) {
        const std::string_view text(reinterpret_cast<const char*>(s), n);
        const u64 hash = hash_text(text);
        typename LongCache<Id>::Found found;
        if (long_.find(text, hash, found)) {
            std::memcpy(out.end(), found.ids, found.count * sizeof(Id));
            out.advance(found.count);
            return true;
        }
        merge(s, n, out);
        if (n > 16 || ids_.size() > Packed<Id>::kMost) long_.insert(text, hash, ids_.data(), ids_.size());
        return false;
    }

    void merge(const u8* s, std::size_t n, Ids<Id>& out) {
        ids_.clear();
        if (!vocab_.encode({reinterpret_cast<const char*>(s), n}, ids_, units_, asked_)) throw BadText();
        Id* end = out.end();
        for (const u32 id : ids_) *end++ = static_cast<Id>(id);
        out.advance(ids_.size());
    }

    // A long piece, cut where no token reaches across.
    void parts(const u8* s, std::size_t n, Ids<Id>& out) {
        std::size_t start = 0, parts = 0;
        for (std::size_t at = 0; at < n;) {
            const std::size_t next = at + (vocab_.characters() ? utf8_length(s[at]) : 1);
            if (next >= n || !vocab_.may_join(s + at, s + next)) {
                const std::size_t size = next - start;
                size > kLongPiece ? merge(s + start, size, out) : piece(s + start, size, out);
                start = next;
                if (++parts % 1024 == 0) ask(asked_);
            }
            at = next;
        }
    }

    static u8* to_utf8(const u8* s, std::size_t n, u8* out) {
        for (std::size_t i = 0; i < n; ++i) out = encode_utf8_char(s[i], out);
        return out;
    }
    static u8* to_utf8(const u16* s, std::size_t n, u8* out) {
        std::size_t i = 0;
        while (i < n) {
#ifdef __SSE2__
            for (; i + 16 <= n; i += 16, out += 16) {  // sixteen ASCII characters at a time
                const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(s + i));
                const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(s + i + 8));
                const __m128i high = _mm_and_si128(_mm_or_si128(a, b), _mm_set1_epi16(static_cast<short>(0xFF80)));
                if (_mm_movemask_epi8(_mm_cmpeq_epi16(high, _mm_setzero_si128())) != 0xFFFF) break;
                _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_packus_epi16(a, b));
            }
#endif
            for (const std::size_t stop = std::min(n, i + 16); i < stop; ++i) out = encode_utf8_char(s[i], out);
        }
        return out;
    }
    static u8* to_utf8(const u32* s, std::size_t n, u8* out) {
        for (std::size_t i = 0; i < n; ++i) out = encode_utf8_char(s[i], out);
        return out;
    }
    static u8* encode_utf8_char(u32 c, u8* out) {
        if (c - 0xD800 < 0x800) throw BadText();  // a lone surrogate
        return minigpt::encode_utf8(c, out);
    }
};

}  // namespace minigpt
