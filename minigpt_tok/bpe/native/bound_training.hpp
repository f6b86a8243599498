// Training as Python sees it, and training a tokenizer further: over pieces that are encoded already, its tokens for units.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "python.hpp"
#include "train.hpp"

namespace {

Tie tie_of(const std::string& name) {
    return name == "lowest_ids" ? Tie::lowest_ids : name == "first_seen" ? Tie::first_seen : Tie::greatest_bytes;
}

// Tells Python how many merges there are, without the GIL.
void tell(const py::object& progress, std::size_t done) {
    if (progress.is_none()) return;
    const WithGil gil;
    try {
        progress(done);
    } catch (const std::exception&) {
        throw;
    } catch (...) {
        stand_still();
    }
}

// What was learned, a column for each field.
py::dict columns_of(const std::vector<LearnedMerge>& merges, std::int64_t base_tokens, std::int64_t best_left) {
    const auto column = [&](auto field) {
        py::array_t<std::int64_t> values(static_cast<py::ssize_t>(merges.size()));
        std::int64_t* at = values.mutable_data();
        for (const LearnedMerge& merge : merges) *at++ = static_cast<std::int64_t>(merge.*field);
        return values;
    };
    py::dict result;
    result["left"] = column(&LearnedMerge::left);
    result["right"] = column(&LearnedMerge::right);
    result["count"] = column(&LearnedMerge::count);
    result["tokens_after"] = column(&LearnedMerge::tokens_after);
    result["base_tokens"] = base_tokens;
    result["best_left"] = best_left;
    return result;
}

template <class Value>
using Array = py::array_t<Value, py::array::c_style | py::array::forcecast>;

// ids: all pieces end to end, piece n from offsets[n] to offsets[n + 1], occurring counts[n] times; ids are places in `base`,
// whose tokens are of so many units (`sizes`) each. Columns as Counter.train gives them.
py::dict train_units(const Array<u32>& ids, const Array<std::int64_t>& offsets, const Array<std::int64_t>& counts,
                     const std::vector<py::bytes>& base, const std::vector<std::size_t>& sizes, const std::vector<py::bytes>& passed_over,
                     std::size_t most, std::int64_t min_frequency, const std::string& tie, std::size_t max_length, const py::object& progress) {
    const auto pieces = static_cast<std::size_t>(counts.size());
    if (static_cast<std::size_t>(offsets.size()) != pieces + 1 || sizes.size() != base.size()) throw py::value_error("arrays of other lengths");
    const u32* id = ids.data();
    const std::int64_t *offset = offsets.data(), *count = counts.data();
    for (py::ssize_t i = 0; i < ids.size(); ++i)
        if (id[i] >= base.size()) throw py::value_error("an id that is no base token");
    for (std::size_t i = 0; i < pieces; ++i)
        if (offset[i] < 0 || offset[i] > offset[i + 1] || offset[i + 1] > ids.size()) throw py::value_error("offsets out of order");
    std::vector<std::string> texts(base.begin(), base.end());
    std::unordered_set<std::string> not_made(passed_over.begin(), passed_over.end());
    std::vector<LearnedMerge> merges;
    std::int64_t base_tokens = 0, best_left = -1;
    without_gil([&](const GoOn& go_on) {
        Trainer trainer(std::move(texts), tie_of(tie), min_frequency, max_length, go_on);
        trainer.continue_from(sizes, std::move(not_made));
        trainer.reserve(static_cast<std::size_t>(ids.size()), pieces);
        for (std::size_t i = 0; i < pieces; ++i) {
            trainer.begin_piece(count[i]);
            for (std::int64_t at = offset[i]; at < offset[i + 1]; ++at) trainer.add_unit(id[at]);
            trainer.end_piece();
        }
        base_tokens = trainer.tokens();
        trainer.learn(most, merges, [&](std::size_t done) { tell(progress, done); });
        if (merges.size() < most) best_left = trainer.best_left();
    });
    return columns_of(merges, base_tokens, best_left);
}

}  // namespace
