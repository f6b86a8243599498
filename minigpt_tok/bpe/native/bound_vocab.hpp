// A vocabulary from what Python has of it.
#pragma once

#include <pybind11/stl.h>

#include "python.hpp"
#include "vocab.hpp"

namespace {

// Raw bytes by id as Python lists them, None where there are none.
void read_tokens(const py::list& tokens, std::vector<std::string>& raw, std::vector<bool>& present) {
    for (const auto& token : tokens) {
        present.push_back(!token.is_none());
        raw.push_back(token.is_none() ? std::string() : token.cast<std::string>());
    }
}

// That no id leads outside the tables.
void check_ids(std::size_t ids, const std::vector<u32>& lefts, const std::vector<u32>& rights, const std::vector<u32>& results,
               const std::vector<std::pair<u32, u32>>& characters) {
    const auto fits = [&](u32 id) { return id < ids; };
    bool all = lefts.size() == rights.size() && lefts.size() == results.size();
    for (const auto* column : {&lefts, &rights, &results}) all = all && std::all_of(column->begin(), column->end(), fits);
    for (const auto& character : characters) all = all && fits(character.second);
    if (!all) throw py::index_error("a merge or a base token has an id that is not in the vocabulary");
}

Vocab byte_vocab(const py::list& tokens, bool by_bytes, const std::vector<u32>& lefts, const std::vector<u32>& rights,
                 const std::vector<u32>& results) {
    std::vector<std::string> raw;
    std::vector<bool> present;
    read_tokens(tokens, raw, present);
    check_ids(raw.size(), lefts, rights, results, {});
    Vocab vocab(raw, present, false, false);
    if (by_bytes) vocab.merge_by_bytes();
    else vocab.merge_by_pair(lefts, rights, results);
    return vocab;
}

}  // namespace
