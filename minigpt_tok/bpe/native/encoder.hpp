// The encoder as Python holds it: one vocabulary, and a worker for each thread that happens to be encoding.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "encode.hpp"

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

    using GoOn = std::function<bool()>;

    // Borrows a worker for the length of one call.
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
            const std::lock_guard lock(encoder_.mutex_);
            encoder_.idle_.push_back(std::move(worker_));
        }
        Lease(const Lease&) = delete;
        Worker<Id>* operator->() { return worker_.get(); }

       private:
        Encoder& encoder_;
        std::unique_ptr<Worker<Id>> worker_;
    };

    template <class Check>
    static void encode(Worker<Id>& worker, const Text& text, Ids<Id>& out, Check go_on) {
        switch (text.width) {
            case 0: return worker.encode_utf8(static_cast<const u8*>(text.data), text.length, out, go_on);
            case 1: return worker.encode_characters(static_cast<const u8*>(text.data), text.length, out, go_on);
            case 2: return worker.encode_characters(static_cast<const u16*>(text.data), text.length, out, go_on);
            default: return worker.encode_characters(static_cast<const u32*>(text.data), text.length, out, go_on);
        }
    }

    // All texts in order, with the number of ids of each; several threads take neighbouring texts of equal size in all.
    // A text that cannot be encoded gives its number in `bad` and ends the work.
    void encode_batch(const std::vector<Text>& texts, unsigned threads, Ids<Id>& out, std::vector<std::size_t>& counts,
                      std::size_t& bad, const GoOn& go_on) {
        counts.assign(texts.size(), 0);
        bad = kValid;
        std::size_t total = 0;
        for (const Text& text : texts) total += text.length;
        constexpr std::size_t kWorthAThread = 1 << 20;
        threads = static_cast<unsigned>(std::min<std::size_t>(threads, total / kWorthAThread));
        if (threads <= 1) {
            Lease worker(*this);
            encode_some(worker, texts, 0, texts.size(), out, counts, bad, go_on);
            return;
        }
        std::vector<std::size_t> borders{0};
        std::size_t seen = 0;
        for (std::size_t i = 0; i < texts.size(); ++i) {
            seen += texts[i].length;
            if (seen * threads >= total * borders.size()) borders.push_back(i + 1);
        }
        borders.resize(threads);
        borders.push_back(texts.size());
        std::vector<Ids<Id>> parts(threads);
        std::vector<std::size_t> bads(threads, kValid);
        std::atomic<bool> stop{false};
        {
            std::vector<std::jthread> running;
            for (unsigned t = 1; t < threads; ++t)
                running.emplace_back([&, t] {
                    Lease worker(*this);
                    encode_some(worker, texts, borders[t], borders[t + 1], parts[t], counts, bads[t], [&] { return !stop.load(std::memory_order_relaxed); });
                });
            Lease worker(*this);
            encode_some(worker, texts, borders[0], borders[1], parts[0], counts, bads[0], [&] {
                if (!go_on()) stop = true;
                return !stop.load(std::memory_order_relaxed);
            });
        }
        for (const std::size_t one : bads) bad = std::min(bad, one);
        std::size_t ids = 0;
        for (const auto& part : parts) ids += part.size();
        out.reserve_more(ids);
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

    template <class Check>
    void encode_some(Lease& worker, const std::vector<Text>& texts, std::size_t first, std::size_t last, Ids<Id>& out,
                     std::vector<std::size_t>& counts, std::size_t& bad, Check go_on) {
        bool going = true;
        const auto check = [&] { return going = going && go_on(); };
        for (std::size_t i = first; i < last && going; ++i) {
            const std::size_t before = out.size();
            try {
                encode(*worker.operator->(), texts[i], out, check);
            } catch (const BadText&) {
                bad = i;
                return;
            }
            counts[i] = out.size() - before;
        }
    }
};

}  // namespace minigpt
