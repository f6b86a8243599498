// Counting pieces: how often each distinct piece occurs, and in which order they were first seen.
//
// A piece of up to 15 bytes is its own key, with its length in the sixteenth byte; longer ones have their text in an arena. A
// table belongs to one thread; tables of several threads are joined afterwards, exactly, since every entry knows where in the
// text it was first seen. Memory: 32 bytes for each slot, at most two thirds of them in use; no more when it is put in order,
// which is done in its place. Where memory is limited, full tables go to temporary files as sorted runs and are merged, exactly.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

#include "cache.hpp"
#include "split.hpp"
#include "stop.hpp"

namespace minigpt {

// A distinct piece with its count; `first` orders pieces by where they were first seen.
struct Counted {
    std::string_view piece;
    std::int64_t count;
    u64 first;
};

// What of two words belongs to a piece of each length up to 15.
struct KeyMasks {
    u64 low[16], high[16];
    constexpr KeyMasks() : low(), high() {
        for (unsigned n = 0; n < 16; ++n) {
            low[n] = n >= 8 ? ~u64{0} : (u64{1} << (n * 8)) - 1;
            high[n] = n > 8 ? (u64{1} << ((n - 8) * 8)) - 1 : 0;
        }
    }
};
inline constexpr KeyMasks kMasks;

enum class Order { bytes, first_seen };

inline bool before(Order order, const Counted& a, const Counted& b) { return order == Order::bytes ? a.piece < b.piece : a.first < b.first; }

class PieceTable {
   public:
    PieceTable() : slots_(kFewest) {}

    // Counts pieces that lie end to end in `s`, which has room for 16 bytes more; the first is number `first` of the text.
    void add(const u8* s, const u32* ends, std::size_t count, u64 first) {
        constexpr std::size_t kStride = 64;
        u64 lows[kStride], highs[kStride];
        for (std::size_t i = 0; i < count; i += kStride) {
            const std::size_t here = std::min(kStride, count - i);
            if ((used_ + here) * 3 > slots_.size() * 2) grow();
            std::size_t from = i ? ends[i - 1] : 0;
            for (std::size_t k = 0; k < here; ++k) {
                const std::size_t length = ends[i + k] - from;
                short_key(s + from, length, lows[k], highs[k]);
                __builtin_prefetch(&slots_[home(lows[k], highs[k])]);
                from = ends[i + k];
            }
            from = i ? ends[i - 1] : 0;
            for (std::size_t k = 0; k < here; ++k) {
                const std::size_t length = ends[i + k] - from;
                if (length <= kShort) [[likely]] add_short(lows[k], highs[k], 1, first + i + k);
                else add_long({reinterpret_cast<const char*>(s + from), length}, 1, first + i + k);
                from = ends[i + k];
            }
        }
    }

    // Adds a piece that has been counted before.
    void add(const Counted& one) {
        if ((used_ + 1) * 3 > slots_.size() * 2) grow();
        if (one.piece.size() > kShort) return add_long(one.piece, one.count, one.first);
        u8 text[kShort + 1] = {};
        std::memcpy(text, one.piece.data(), one.piece.size());
        u64 low, high;
        short_key(text, one.piece.size(), low, high);
        add_short(low, high, one.count, one.first);
    }

    // Adds what another table has counted. If it is told to stop, this one is no use any more.
    void join(const PieceTable& other, const GoOn* go_on) {
        std::size_t steps = 0;
        for (const Slot& slot : other.slots_) {
            if (++steps % 4096 == 0) ask(go_on);
            if (slot.count) add(other.counted(slot));
        }
    }

    // Puts the pieces in order, in the table's own memory. From then on they can be read, and none can be added.
    void put_in_order(Order order, const GoOn* go_on) {
        std::erase_if(slots_, [](const Slot& slot) { return !slot.count; });
        std::size_t steps = 0;
        std::sort(slots_.begin(), slots_.end(), [&](const Slot& a, const Slot& b) {
            if (++steps % 65536 == 0) ask(go_on);
            return before(order, counted(a), counted(b));
        });
    }
    Counted operator[](std::size_t i) const { return counted(slots_[i]); }  // in that order
    std::size_t size() const { return used_; }

    // Bytes that the table takes at most while `more` pieces are added; while it doubles, the old one is there too.
    std::size_t memory_for(std::size_t more) const {
        std::size_t slots = slots_.size(), old = 0;
        for (; (used_ + more) * 3 > slots * 2; slots *= 2) old = slots;
        return (slots + old) * sizeof(Slot) + arena_.capacity();
    }

   private:
    static constexpr std::size_t kFewest = 1 << 12, kShort = 15;
    static constexpr u64 kLongMark = 0xFF;

    struct Slot {
        u64 low = 0, high = 0;  // the bytes and, on top, the length; or: where the text is, its length, kLongMark
        std::int64_t count = 0;
        u64 first = 0;
    };
    std::vector<Slot> slots_;
    std::size_t used_ = 0;
    std::string arena_;

    static void short_key(const u8* s, std::size_t n, u64& low, u64& high) {
        std::memcpy(&low, s, 8);
        std::memcpy(&high, s + 8, 8);
        n = std::min<std::size_t>(n, 15);
        low &= kMasks.low[n];
        high = (high & kMasks.high[n]) | u64{n} << 56;
    }
    std::size_t home(u64 low, u64 high) const {
        return (low * 0x9E3779B97F4A7C15u + high * 0xD6E8FEB86659FD93u) >> (64 - static_cast<unsigned>(std::countr_zero(slots_.size())));
    }

    void add_short(u64 low, u64 high, std::int64_t count, u64 first) {
        for (std::size_t i = home(low, high);; i = (i + 1) & (slots_.size() - 1)) {
            Slot& slot = slots_[i];
            if (slot.low == low && slot.high == high) [[likely]] {
                slot.count += count;
                slot.first = std::min(slot.first, first);
                return;
            }
            if (!slot.count) {
                slot = {low, high, count, first};
                ++used_;
                return;
            }
        }
    }

    void add_long(std::string_view piece, std::int64_t count, u64 first) {
        const u64 hash = hash_text(piece);
        for (std::size_t i = home(hash, kLongMark << 56);; i = (i + 1) & (slots_.size() - 1)) {
            Slot& slot = slots_[i];
            if (!slot.count) {
                slot = {arena_.size(), kLongMark << 56 | piece.size(), count, first};
                arena_.append(piece);
                ++used_;
                return;
            }
            if (slot.high == (kLongMark << 56 | piece.size()) && text_of(slot) == piece) {
                slot.count += count;
                slot.first = std::min(slot.first, first);
                return;
            }
        }
    }

    Counted counted(const Slot& slot) const { return {text_of(slot), slot.count, slot.first}; }
    std::string_view text_of(const Slot& slot) const {
        if (slot.high >> 56 == kLongMark) return {arena_.data() + slot.low, slot.high & 0xFFFFFFFFFFFFFF};
        return {reinterpret_cast<const char*>(&slot.low), slot.high >> 56};  // low and high lie side by side
    }

    void grow() {
        std::vector<Slot> old(slots_.size() * 2);
        old.swap(slots_);
        for (const Slot& slot : old) {
            if (!slot.count) continue;
            const bool is_long = slot.high >> 56 == kLongMark;
            std::size_t i = is_long ? home(hash_text(text_of(slot)), kLongMark << 56) : home(slot.low, slot.high);
            while (slots_[i].count) i = (i + 1) & (slots_.size() - 1);
            slots_[i] = slot;
        }
    }
};

// Counts that did not fit into memory, as runs in temporary files, each in order. Read together they give every piece in that
// order; by their bytes, each once with its counts added up, exactly as one table would have it.
class Runs {
    struct Head {  // before the bytes of a piece
        std::int64_t count;
        u64 first, size;
    };

   public:
    explicit Runs(Order order) : order_(order) {}

    // Moves what a table has counted to a file, and leaves it empty.
    void spill(PieceTable& table, const GoOn* go_on) {
        table.put_in_order(order_, go_on);
        std::size_t next = 0;
        write([&](Counted& one) { return next < table.size() && (one = table[next++], true); }, go_on);
        table = PieceTable();
        if (files_.size() < kMostFiles) return;
        Runs all(order_);
        Reading reading(*this);
        all.write([&](Counted& one) { return reading.next(one); }, go_on);
        files_ = std::move(all.files_);
    }

    bool empty() const { return files_.empty(); }
    void take(Runs& other) {
        for (File& file : other.files_) files_.push_back(std::move(file));
        other.files_.clear();
    }

    // All runs from the beginning, merged. One at a time; a piece can be looked at until the next is asked for.
    class Reading {
       public:
        explicit Reading(const Runs& runs) : order_(runs.order_) {
            for (const File& file : runs.files_) {
                std::rewind(file.get());
                runs_.push_back({file.get(), {}, {}});
                if (!runs_.back().next()) runs_.pop_back();
            }
            for (std::size_t i = 0; i < runs_.size(); ++i) heap_.push_back(i);
            std::make_heap(heap_.begin(), heap_.end(), Later{this});
        }

        bool next(Counted& one) {
            if (heap_.empty()) return false;
            piece_ = runs_[heap_.front()].piece;
            one = runs_[heap_.front()].counted();
            for (one.piece = piece_, step(); !heap_.empty() && runs_[heap_.front()].piece == piece_; step()) {
                one.count += runs_[heap_.front()].head.count;
                one.first = std::min(one.first, runs_[heap_.front()].head.first);
            }
            return true;
        }

       private:
        struct Run {
            std::FILE* file;
            Head head;
            std::string piece;
            Counted counted() const { return {piece, head.count, head.first}; }
            bool next() {
                if (std::fread(&head, sizeof head, 1, file) != 1) return false;
                piece.resize(head.size);
                if (std::fread(piece.data(), 1, head.size, file) != head.size) fail("a temporary file of counts could not be read");
                return true;
            }
        };
        struct Later {
            const Reading* reading;
            bool operator()(std::size_t a, std::size_t b) const {
                return before(reading->order_, reading->runs_[b].counted(), reading->runs_[a].counted());
            }
        };
        Order order_;
        std::vector<Run> runs_;
        std::vector<std::size_t> heap_;
        std::string piece_;

        void step() {
            std::pop_heap(heap_.begin(), heap_.end(), Later{this});
            if (runs_[heap_.back()].next()) std::push_heap(heap_.begin(), heap_.end(), Later{this});
            else heap_.pop_back();
        }
    };

   private:
    static constexpr std::size_t kMostFiles = 16;  // of a thread; with that many, they are merged into one

    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    using File = std::unique_ptr<std::FILE, Close>;
    Order order_;
    std::vector<File> files_;

    // One file more, with the pieces that `next` gives in order until it returns false.
    template <class Next>
    void write(const Next& next, const GoOn* go_on) {
        File file(temporary());
        if (!file) fail("no temporary file for counts beyond the memory limit could be made");
        std::size_t steps = 0;
        for (Counted one{}; next(one);) {
            if (++steps % 4096 == 0) ask(go_on);
            const Head head{one.count, one.first, one.piece.size()};
            if (std::fwrite(&head, sizeof head, 1, file.get()) != 1 ||
                std::fwrite(one.piece.data(), 1, one.piece.size(), file.get()) != one.piece.size())
                fail("the temporary file for counts beyond the memory limit could not be written");
        }
        if (std::fflush(file.get())) fail("the temporary file for counts beyond the memory limit could not be written");
        files_.push_back(std::move(file));
    }

    [[noreturn]] static void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

    // In the folder that TMPDIR names, else in /tmp; it has no name, and is gone when it is closed.
    static std::FILE* temporary() {
#if defined(__unix__) || defined(__APPLE__)
        const char* folder = std::getenv("TMPDIR");
        std::string path = std::string(folder && *folder ? folder : "/tmp") + "/minigpt_tok-XXXXXX";
        const int descriptor = mkstemp(path.data());
        if (descriptor < 0) return nullptr;
        unlink(path.c_str());
        return fdopen(descriptor, "w+b");
#else
        return std::tmpfile();
#endif
    }
};

// Cuts texts and counts their pieces. One per thread.
class PieceCounter {
   public:
    // `memory_limit`: bytes for the table; what is counted beyond goes to files. 0: no limit.
    PieceCounter(PatternChoice pattern, std::size_t memory_limit) : memory_limit(memory_limit), splitter_(pattern) {}

    PieceTable table;
    Runs runs{Order::bytes};
    const std::size_t memory_limit;

    // A text of its own in valid UTF-8; its pieces are numbered from `first` on.
    void add(const u8* s, std::size_t n, u64 first, const GoOn& go_on) {
        std::size_t window = kWindow;
        for (std::size_t at = 0; at < n && go_on();) {
            std::size_t size = std::min(window, n - at);
            if (size > 0xFFFFFF00) throw std::overflow_error("a piece of the text is longer than 4 GiB, the most that can be counted");
            const bool last = at + size == n;
            if (!last)
                while (is_continuation(s[at + size])) --size;
            const u8* from = s + at;
            if (n - at - size < kRoom) {  // nothing may be read behind the text, so its end is copied to where there is room
                if (buffer_.size() < size + kRoom) buffer_.resize(size + kRoom);
                std::memcpy(buffer_.data(), from, size);
                from = buffer_.data();
            }
            const std::size_t room = (splitter_.choice().pattern == Pattern::none ? 1 : size) + kPlacesRoom;
            if (ends_.size() < room) ends_.resize(room);
            const std::size_t count = splitter_.cut(from, size, last, ends_.data());
            make_room(count, go_on);
            table.add(from, ends_.data(), count, first);
            first += count;
            window = count ? kWindow : window * 2;
            if (count) at += ends_[count - 1];
        }
    }

    // Pieces that have been counted already.
    void add(const std::vector<Counted>& pieces, const GoOn& go_on) {
        std::size_t steps = 0;
        for (const Counted& one : pieces) {
            if (++steps % 4096 == 0) ask(&go_on);
            make_room(1, go_on);
            table.add(one);
        }
    }

   private:
    static constexpr std::size_t kWindow = 16 << 10, kRoom = 64;

    void make_room(std::size_t pieces, const GoOn& go_on) {
        if (memory_limit && table.size() && table.memory_for(pieces) > memory_limit) runs.spill(table, &go_on);
    }

    Splitter splitter_;
    std::vector<u32> ends_;
    std::vector<u8> buffer_;
};

// All that has been counted, each piece once, in the order in which they were first seen: in a table, or, beyond half of the
// memory limit, in files, so that learning has the memory for itself. They are read by `for`, one at a time.
class AllPieces {
   public:
    AllPieces(std::deque<PieceCounter>& counters, const GoOn* go_on) {
        Runs runs(Order::bytes);
        std::size_t limit = 0, memory = 0, size = 0;
        for (PieceCounter& counter : counters) {
            runs.take(counter.runs);
            limit += counter.memory_limit;
            memory += counter.table.memory_for(0);
            size += counter.table.size();
        }
        if (!counters.empty()) memory += counters[0].table.memory_for(size - counters[0].table.size()) - counters[0].table.memory_for(0);
        if (runs.empty() && (!limit || memory <= limit / 2)) {
            for (PieceCounter& counter : counters) {
                if (!size_) table_ = std::move(counter.table);
                else table_.join(counter.table, go_on);
                counter.table = PieceTable();
                size_ = table_.size();
            }
            table_.put_in_order(Order::first_seen, go_on);
            return;
        }
        for (PieceCounter& counter : counters) runs.spill(counter.table, go_on);
        Runs::Reading merged(runs);
        for (Counted one{}; merged.next(one); ++size_) {
            if (size_ % 4096 == 0) ask(go_on);
            if (table_.memory_for(1) > std::max(limit, kLeast)) files_.spill(table_, go_on);
            table_.add(one);
        }
        files_.spill(table_, go_on);
    }
    AllPieces(const AllPieces&) = delete;

    std::size_t size() const { return size_; }

    struct End {};
    class Iterator {
       public:
        explicit Iterator(const AllPieces& all) : all_(all) {
            if (!all.files_.empty()) reading_.emplace(all.files_);
            ++*this;
        }
        const Counted& operator*() const { return one_; }
        Iterator& operator++() {
            more_ = next_ < all_.size();
            if (more_ && reading_) reading_->next(one_);
            else if (more_) one_ = all_.table_[next_];
            ++next_;
            return *this;
        }
        bool operator!=(End) const { return more_; }

       private:
        const AllPieces& all_;
        std::optional<Runs::Reading> reading_;
        std::size_t next_ = 0;
        bool more_ = false;
        Counted one_{};
    };
    Iterator begin() const { return Iterator(*this); }
    End end() const { return {}; }

   private:
    static constexpr std::size_t kLeast = 1 << 18;  // bytes; with a limit below it there would be a file for every few pieces
    PieceTable table_;
    Runs files_{Order::first_seen};
    std::size_t size_ = 0;
};

}  // namespace minigpt
