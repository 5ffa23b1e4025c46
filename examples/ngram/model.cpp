// SPDX-License-Identifier: MIT
#include "model.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <utility>

#include <Eigen/Dense>

#include <sureleap/error.hpp>

namespace ngram {

std::vector<token_id> to_tokens(std::string_view text) {
    std::vector<token_id> tokens(text.size());
    std::transform(text.begin(), text.end(), tokens.begin(),
                   [](char c) { return static_cast<token_id>(static_cast<unsigned char>(c)); });
    return tokens;
}

std::string to_text(std::span<token_id const> tokens) {
    std::string text(tokens.size(), '\0');
    std::transform(tokens.begin(), tokens.end(), text.begin(),
                   [](token_id t) { return static_cast<char>(static_cast<unsigned char>(t)); });
    return text;
}

std::string read_text(std::filesystem::path const& file, std::size_t limit) {
    std::ifstream in(file, std::ios::binary);
    if (!in || std::filesystem::is_directory(file))
        throw sureleap::error("text file: cannot read " + file.string());
    std::string text(limit, '\0');
    in.read(text.data(), static_cast<std::streamsize>(limit));
    text.resize(static_cast<std::size_t>(in.gcount()));
    std::erase(text, '\r');
    return text;
}

corpus::corpus(std::string text) : text_(std::move(text)) {
    if (text_.size() < min_bytes)
        throw sureleap::error("text: got " + std::to_string(text_.size()) + " bytes, expected at least " +
                              std::to_string(min_bytes));
    positions_.resize(text_.size() - max_order);
    for (std::size_t i = 0; i < positions_.size(); ++i) positions_[i] = static_cast<std::uint32_t>(i + max_order);
    // Radix sort from the farthest byte to the nearest one: linear in the text, and stable at every pass.
    std::vector<std::uint32_t> sorted(positions_.size());
    for (std::size_t back = max_order; back >= 1; --back) {
        std::array<std::size_t, vocabulary + 1> start{};
        for (auto const p : positions_) ++start[(*this)[p - back] + 1u];
        for (std::size_t b = 1; b < start.size(); ++b) start[b] += start[b - 1];
        for (auto const p : positions_) sorted[start[(*this)[p - back]]++] = p;
        positions_.swap(sorted);
    }
}

std::size_t model::level::probe(std::uint64_t key) const noexcept {
    std::size_t i = static_cast<std::size_t>((key * 0x9e3779b97f4a7c15u) >> shift);
    while (slots[i].size != 0 && slots[i].key != key) i = (i + 1) & (slots.size() - 1);
    return i;
}

model::model(corpus const& from, settings const& chosen) : strength_(static_cast<float>(chosen.strength)) {
    if (chosen.order > corpus::max_order || chosen.distance < 1 || !(chosen.strength > 0))
        throw sureleap::error("n-gram model: expected order <= 7, distance >= 1, strength > 0");
    levels_.resize(chosen.order + 1);
    std::size_t const end = from.text().size() - (chosen.distance - 1);
    std::vector<slot> found;
    for (std::size_t length = 0; length <= chosen.order; ++length) {
        found.clear();
        std::array<std::uint32_t, vocabulary> counts{};
        slot current{};
        auto const close = [&] {
            if (current.total == 0) return;
            current.first = static_cast<std::uint32_t>(followers_.size());
            for (std::size_t v = 0; v < vocabulary; ++v) {
                if (counts[v] == 0) continue;
                followers_.push_back({static_cast<float>(counts[v]), static_cast<std::uint8_t>(v)});
                counts[v] = 0;
            }
            current.size = static_cast<std::uint32_t>(followers_.size()) - current.first;
            found.push_back(current);
        };
        for (auto const p : from.positions()) {
            if (p >= end) continue;
            std::uint64_t key = 0;
            for (std::size_t back = length; back >= 1; --back) key = key << 8 | from[p - back];
            if (key != current.key) {
                close();
                current = {.key = key};
            }
            ++counts[from[p + chosen.distance - 1]];
            current.total += 1;
        }
        close();

        level& here = levels_[length];
        std::size_t const capacity = std::bit_ceil(2 * found.size() + 2);
        here.slots.resize(capacity);
        here.shift = 64 - std::countr_zero(capacity);
        for (auto const& s : found) here.slots[here.probe(s.key)] = s;
        contexts_ += found.size();
    }
}

void model::logits(std::span<token_id const> context, std::span<float> out) const {
    std::fill(out.begin(), out.end(), 1.0f / static_cast<float>(vocabulary));
    std::uint64_t key = 0;
    for (std::size_t length = 0; length < levels_.size() && length <= context.size(); ++length) {
        if (length > 0) key |= static_cast<std::uint64_t>(context[context.size() - length]) << (8 * (length - 1));
        slot const& s = levels_[length].slots[levels_[length].probe(key)];
        if (s.size == 0) break;  // a context never seen has no longer one that was
        float const lean = strength_ * static_cast<float>(s.size);
        float const scale = 1.0f / (s.total + lean);
        for (float& v : out) v *= lean * scale;
        for (follower const& f : std::span(followers_).subspan(s.first, s.size)) out[f.byte] += f.count * scale;
    }
    // A text of one endlessly repeated byte could still drive the others to 0 in float.
    for (float& v : out) v = std::log(std::max(v, std::numeric_limits<float>::min()));
}

void transition_bias::remove(token_id prev, std::span<float> logits) const noexcept {
    std::span<float const> const from(w1.data() + static_cast<std::size_t>(prev) * rank, rank);
    for (std::size_t v = 0; v < vocabulary; ++v) {
        float const* const to = w2.data() + v * rank;
        float bias = 0;
        for (std::size_t r = 0; r < rank; ++r) bias += to[r] * from[r];
        logits[v] -= bias;
    }
}

transition_bias fit_transition_bias(corpus const& from, std::size_t rank) {
    if (rank < 1 || rank > vocabulary)
        throw sureleap::error("transition bias: got rank " + std::to_string(rank) + ", expected 1 .. 256");
    constexpr auto size = static_cast<Eigen::Index>(vocabulary);
    // The base logits of a position already hold a part of what the pair (prev, next) says, so the whole log ratio
    // is too much. The acceptance is flat between 0.7 and 0.9, on prose and on source code alike.
    constexpr float share = 0.8f;

    std::vector<float> row(vocabulary);
    Eigen::Map<Eigen::RowVectorXf const> const logarithm(row.data(), size);
    model(from, {.order = 0}).logits({}, row);
    Eigen::RowVectorXf const alone = logarithm;  // log P(next)
    model const pairs(from, {.order = 1});
    Eigen::MatrixXf bias(size, size);
    for (Eigen::Index prev = 0; prev < size; ++prev) {
        auto const token = static_cast<token_id>(prev);
        pairs.logits({&token, 1}, row);
        bias.row(prev) = share * (logarithm - alone);
    }

    // A constant added to a row changes no distribution, so it is taken out before the factors have to carry it.
    // The weights make the error small where bytes are frequent; the floor is for bytes the text does not have.
    Eigen::VectorXf const frequency = alone.array().exp().transpose();
    bias.colwise() -= (bias * frequency).eval();
    Eigen::VectorXf const weight = frequency.cwiseMax(1e-4f).cwiseSqrt();
    Eigen::MatrixXd const weighted = (weight.asDiagonal() * bias * weight.asDiagonal()).cast<double>();
    Eigen::BDCSVD<Eigen::MatrixXd> const svd(weighted, Eigen::ComputeThinU | Eigen::ComputeThinV);
    auto const kept = static_cast<Eigen::Index>(rank);
    Eigen::VectorXd const root = svd.singularValues().head(kept).cwiseSqrt();
    auto const factor = [&](Eigen::MatrixXd const& side) {
        std::vector<float> values(vocabulary * rank);
        using row_major = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
        Eigen::Map<row_major>(values.data(), size, kept) =
            weight.cwiseInverse().asDiagonal() * (side.leftCols(kept) * root.asDiagonal()).cast<float>();
        return values;
    };
    return {rank, factor(svd.matrixU()), factor(svd.matrixV())};
}

}  // namespace ngram
