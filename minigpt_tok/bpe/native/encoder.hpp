// The encoder as Python holds it: one vocabulary, and a worker for each thread that happens to be encoding.
#pragma once

#include <deque>
#include <mutex>

#include "encode.hpp"
#include "threads.hpp"

namespace minigpt {

// A text as it lies in memory: bytes of UTF-8 (width 0), or code points of 1, 2 or 4 bytes.
struct Text {
    const void* data;
    std::size_t length;  // in its own units
    unsigned width;
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
            case 0: return worker.encode_utf8(static_cast<const u8*>(text.data), text.length, out, go_on);
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

    // All texts in order, with the number of ids of each; each worker takes neighbouring texts, of equal size in all. A text
    // that cannot be encoded gives its number in `bad` and ends the work.
    void encode_batch(const std::vector<Text>& texts, std::deque<Lease>& workers, Ids<Id>& out,
                      std::vector<std::size_t>& counts, std::size_t& bad, const GoOn& go_on) {
        counts.assign(texts.size(), 0);
        bad = kValid;
        const auto threads = static_cast<unsigned>(workers.size());
        const std::size_t size = total(texts);
        out.expect_text(size);
        if (threads == 1) return encode_some(*workers[0], texts, 0, texts.size(), out, counts, bad, go_on);
        std::vector<std::size_t> borders{0};
        std::size_t seen = 0;
        for (std::size_t i = 0; i < texts.size(); ++i) {
            seen += texts[i].length;
            if (borders.size() < threads && seen * threads >= size * borders.size()) borders.push_back(i + 1);
        }
        borders.resize(threads + 1, texts.size());
        std::vector<Ids<Id>> parts(threads);  // the first has nothing: that thread writes where all will be
        std::vector<std::size_t> bads(threads, kValid);
        share(threads, go_on, [&](unsigned t, const GoOn& ask) {
            if (t) parts[t].expect_text(size / threads);
            encode_some(*workers[t], texts, borders[t], borders[t + 1], t ? parts[t] : out, counts, bads[t], ask);
        });
        for (const std::size_t one : bads) bad = std::min(bad, one);
        for (const auto& part : parts) out.append(part.data(), part.size());
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

    static void encode_some(Worker<Id>& worker, const std::vector<Text>& texts, std::size_t first, std::size_t last,
                            Ids<Id>& out, std::vector<std::size_t>& counts, std::size_t& bad, const GoOn& go_on) {
        bool going = true;
        const GoOn check = [&] { return going = going && go_on(); };
        const typename Worker<Id>::Asking asking(worker, check);
        for (std::size_t i = first; i < last && going; ++i) {
            const std::size_t before = out.size();
            try {
                encode(worker, texts[i], out, std::cref(check));
            } catch (const Stopped&) {
                return;
            } catch (const BadText&) {
                bad = i;
                return;
            }
            counts[i] = out.size() - before;
        }
    }
};

}  // namespace minigpt
