// SPDX-License-Identifier: MIT
//
// The compiled part of sureleap_verify: a verifier over the arrays of a call.
//
// Shapes and numbers of all small arrays were checked in Python (sureleap_verify/__init__.py). Here it is checked where
// rows lie, and by the library what rules and settings have to say.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <sureleap/verifier.hpp>
#include <sureleap/verify/any.hpp>

namespace nb = nanobind;
using namespace sureleap;

namespace {

using array = nb::ndarray<nb::ro>;
template <class T, class Shape>
using numbers = nb::ndarray<T, Shape, nb::c_contig, nb::device::cpu>;
template <class T>
using of_request = numbers<T const, nb::ndim<1>>;  // [R]
template <class T>
using of_draft = numbers<T const, nb::ndim<2>>;  // [R, gamma]

// ---- rows ------------------------------------------------------------------------------------------------------

/// Rows where they are: packed [rows, columns], or padded [R, per request, columns].
struct given_rows {
    std::byte const* data = nullptr;
    std::size_t item = 0;  // bytes of a number
    std::size_t columns = 0;
    std::size_t stride = 0;          // bytes from row to row
    std::size_t request_stride = 0;  // bytes from request to request; of padded rows
    bool padded = false;

    /// The first row of request r, which is row `packed` where there is no padding.
    template <class T>
    [[nodiscard]] T const* first(std::size_t r, std::size_t packed) const noexcept {
        return reinterpret_cast<T const*>(data + (padded ? r * request_stride : packed * stride));
    }
    /// From row to row, in numbers.
    [[nodiscard]] std::size_t pitch() const noexcept { return stride / item; }
};

/// Throws unless the rows are for `requests`, `per_request` of each if they are padded, or else `packed` in all.
given_rows rows_of(char const* name, array const& a, std::size_t requests, std::size_t per_request,
                   std::size_t packed) {
    if (a.device_type() != nb::device::cpu::value) {
        fail_with("verify: ", name, " lies on a device of type ", a.device_type(), ", expected memory of the host");
    }
    bool const padded = a.ndim() == 3;
    if (!padded && a.ndim() != 2) {
        fail_with("verify: ", name, " has ", a.ndim(), " axes, expected [rows, columns] or [R, rows of each, columns]");
    }
    if (padded && (a.shape(0) != requests || a.shape(1) != per_request)) {
        fail_with("verify: ", name, " has rows [", a.shape(0), ", ", a.shape(1), "], expected [R, rows of each] = [",
                  requests, ", ", per_request, "]");
    }
    if (!padded && a.shape(0) != packed) {
        fail_with("verify: ", name, " has ", a.shape(0), " rows, expected ", packed,
                  ": of each request one for its anchor and one for each draft");
    }
    std::size_t const columns = a.shape(a.ndim() - 1);
    if (columns == 0) fail_with("verify: ", name, " has no columns, expected at least 1");
    if (columns > 1 && a.size() > 0 && a.stride(a.ndim() - 1) != 1) {
        fail_with("verify: ", name, " has stride ", a.stride(a.ndim() - 1),
                  " along its last axis, expected 1: the numbers of a row lie side by side");
    }
    for (std::size_t axis = 0; axis + 1 < a.ndim(); ++axis) {
        if (a.shape(axis) > 1 && a.stride(axis) < 0) {
            fail_with("verify: ", name, " has stride ", a.stride(axis), " along axis ", axis, ", expected >= 0");
        }
    }
    std::size_t const item = a.itemsize();
    auto const* const data = static_cast<std::byte const*>(a.data());
    if (reinterpret_cast<std::uintptr_t>(data) % item != 0) {
        fail_with("verify: ", name, " lies at an address that is no multiple of ", item, ", expected aligned numbers");
    }
    auto const bytes = [&](std::size_t axis) { return static_cast<std::size_t>(a.stride(axis)) * item; };
    return {data, item, columns, bytes(a.ndim() - 2), padded ? bytes(0) : 0, padded};
}

/// Throws unless it is an array: a TypeError, as Python has for arguments of another type.
array array_of(char const* name, nb::object const& given) {
    array a;
    if (nb::try_cast(given, a, false)) return a;
    std::string const type = nb::type_name(given.type()).c_str();
    throw nb::type_error(("verify: " + std::string(name) + " is a " + type +
                          ", expected an array of numbers, of NumPy or another that has the buffer protocol or DLPack")
                             .c_str());
}

bool is_of(array const& a, nb::dlpack::dtype_code code, unsigned bits) {
    return a.dtype().code == static_cast<std::uint8_t>(code) && a.dtype().bits == bits && a.dtype().lanes == 1;
}

// ---- a call ----------------------------------------------------------------------------------------------------

/// A rule by its name, for tokens that were drawn from a q, or found.
any_rule rule_of(std::string_view name, bool drawn) {
    auto const either = [&](any_rule by_q, any_rule found) { return drawn ? by_q : found; };
    if (name == "token_rejection") return either(token_rejection<>{}, token_rejection<argmax_draft>{});
    if (name == "block_verification") return either(block_verification<>{}, block_verification<argmax_draft>{});
    if (name == "recursive_rejection") return either(recursive_rejection<>{}, recursive_rejection<argmax_draft>{});
    if (name == "traversal_verification") {
        return either(traversal_verification<>{}, traversal_verification<argmax_draft>{});
    }
    if (name == "target_match") return target_match<>{};
    if (name == "greedy_match") return greedy_match{};
    if (name == "keyed_coupling") return keyed_coupling{};
    fail_with("verify: rule is ", name,
              ", expected token_rejection, block_verification, target_match, greedy_match, keyed_coupling, "
              "recursive_rejection or traversal_verification");
}

/// Everything of a call; [R] or [R, gamma] as Python checked it.
struct call {
    given_rows target;
    std::optional<given_rows> q;
    bool probabilities;
    std::optional<given_rows> masks;
    any_rule rule;
    of_draft<token_id> drafts;
    std::optional<of_draft<node_id>> parents;
    of_request<std::int64_t> lengths;
    of_request<double> temperature;
    of_request<std::int32_t> top_k;
    of_request<double> top_p;
    of_request<double> min_p;
    of_request<std::uint64_t> seeds;
    of_request<std::uint64_t> positions;
    // Results.
    numbers<token_id, nb::ndim<2>> tokens;
    numbers<std::int64_t, nb::ndim<1>> counts;
    numbers<std::int64_t, nb::ndim<1>> accepted;
    std::optional<numbers<node_id, nb::ndim<2>>> paths;
    std::optional<numbers<double, nb::ndim<2>>> log_probabilities;
    std::vector<std::string> outcomes;

    [[nodiscard]] std::size_t requests() const noexcept { return drafts.shape(0); }
    [[nodiscard]] std::size_t block_size() const noexcept { return drafts.shape(1); }
};

void keep(call& c, std::size_t r, verdict const& v) {
    std::size_t const width = c.block_size() + 1;
    std::copy(v.emitted.begin(), v.emitted.end(), c.tokens.data() + r * width);
    c.counts.data()[r] = static_cast<std::int64_t>(v.emitted.size());
    c.accepted.data()[r] = static_cast<std::int64_t>(v.accepted);
    if (c.paths) std::copy(v.path.begin(), v.path.end(), c.paths->data() + r * c.block_size());
    if (c.log_probabilities) {
        std::copy(v.log_probabilities.begin(), v.log_probabilities.end(), c.log_probabilities->data() + r * width);
    }
    c.outcomes[r] = to_string(v.outcome == status::ok ? v.draft_outcome : v.outcome);
}

/// T: format of the target's rows. Rows of each request may lie anywhere, so each has a call of its own.
template <class T, class Edits>
void verify_rows(call& c) {
    std::size_t const vocabulary = c.target.columns;
    std::size_t const block_size = std::max(c.block_size(), std::size_t{1});
    verifier<T, any_rule, Edits> verify_one{c.rule,
                                            {.drafts = {.block_size = block_size,
                                                        .vocabulary = vocabulary,
                                                        .keeps_q = c.q.has_value(),
                                                        .trees = c.parents.has_value(),
                                                        .probabilities = c.probabilities},
                                             .log_probabilities = c.log_probabilities.has_value()}};
    std::size_t packed = 0;
    for (std::size_t r = 0; r < c.requests(); ++r) {
        std::size_t const first = r * c.block_size();
        std::int64_t const rows = c.lengths.data()[r] + 1;
        std::array<std::int64_t, 2> const row_begin{0, rows};
        engine_arrays<T> one{
            .requests = 1,
            .target = {c.target.first<T>(r, packed), static_cast<std::size_t>(rows), vocabulary, c.target.pitch()},
            .row_begin = row_begin.data(),
            .drafts = c.drafts.data() + first,
            .draft_stride = block_size,
            .positions = reinterpret_cast<std::int64_t const*>(c.positions.data()) + r,
            .settings = {.temperature = c.temperature.data() + r,
                         .top_k = c.top_k.data() + r,
                         .top_p = c.top_p.data() + r,
                         .min_p = c.min_p.data() + r,
                         .seeds = reinterpret_cast<std::int64_t const*>(c.seeds.data()) + r}};
        if (c.parents) one.parents = c.parents->data() + first;
        if (c.q) one.q = {.rows = c.q->first<float>(r, 0), .row_stride = c.q->pitch()};
        if (c.masks) {
            one.edits = {.bitmask = c.masks->first<std::int32_t>(r, packed), .bitmask_stride = c.masks->pitch()};
        }
        try {
            keep(c, r, verify_one(one)[0]);
        } catch (error const& e) {
            std::string_view const what = e.what();
            constexpr std::string_view own = "verifier: request 0: ";
            if (!what.starts_with(own)) throw;
            fail_with("verify: request ", r, ": ", what.substr(own.size()));
        }
        packed += static_cast<std::size_t>(rows);
    }
}

template <class T>
void verify_rows(call& c) {
    if (c.masks) {
        verify_rows<T, array_edits>(c);
    } else {
        verify_rows<T, no_logits_hook>(c);
    }
}

std::vector<std::string> verify(nb::object target_logits, std::optional<nb::object> q_rows, bool probabilities,
                                std::optional<nb::object> bitmask, std::string rule, of_draft<token_id> drafts,
                                std::optional<of_draft<node_id>> parents, of_request<std::int64_t> lengths,
                                of_request<double> temperature, of_request<std::int32_t> top_k,
                                of_request<double> top_p, of_request<double> min_p, of_request<std::uint64_t> seeds,
                                of_request<std::uint64_t> positions, numbers<token_id, nb::ndim<2>> tokens,
                                numbers<std::int64_t, nb::ndim<1>> counts, numbers<std::int64_t, nb::ndim<1>> accepted,
                                std::optional<numbers<node_id, nb::ndim<2>>> paths,
                                std::optional<numbers<double, nb::ndim<2>>> log_probabilities) {
    using enum nb::dlpack::dtype_code;
    array const target = array_of("target_logits", target_logits);
    std::optional<array> q;
    if (q_rows) q = array_of("q", *q_rows);
    std::optional<array> masks;
    if (bitmask) masks = array_of("bitmask", *bitmask);
    std::size_t const requests = drafts.shape(0);
    std::size_t const width = drafts.shape(1) + 1;
    std::size_t packed = requests;
    for (std::size_t r = 0; r < requests; ++r) packed += static_cast<std::size_t>(lengths.data()[r]);

    call c{rows_of("target_logits", target, requests, width, packed),
           {},
           probabilities,
           {},
           rule_of(rule, q.has_value()),
           drafts,
           parents,
           lengths,
           temperature,
           top_k,
           top_p,
           min_p,
           seeds,
           positions,
           tokens,
           counts,
           accepted,
           paths,
           log_probabilities,
           std::vector<std::string>(requests)};
    std::size_t const vocabulary = c.target.columns;
    for (std::size_t i = 0; i < drafts.size(); ++i) {
        if (drafts.data()[i] < 0 || static_cast<std::size_t>(drafts.data()[i]) < vocabulary) continue;
        fail_with("verify: drafts[", i / (width - 1), ", ", i % (width - 1), "] is ", drafts.data()[i],
                  ", expected a token of the target, 0 .. ", vocabulary - 1, ", or -1 behind the last one");
    }
    if (q) {
        if (!is_of(*q, Float, 32)) fail_with("verify: q holds no float32, expected that");
        if (q->ndim() != 3) fail_with("verify: q has ", q->ndim(), " axes, expected [R, gamma, V]");
        c.q = rows_of("q", *q, requests, width - 1, 0);
        if (c.q->columns != vocabulary) {
            fail_with("verify: q has rows of ", c.q->columns, " numbers, expected ", vocabulary, " as target_logits");
        }
    }
    if (masks) {
        if (!is_of(*masks, Int, 32) && !is_of(*masks, UInt, 32)) {
            fail_with("verify: bitmask holds no int32 words, expected those: 32 tokens each");
        }
        c.masks = rows_of("bitmask", *masks, requests, width, packed);
        if (c.masks->columns != mask_words(vocabulary)) {
            fail_with("verify: bitmask has rows of ", c.masks->columns, " words, expected ", mask_words(vocabulary),
                      ": a bit for each of the ", vocabulary, " tokens");
        }
    }

    bool const halves = is_of(target, Float, 16);
    bool const bf16s = is_of(target, Bfloat, 16) || is_of(target, UInt, 16);
    if (!halves && !bf16s && !is_of(target, Float, 32)) {
        fail_with("verify: target_logits holds no logits, expected float32, float16 or bfloat16");
    }
    {
        nb::gil_scoped_release const others_run;
        if (halves) {
            verify_rows<half>(c);
        } else if (bf16s) {
            verify_rows<bf16>(c);
        } else {
            verify_rows<float>(c);
        }
    }
    return c.outcomes;
}

}  // namespace

NB_MODULE(_core, m) {
    nb::register_exception_translator([](std::exception_ptr const& thrown, void*) {
        try {
            std::rethrow_exception(thrown);
        } catch (error const& e) {
            PyErr_SetString(PyExc_ValueError, e.what());
        }
    });
    m.def("verify", &verify, nb::arg(), nb::arg().none(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg(),
          nb::arg().none(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
          nb::arg().noconvert(), nb::arg().noconvert(), nb::arg().noconvert(), nb::arg().noconvert().none(),
          nb::arg().noconvert().none());
}
