// From ids to bytes: tokens lie end to end in one arena, and are copied 16 bytes at a time.
#pragma once

#include <string>

#include "text.hpp"

namespace minigpt {

class Decoder {
   public:
    // tokens[id]: the raw bytes of every id, added tokens included; holes are not present.
    Decoder(const std::vector<std::string>& tokens, const std::vector<bool>& present) {
        spans_.reserve(tokens.size());
        for (std::size_t id = 0; id < tokens.size(); ++id) {
            spans_.push_back({static_cast<u32>(arena_.size()), present[id] ? static_cast<u32>(tokens[id].size()) : kHole});
            arena_.append(tokens[id]);
        }
        arena_.append(16, '\0');
    }

    // Bytes of the ids, appended to `out`; the position of the first id that is none, or kValid.
    template <class Id>
    std::size_t decode(const Id* ids, std::size_t count, std::string& out) const {
        std::size_t size = out.size();
        for (std::size_t i = 0; i < count; ++i) {
            const u64 id = static_cast<u64>(static_cast<std::int64_t>(ids[i]));
            if (id >= spans_.size() || spans_[id].length == kHole) [[unlikely]] return out.resize(size), i;
            const Span span = spans_[id];
            if (size + span.length + 16 > out.size()) grow(out, size + span.length + 16, i, count);
            char* to = out.data() + size;
            const char* from = arena_.data() + span.start;
            std::memcpy(to, from, 16);
            if (span.length > 16) [[unlikely]] std::memcpy(to, from, span.length);
            size += span.length;
        }
        out.resize(size);
        return kValid;
    }

   private:
    static constexpr u32 kHole = 0xFFFFFFFF;
    struct Span {
        u32 start, length;
    };
    std::vector<Span> spans_;
    std::string arena_;

    // Room by what the ids so far have come to, and some more.
    static void grow(std::string& out, std::size_t least, std::size_t done, std::size_t count) {
        const std::size_t expected = done > 64 ? out.size() / done * count : count * 4;
        const std::size_t room = std::max({least, expected + expected / 16, out.size() + out.size() / 2});
#if defined(__cpp_lib_string_resize_and_overwrite)
        out.resize_and_overwrite(room, [&](char*, std::size_t n) { return n; });
#else
        out.resize(room);
#endif
    }
};

}  // namespace minigpt
