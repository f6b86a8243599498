// Documents of a stream of bytes: what lies between the occurrences of a separator.
//
// The rule is that of `cut_at` in minigpt_tok/data/cutting.py, which says it in Python.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text.hpp"

namespace minigpt {

class Cutter {
 public:
    struct Document {
        std::size_t at, size;  // in bytes; `at` within what is held
    };

    Cutter(std::string token, bool whole_line, bool carriage_returns)
        : token_(std::move(token)),
          before_(token_.front() != '\n'),
          after_(token_.back() != '\n'),
          whole_line_(whole_line),
          carriage_returns_(carriage_returns) {}

    // More of the stream. What was cut before is let go.
    void feed(const u8* bytes, std::size_t count) {
        held_.erase(0, start_);
        offset_ += start_;
        search_ -= start_;
        start_ = 0;
        held_.append(reinterpret_cast<const char*>(bytes), count);
    }

    // The documents that have come to their end; with `ended`, which says that nothing follows, all that are left.
    void cut(bool ended, std::vector<Document>& documents) {
        const std::string_view held(held_);
        for (;;) {
            const std::size_t found = held.find(token_, search_);
            // What follows an occurrence decides about it, so two bytes must be there, or the end of the stream.
            if (!ended && (found == held.npos || found + token_.size() + 2 > held.size())) {
                const std::size_t tail = held.size() + 1 > token_.size() ? held.size() + 1 - token_.size() : 0;
                search_ = std::max(start_, found == held.npos ? tail : found);
                return;
            }
            if (found == held.npos) break;
            std::size_t first = found, last = found + token_.size();
            if (before_ && first > start_ && held[first - 1] == '\n') {
                --first;
                if (carriage_returns_ && first > start_ && held[first - 1] == '\r') --first;
            }
            if (after_ && last < held.size()) {
                if (held[last] == '\n') ++last;
                else if (carriage_returns_ && held.substr(last, 2) == "\r\n") last += 2;
            }
            const bool begins_line = first < found || found == start_;
            const bool ends_line = last > found + token_.size() || last == held.size();
            search_ = found + token_.size();
            if (whole_line_ && !(begins_line && ends_line)) continue;
            documents.push_back({start_, first - start_});
            ++separators_;
            separator_bytes_ += last - first;
            start_ = search_ = last;
        }
        if (start_ < held.size()) documents.push_back({start_, held.size() - start_});
        start_ = search_ = held.size();
    }

    const u8* held() const { return reinterpret_cast<const u8*>(held_.data()); }
    std::size_t offset() const { return offset_; }  // of what is held, in the stream
    std::size_t separators() const { return separators_; }
    std::size_t separator_bytes() const { return separator_bytes_; }

 private:
    std::string token_;
    bool before_, after_;  // whether a newline there goes with the token, which has none of its own
    bool whole_line_, carriage_returns_;
    std::string held_;
    std::size_t offset_ = 0;
    std::size_t start_ = 0;   // of the next document, in what is held
    std::size_t search_ = 0;  // before it no further occurrence begins
    std::size_t separators_ = 0, separator_bytes_ = 0;
};

}  // namespace minigpt
