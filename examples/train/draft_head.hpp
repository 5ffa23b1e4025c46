// SPDX-License-Identifier: MIT
//
// What stands on a drafter's hidden states in training: the sequential head, the confidence head and the losses
// (sureleap/training), joined by matrix products with the frozen LM head E and with W2:
//     z = code(W1 rows, h)      U + B = h E^T + z W2^T      losses -> dU
//     dh += dU E      dz = dU W2      dW2 += dU^T z      code backward -> dh, de, its parameters      dW1 from de
// Logits never exist for more rows than a chunk of the supervision has (supervision.hpp).
//
// Codes are computed for all gamma positions of a block, supervised or not: nearly all are, and what is not has a
// gradient of exactly 0.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <engine/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/training/confidence_logit.hpp>
#include <sureleap/training/gated_code.hpp>
#include <sureleap/training/loss_report.hpp>
#include <sureleap/training/losses.hpp>
#include <sureleap/training/markov_code.hpp>
#include <sureleap/training/rnn_code.hpp>
#include <sureleap/training/rows.hpp>
#include <sureleap/training/supervision.hpp>

#include "elementwise.hpp"
#include "gemm.hpp"
#include "parameters.hpp"
#include "recorded_loss.hpp"

namespace train {

using sureleap::loss_report;
using sureleap::loss_settings;
using sureleap::token_id;

/// The supervised rows of a batch: block row rows[s] should be the law that target row sources[s] has, and the token
/// labels[rows[s]]. Or, if there are `laws`, the law that they have of the block row.
template <class Real>
struct supervision {
    std::span<std::size_t const> rows;
    std::span<std::size_t const> sources;
    std::span<token_id const> labels;  ///< of every block row, as the drafter numbers them
    matrix_view<Real> target_hidden;   ///< [target rows, hidden], final-normed
    sureleap::chunk_limits limits{};
    known_laws<Real> laws{};
};

/// Memory from forward to backward, for n block rows.
template <class Real>
struct head_tape {
    matrix<Real> embeddings;                      ///< e [n, r]
    matrix<Real> codes;                           ///< z [n, r]
    matrix<Real> code_memory;                     ///< [blocks, what a block's code keeps]
    matrix<Real> d_hidden;                        ///< [n, hidden]
    matrix<Real> d_embeddings;                    ///< [n, r]
    matrix<Real> d_codes;                         ///< [n, r]
    std::vector<sureleap::position_loss> losses;  ///< [n]
    // of a chunk
    matrix<Real> target_rows;
    matrix<Real> target_logits;
    matrix<Real> hidden;
    matrix<Real> chunk_codes;
    matrix<Real> logits;
    matrix<Real> d_rows;
};

template <class Real>
class draft_head {
public:
    /// lm_head is frozen and must outlive the head. It has a row for every token that is drafted, in the order in which
    /// they are numbered; a token that is followed may be any of the target's.
    draft_head(parameter_layout& layout, engine::model_config const& config, matrix_view<Real> lm_head)
        : draft_(*config.draft), lm_head_(lm_head) {
        std::size_t const d = config.transformer.hidden_size;
        std::size_t const r = draft_.markov_rank;
        if (draft_.head == engine::head_kind::domino) {
            sureleap::fail_with("training: the drafter has a Domino head, expected vanilla, gated, rnn or none");
        }
        if (draft_.head != engine::head_kind::none) {
            w1_ = layout.matrix("markov_head.markov_w1.weight", config.transformer.vocabulary, r);
            w2_ = layout.matrix("markov_head.markov_w2.weight", lm_head.rows, r);
        }
        if (draft_.head == engine::head_kind::gated) {
            weight_ = layout.matrix("markov_head.gate_proj.weight", r, d + r);
            bias_ = layout.vector("markov_head.gate_proj.bias", r);
        }
        if (draft_.head == engine::head_kind::rnn) {
            weight_ = layout.matrix("markov_head.joint_proj.weight", 3 * r, 2 * r + d);
            bias_ = layout.vector("markov_head.joint_proj.bias", 3 * r);
        }
        if (draft_.confidence) {
            confidence_weight_ = layout.matrix("confidence_head.proj.weight", 1, d + confidence_rank());
            confidence_bias_ = layout.vector("confidence_head.proj.bias", 1);
        }
    }

    /// Codes of all blocks; hidden [n, d], previous[i] is the token that row i follows.
    void forward(std::span<Real const> values, matrix_view<Real> hidden, std::span<token_id const> previous,
                 head_tape<Real>& tape) const {
        std::size_t const r = draft_.markov_rank;
        auto const e = tape.embeddings.resize(hidden.rows, r);
        auto const z = tape.codes.resize(hidden.rows, r);
        if (r == 0) return;
        sureleap::gather_rows(w1_.of(values), previous, e);
        with_code(values, [&](auto const& code) {
            std::size_t const gamma = draft_.block_size;
            auto const memory = tape.code_memory.resize(hidden.rows / gamma, code.tape_size(gamma));
            for (std::size_t b = 0; b < memory.rows; ++b) {
                code.forward(inputs(tape, hidden, b), sureleap::row_range(z, b * gamma, gamma), memory.row(b));
            }
        });
    }

    /// U + B of every row, after forward: [n, V].
    void logits(std::span<Real const> values, matrix_view<Real> hidden, head_tape<Real> const& tape,
                matrix_span<Real> out) const {
        multiply(hidden, lm_head_, out);
        if (draft_.markov_rank > 0) multiply(tape.codes.view(), w2_.of(values), out, into::sum);
    }

    /// The confidence logit of every row, after forward. Precondition: the model has a confidence head.
    void confidence(std::span<Real const> values, matrix_view<Real> hidden, head_tape<Real> const& tape,
                    std::span<Real> out) const {
        auto const head = confidence_head(values);
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = head(hidden.row(i), raw_row(tape.embeddings.view(), i));
    }

    /// Losses of the supervised rows and all gradients below h, which are added to `gradients`; that of h itself is
    /// then in tape.d_hidden. `total_weight` is the weight_sum of everything the optimizer's step averages over.
    /// Consumes the tape; tape.losses has the losses of every row. Without `gradients` it makes the losses and no more.
    void backward(std::span<Real const> values, matrix_view<Real> hidden, std::span<token_id const> previous,
                  supervision<Real> const& labelled, loss_settings const& settings, double total_weight,
                  head_tape<Real>& tape, std::span<Real> gradients) const {
        std::size_t const n = hidden.rows;
        auto const d_hidden = tape.d_hidden.resize_zeroed(n, hidden.cols);
        auto const d_embeddings = tape.d_embeddings.resize_zeroed(n, draft_.markov_rank);
        auto const d_codes = tape.d_codes.resize_zeroed(n, draft_.markov_rank);
        tape.losses.assign(n, {});
        double const scale = 1.0 / (total_weight + sureleap::loss_epsilon);
        if (labelled.laws.empty()) {
            backward_losses(values, hidden, labelled, settings, scale, tape, gradients);
        } else {
            backward_known_laws(values, hidden, labelled, settings, scale, tape, gradients);
        }
        if (draft_.confidence) backward_confidence(values, hidden, labelled.rows, settings, scale, tape, gradients);
        if (draft_.markov_rank == 0 || gradients.empty()) return;
        with_code(values, [&](auto const& code) {
            auto const d = gradients_of(code, gradients);
            std::size_t const gamma = draft_.block_size;
            auto const memory = tape.code_memory.span();
            for (std::size_t b = 0; b < memory.rows; ++b) {
                auto const block = [&](auto const& m) { return sureleap::row_range(m, b * gamma, gamma); };
                code.backward(inputs(tape, hidden, b), block(tape.codes.view()), block(d_codes.view()), memory.row(b),
                              d, {block(d_embeddings), block(d_hidden)});
            }
        });
        sureleap::scatter_add(d_embeddings.view(), previous, w1_.of(gradients));
    }

    [[nodiscard]] bool has_confidence() const noexcept { return draft_.confidence; }
    /// Tokens that are drafted.
    [[nodiscard]] std::size_t vocabulary() const noexcept { return lm_head_.rows; }

private:
    using markov_code = sureleap::markov_code<Real>;
    using gated_code = sureleap::gated_code<Real>;
    using rnn_code = sureleap::rnn_code<Real>;
    using confidence_logit = sureleap::confidence_logit<Real>;

    template <class F>
    void with_code(std::span<Real const> values, F const& f) const {
        switch (draft_.head) {
            case engine::head_kind::none:
            case engine::head_kind::domino: return;  // refused above
            case engine::head_kind::vanilla: return f(markov_code(draft_.markov_rank));
            case engine::head_kind::gated: return f(gated_code(weight_.of(values), bias_.values(values)));
            case engine::head_kind::rnn: return f(rnn_code(weight_.of(values), bias_.values(values)));
        }
    }
    [[nodiscard]] typename markov_code::gradients gradients_of(markov_code const&, std::span<Real>) const { return {}; }
    [[nodiscard]] typename gated_code::gradients gradients_of(gated_code const&, std::span<Real> g) const {
        return {weight_.of(g), bias_.values(g)};
    }
    [[nodiscard]] typename rnn_code::gradients gradients_of(rnn_code const&, std::span<Real> g) const {
        return {weight_.of(g), bias_.values(g)};
    }

    [[nodiscard]] sureleap::code_inputs<Real> inputs(head_tape<Real> const& tape, matrix_view<Real> hidden,
                                                     std::size_t block) const {
        std::size_t const gamma = draft_.block_size;
        return {sureleap::row_range(tape.embeddings.view(), block * gamma, gamma),
                sureleap::row_range(hidden, block * gamma, gamma)};
    }

    [[nodiscard]] std::size_t confidence_rank() const noexcept {
        return draft_.confidence_with_markov ? draft_.markov_rank : 0;
    }
    [[nodiscard]] confidence_logit confidence_head(std::span<Real const> values) const {
        return {confidence_weight_.of(values), confidence_bias_.values(values), confidence_rank()};
    }
    // The part of a row of e (or of its gradient) that the confidence head reads: all of it, or nothing.
    template <class Matrix>
    [[nodiscard]] auto raw_row(Matrix const& m, std::size_t i) const {
        return m.row(i).first(confidence_rank());
    }

    void backward_losses(std::span<Real const> values, matrix_view<Real> hidden, supervision<Real> const& labelled,
                         loss_settings const& settings, double scale, head_tape<Real>& tape,
                         std::span<Real> gradients) const {
        auto const& limits = labelled.limits;
        std::size_t const d = hidden.cols;
        sureleap::target_supervision const plan(labelled.sources, limits);
        sureleap::supervision_memory<Real> const memory{tape.target_rows.resize(limits.rows, d),
                                                        tape.target_logits.resize(limits.rows, lm_head_.rows)};
        std::vector<std::size_t> rows;  // the chunk's block rows
        auto const product = [&](matrix_view<Real> x, matrix_span<Real> y) { multiply(x, lm_head_, y); };
        plan.for_each_chunk(labelled.target_hidden, memory, product, [&](auto const& chunk) {
            rows.clear();
            for (std::size_t const slot : chunk.slots) rows.push_back(labelled.rows[slot]);
            std::span<std::size_t const> const chosen(rows);
            for (std::size_t i = 0; i < chunk.logits.rows; ++i) {
                fast_softmax{}(std::span<Real const>(chunk.logits.row(i)), chunk.logits.row(i));
            }
            backward_logits(values, hidden, chosen, tape, gradients, [&](std::size_t i, std::span<Real> logits) {
                double const weight = sureleap::position_weight(settings, rows[i] % draft_.block_size) * scale;
                return sureleap::draft_loss(settings, weight, logits, {chunk.logits.row(chunk.rows[i])},
                                            labelled.labels[rows[i]], fast_softmax{});
            });
        });
    }

    // The same of laws that were recorded, which need no product with the target's hidden states.
    void backward_known_laws(std::span<Real const> values, matrix_view<Real> hidden, supervision<Real> const& labelled,
                             loss_settings const& settings, double scale, head_tape<Real>& tape,
                             std::span<Real> gradients) const {
        for (std::size_t first = 0; first < labelled.rows.size(); first += labelled.limits.slots) {
            auto const chosen =
                labelled.rows.subspan(first, std::min(labelled.limits.slots, labelled.rows.size() - first));
            backward_logits(values, hidden, chosen, tape, gradients, [&](std::size_t i, std::span<Real> logits) {
                std::size_t const row = chosen[i];
                double const weight = sureleap::position_weight(settings, row % draft_.block_size) * scale;
                return recorded_loss(settings, weight, logits, labelled.laws.of(row), labelled.labels[row]);
            });
        }
    }

    // Logits of some rows, which loss(i, logits) makes the gradient of, and from there to what they were made of.
    template <class Loss>
    void backward_logits(std::span<Real const> values, matrix_view<Real> hidden, std::span<std::size_t const> chosen,
                         head_tape<Real>& tape, std::span<Real> gradients, Loss const& loss) const {
        std::size_t const r = draft_.markov_rank;
        auto const h = tape.hidden.resize(chosen.size(), hidden.cols);
        auto const z = tape.chunk_codes.resize(chosen.size(), r);
        auto const logits = tape.logits.resize(chosen.size(), lm_head_.rows);
        sureleap::gather_rows(hidden, chosen, h);
        sureleap::gather_rows(tape.codes.view(), chosen, z);
        multiply(h, lm_head_, logits);
        if (r > 0) multiply(z, w2_.of(values), logits, into::sum);
        for (std::size_t i = 0; i < chosen.size(); ++i) tape.losses[chosen[i]] = loss(i, logits.row(i));
        if (gradients.empty()) return;
        auto const d_rows = tape.d_rows.resize(chosen.size(), hidden.cols);
        multiply_back(logits, lm_head_, d_rows);
        sureleap::scatter_add(d_rows.view(), chosen, tape.d_hidden.span());
        if (r == 0) return;
        add_outer(logits, z, w2_.of(gradients));
        multiply_back(logits, w2_.of(values), z);  // z becomes dz
        sureleap::scatter_add(z.view(), chosen, tape.d_codes.span());
    }

    void backward_confidence(std::span<Real const> values, matrix_view<Real> hidden, std::span<std::size_t const> rows,
                             loss_settings const& settings, double scale, head_tape<Real>& tape,
                             std::span<Real> gradients) const {
        auto const head = confidence_head(values);
        for (std::size_t const i : rows) {
            auto const e = raw_row(tape.embeddings.view(), i);
            double const weight = sureleap::position_weight(settings, i % draft_.block_size) * scale;
            Real const d_logit = sureleap::confidence_loss(settings, weight, head(hidden.row(i), e), tape.losses[i]);
            if (gradients.empty()) continue;
            typename confidence_logit::gradients const d{confidence_weight_.values(gradients),
                                                         confidence_bias_.values(gradients)};
            head.backward(hidden.row(i), e, d_logit, d, tape.d_hidden.span().row(i),
                          raw_row(tape.d_embeddings.span(), i));
        }
    }

    engine::draft_config draft_;
    matrix_view<Real> lm_head_;
    tensor w1_, w2_;
    tensor weight_, bias_;  // of the gate, or of the joint projection
    tensor confidence_weight_, confidence_bias_;
};

}  // namespace train
