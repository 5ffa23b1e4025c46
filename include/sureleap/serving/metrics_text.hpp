// SPDX-License-Identifier: MIT
//
// Serving counts in the text format that Prometheus and most other collectors scrape ("text/plain; version=0.0.4"):
//
//     # HELP sureleap_verified_tokens_total Draft tokens that were verified.
//     # TYPE sureleap_verified_tokens_total counter
//     sureleap_verified_tokens_total{engine="0"} 48211
//
// For the thread that answers a scrape, never for a round: it allocates, and formats some hundred numbers. Counters are
// exported and not their ratios, as the format's conventions ask: the reader makes rates and ratios of any window from
// them. docs/serving.md lists names, units and the usual queries. The exception is the expected calibration error,
// which is a sum of absolute values over bins: it is a gauge, over the window the caller chose.
#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/serving/metrics.hpp>

SURELEAP_BEGIN_NAMESPACE

/// A label that every sample carries. The name matches [a-zA-Z_][a-zA-Z0-9_]*; the value is any UTF-8.
struct metrics_label {
    std::string_view name;
    std::string_view value;
};

/// Names and labels of the text, and the window of its calibration error.
struct metrics_text_options {
    std::string_view prefix = "sureleap_";  ///< of every name
    std::span<metrics_label const> labels{};
    /// Window of the calibration error: serving_counts::since of an earlier read. Default: since the start.
    serving_counts const* recent = nullptr;
};

namespace detail {

/// Writes families of samples, one after the other.
template <class Out>
class metrics_text_writer {
public:
    metrics_text_writer(Out out, metrics_text_options const& options) : out_(std::move(out)), options_(options) {}

    /// Opens a family; the samples that follow are its own.
    void family(std::string_view name, std::string_view type, std::string_view help) {
        family_ = name;
        put("# HELP ", options_.prefix, name, " ", help, "\n");
        put("# TYPE ", options_.prefix, name, " ", type, "\n");
    }
    template <class Number>
    void sample(Number value, metrics_label const& own = {}, std::string_view suffix = {}) {
        put(options_.prefix, family_, suffix);
        char open = '{';
        for (metrics_label const& label : options_.labels) pair(label, open);
        if (!own.name.empty()) pair(own, open);
        if (open == ',') put("}");
        put(" ");
        number(value);
        put("\n");
    }
    template <class Number>
    void counter(std::string_view name, std::string_view help, Number value) {
        family(name, "counter", help);
        sample(value);
    }
    void histogram(std::string_view name, std::string_view help, histogram_counts const& h) {
        family(name, "histogram", help);
        std::uint64_t cumulative = 0;
        for (std::size_t i = 0; i < h.counts.size(); ++i) {
            cumulative += h.counts[i];
            bool const last = i == h.bounds.size();
            std::array<char, 32> digits{};
            sample(cumulative, {"le", last ? std::string_view("+Inf") : text_of(h.bounds[i], digits)}, "_bucket");
        }
        sample(h.sum, {}, "_sum");
        sample(cumulative, {}, "_count");
    }
    /// One sample for every position of the block, labelled 1 .. gamma as in the paper.
    template <class Value>
    void by_position(std::string_view name, std::string_view type, std::string_view help, std::size_t block_size,
                     Value const& value) {
        family(name, type, help);
        for (std::size_t k = 0; k < block_size; ++k) {
            std::array<char, 32> digits{};
            sample(value(k), {"position", text_of(k + 1, digits)});
        }
    }

    [[nodiscard]] Out end() { return std::move(out_); }

private:
    template <class Number>
    [[nodiscard]] static std::string_view text_of(Number value, std::array<char, 32>& digits) {
        // The shortest form that reads back as the same number, in no locale.
        auto const done = std::to_chars(digits.data(), digits.data() + digits.size(), value);
        return {digits.data(), static_cast<std::size_t>(done.ptr - digits.data())};
    }
    template <class Number>
    void number(Number value) {
        if constexpr (std::floating_point<Number>) {
            if (std::isnan(value)) return put("NaN");
            if (std::isinf(value)) return put(value > 0 ? "+Inf" : "-Inf");
        }
        std::array<char, 32> digits{};
        put(text_of(value, digits));
    }
    void pair(metrics_label const& label, char& open) {
        *out_++ = open;
        open = ',';
        put(label.name, "=\"");
        for (char const c : label.value) {
            if (c == '\n') {
                put("\\n");
                continue;
            }
            if (c == '\\' || c == '"') *out_++ = '\\';
            *out_++ = c;
        }
        put("\"");
    }
    template <class... Text>
    void put(Text const&... text) {
        auto const one = [&](std::string_view t) {
            for (char const c : t) *out_++ = c;
        };
        (one(text), ...);
    }

    Out out_;
    metrics_text_options const& options_;
    std::string_view family_;
};

}  // namespace detail

/// Writes `counts` to an output iterator of char and returns its end.
template <std::output_iterator<char> Out>
Out write_metrics_text(Out out, serving_counts const& counts, metrics_text_options const& options = {}) {
    detail::metrics_text_writer<Out> text{std::move(out), options};
    text.counter("rounds_total", "Rounds: steps of the whole batch.", counts.rounds);
    text.counter("undrafted_rounds_total", "Rounds in which no request drafted.", counts.undrafted_rounds);
    text.counter("request_rounds_total", "Rounds of single requests.", counts.request_rounds);
    text.counter("gated_request_rounds_total", "Request rounds that were not allowed to draft.",
                 counts.gated_request_rounds);
    text.family("failed_request_rounds_total", "counter",
                "Request rounds in which something went wrong, by status. Bad drafts end the drafts alone.");
    for (std::size_t i = 0; i < counts.failures.size(); ++i) {
        text.sample(counts.failures[i], {"status", to_string(serving_counts::failure_statuses[i])});
    }
    text.counter("drafted_tokens_total", "Tokens that were drafted.", counts.drafted);
    text.counter("verified_tokens_total", "Draft tokens that were verified.", counts.verified);
    text.counter("accepted_tokens_total", "Draft tokens that were accepted.", counts.accepted);
    text.counter("emitted_tokens_total", "Tokens that were emitted.", counts.emitted);
    text.counter("acceptable_tokens_total",
                 "Draft tokens that verifying all of them would have accepted, estimated from confidences.",
                 counts.acceptable);

    std::size_t const gamma = counts.positions.size();
    text.by_position("position_verified_total", "counter", "Verified tokens by position of the block.", gamma,
                     [&](std::size_t k) { return counts.positions[k].verified; });
    text.by_position("position_reached_total", "counter",
                     "Verified tokens with everything before them accepted, by position.", gamma,
                     [&](std::size_t k) { return counts.positions[k].reached; });
    text.by_position("position_accepted_total", "counter", "Accepted tokens by position.", gamma,
                     [&](std::size_t k) { return counts.positions[k].accepted; });
    text.by_position("position_confidence_total", "counter", "Sum of the confidences of reached tokens, by position.",
                     gamma, [&](std::size_t k) { return counts.positions[k].confidence; });
    serving_counts const& recent = options.recent != nullptr ? *options.recent : counts;
    text.by_position("calibration_error_ratio", "gauge",
                     "Expected calibration error of survivals, by position, over the exporter's window.", gamma,
                     [&](std::size_t k) { return recent.calibration_error(k); });

    text.histogram("verify_length_tokens", "Verified draft tokens of a request round.", counts.verify_length);
    text.histogram("batch_tokens", "Tokens of a round's batch: anchors and verified drafts.", counts.batch_tokens);
    text.histogram("step_seconds", "Time of a round.", counts.step_seconds);
    text.histogram("step_observed_over_predicted_ratio", "Observed over predicted time of a round.", counts.step_ratio);
    text.counter("step_observed_seconds_total", "Time of rounds that were predicted.", counts.observed_seconds);
    text.counter("step_predicted_seconds_total", "Predicted time of the same rounds.", counts.predicted_seconds);
    return text.end();
}

/// The same as a string.
[[nodiscard]] inline std::string metrics_text(serving_counts const& counts, metrics_text_options const& options = {}) {
    std::string text;
    write_metrics_text(std::back_inserter(text), counts, options);
    return text;
}

SURELEAP_END_NAMESPACE
