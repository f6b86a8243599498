// The encoder as Python holds it: one vocabulary, and a worker for each thread that happens to be encoding.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>

#include "encode.hpp"
#include "in_order.hpp"
#include "threads.hpp"

namespace minigpt {

// A text as it lies in memory: bytes of UTF-8 (width 0), or code points of 1, 2 or 4 bytes.
struct Text {
    const void* data;
    std::size_t length;  // in its own units
    unsigned width;
    bool may_be_invalid = false;  // bytes of which nobody knows yet whether they are UTF-8
};

template <class Id>
class Encoder {
   public:
    Encoder(Vocab vocab, PatternChoice pattern, bool whole_piece)
        : vocab_(std::move(vocab)), pattern_(pattern), whole_piece_(whole_piece) {}

    // Borrows a worker for the length of one call. Taken and given back by who holds the GIL, so that a fork, which a thread
    // with the GIL makes, never finds the lock taken.
    class Lease {
       public:
        explicit Lease(Encoder& encoder) : encoder_(encoder) {
            const std::lock_guard lock(encoder.mutex_);
            if (!encoder.idle_.empty()) {
                worker_ = std::move(encoder.idle_.back());
                encoder.idle_.pop_back();
            }
            if (!worker_) worker_ = std::make_unique<Worker<Id>>(encoder.vocab_, encoder.pattern_, encoder.whole_piece_);
        }
        ~Lease() {
            worker_->trim();
            const std::lock_guard lock(encoder_.mutex_);
            encoder_.idle_.push_back(std::move(worker_));
        }
        Lease(const Lease&) = delete;
        Worker<Id>& operator*() { return *worker_; }

       private:
        Encoder& encoder_;
        std::unique_ptr<Worker<Id>> worker_;
    };

    template <class Out, class Check>
    static void encode(Worker<Id>& worker, const Text& text, Out& out, Check go_on) {
        switch (text.width) {
            case 0: return worker.encode_utf8(valid(text), text.length, out, go_on);
            case 1: return worker.encode_characters(static_cast<const u8*>(text.data), text.length, out, go_on);
            case 2: return worker.encode_characters(static_cast<const u16*>(text.data), text.length, out, go_on);
            default: return worker.encode_characters(static_cast<const u32*>(text.data), text.length, out, go_on);
        }
    }

    // The same where it may take long: a piece of any length asks too. It ends early if told to stop.
    template <class Out>
    static void encode_long(Worker<Id>& worker, const Text& text, Out& out, const GoOn& go_on) {
        const typename Worker<Id>::Asking asking(worker, go_on);
        try {
            encode(worker, text, out, std::cref(go_on));
        } catch (const Stopped&) {
        }
    }

    // How many threads are worth while for some texts, at most `most`.
    static unsigned threads_for(const std::vector<Text>& texts, unsigned most) {
        constexpr std::size_t kWorthAThread = 1 << 20;
        const std::size_t worth = total(texts) / kWorthAThread;
        return static_cast<unsigned>(std::max<std::size_t>(1, std::min({std::size_t{most}, worth, texts.size()})));
    }

    // All texts in order, each followed by the separator if there is one, with the number of ids of each; the workers take
    // chunks of neighbouring texts as they get on. A text that cannot be encoded gives its number in `bad` (the first one's, if
    // there are several) and ends the work.
    void encode_batch(const std::vector<Text>& texts, std::optional<Id> separator, std::deque<Lease>& workers, Ids<Id>& out,
                      std::vector<std::size_t>& counts, std::size_t& bad, const GoOn& go_on) {
        counts.assign(texts.size(), 0);
        bad = kValid;
        const auto threads = static_cast<unsigned>(workers.size());
        out.expect_text(total(texts));
        if (threads == 1) return encode_some(*workers[0], texts, 0, texts.size(), separator, out, counts, bad, go_on);
        const std::vector<std::size_t> ends = chunk_ends(texts);
        InOrder<Id> order(out, ends.size());
        std::deque<typename InOrder<Id>::Part> parts;
        for (Lease& worker : workers) parts.emplace_back(order, (*worker).spare());
        std::vector<std::size_t> bads(threads, kValid);
        std::atomic<std::size_t> next{0};
        share(threads, go_on, [&](unsigned t, const GoOn& ask) {
            for (std::size_t chunk; bads[t] == kValid && ask() && (chunk = next++) < ends.size();) {
                const std::size_t first = chunk ? ends[chunk - 1] : 0;
                encode_some(*workers[t], texts, first, ends[chunk], separator, parts[t].next(), counts, bads[t], ask);
                parts[t].finish(chunk);
            }
            if (bads[t] != kValid) next = ends.size();  // chunks before this one have been taken by others, who finish them
        });
        bad = *std::min_element(bads.begin(), bads.end());
        for (auto& part : parts) part.place_rest();
        order.close();
    }

    Vocab& vocab() { return vocab_; }

   private:
    friend class Lease;
    Vocab vocab_;
    PatternChoice pattern_;
    bool whole_piece_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<Worker<Id>>> idle_;

    static std::size_t total(const std::vector<Text>& texts) {
        std::size_t sum = 0;
        for (const Text& text : texts) sum += text.length;
        return sum;
    }

    // Where chunks of texts end, each of a size whose ids stay in a core's own cache, or one text that is larger.
    static std::vector<std::size_t> chunk_ends(const std::vector<Text>& texts) {
        constexpr std::size_t kChunk = 256 << 10;
        std::vector<std::size_t> ends;
        std::size_t size = 0;
        for (std::size_t i = 0; i < texts.size(); ++i) {
            size += texts[i].length;
            if (size < kChunk && i + 1 < texts.size()) continue;
            ends.push_back(i + 1);
            size = 0;
        }
        return ends;
    }

    static void encode_some(Worker<Id>& worker, const std::vector<Text>& texts, std::size_t first, std::size_t last,
                            std::optional<Id> separator, Ids<Id>& out, std::vector<std::size_t>& counts, std::size_t& bad,
                            const GoOn& go_on) {
        bool going = true;
        const GoOn check = [&] { return going = going && go_on(); };
        const typename Worker<Id>::Asking asking(worker, check);
        std::size_t i = first, before = out.size();
        const auto ended = [&] {
            if (separator) out.append(&*separator, 1);
            counts[i++] = out.size() - before;
            before = out.size();
        };
        try {
            while (i < last && going) {
                const std::size_t together = end_of_group(texts, i, last);
                if (together == i) {
                    encode(worker, texts[i], out, std::cref(check));
                    ended();
                    continue;
                }
                typename Worker<Id>::Group group(worker);
                for (bad = i; bad < together; ++bad) add(group, texts[bad]);
                bad = kValid;
                group.encode(out, ended);
                check();
            }
        } catch (const Stopped&) {
        } catch (const BadText&) {
            if (bad == kValid) bad = i;
        }
    }

    // As many texts from the i-th on as are encoded together; none, if the next is long.
    static std::size_t end_of_group(const std::vector<Text>& texts, std::size_t i, std::size_t last) {
        constexpr std::size_t kTogether = 16 << 10;
        for (std::size_t size = 0; i < last && (size += texts[i].length) <= kTogether;) ++i;
        return i;
    }

    static void add(typename Worker<Id>::Group& group, const Text& text) {
        switch (text.width) {
            case 0: return group.add(valid(text), text.length);
            case 1: return group.add_characters(static_cast<const u8*>(text.data), text.length);
            case 2: return group.add_characters(static_cast<const u16*>(text.data), text.length);
            default: return group.add_characters(static_cast<const u32*>(text.data), text.length);
        }
    }

    static const u8* valid(const Text& text) {
        const auto* utf8 = static_cast<const u8*>(text.data);
        if (text.may_be_invalid && first_invalid_utf8(utf8, text.length) != kValid) throw BadText{};
        return utf8;
    }
};

}  // namespace minigpt
