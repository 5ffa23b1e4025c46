// SPDX-License-Identifier: MIT
//
// Which pass of a model something belongs to.
//
// A model computes every pass into the same memory, and lends what it finds there: rows of logits, hidden states. Where
// rounds overlap, a later pass may overwrite what an earlier round has still to read. Tokens would then be drawn from
// one row and judged by another, which is a bias that nothing else shows. So what is lent says of which pass it is, and
// the stages refuse it once the next pass has begun (round/stages.hpp).
//
//     logits_rows<float> score(verify_batch const& batch) {
//         pass_stamp const pass = passes_.begin(fingerprint_of(batch.requests()));  // before anything is overwritten
//         ...
//         return {.values = rows, .pass = pass};
//     }
//     pass_counter passes_;  // one for each buffer: with two of them, two passes may overlap
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include <sureleap/core/config.hpp>

SURELEAP_BEGIN_NAMESPACE

/// A pass, and what to ask whether its memory is still its own. Must not outlive the pass_counter. By default it names
/// no pass and is always current: the memory is said to stay.
class pass_stamp {
public:
    pass_stamp() = default;
    /// `requests`: whom the pass was for (fingerprint_of); 0 does not say.
    pass_stamp(std::atomic<std::uint64_t> const* now, std::uint64_t number, std::uint64_t requests) noexcept
        : now_(now), number_(number), requests_(requests) {}

    [[nodiscard]] bool is_named() const noexcept { return now_ != nullptr; }
    /// No other pass has begun in the same memory.
    [[nodiscard]] bool is_current() const noexcept { return now_ == nullptr || latest() == number_; }
    /// Whom it was for; 0: it does not say.
    [[nodiscard]] std::uint64_t requests() const noexcept { return requests_; }
    /// From 1 on; 0: no pass is named.
    [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
    /// The pass that the memory is lent to now.
    [[nodiscard]] std::uint64_t latest() const noexcept {
        return now_ == nullptr ? 0 : now_->load(std::memory_order_relaxed);
    }
    /// The same pass, for whom it was.
    [[nodiscard]] pass_stamp made_for(std::uint64_t requests) const noexcept { return {now_, number_, requests}; }

private:
    std::atomic<std::uint64_t> const* now_ = nullptr;
    std::uint64_t number_ = 0;
    std::uint64_t requests_ = 0;
};

/// Counts the passes that one piece of memory is lent to. A copy counts its own, as it has memory of its own. Stamps
/// stay good when it moves. The number is atomic, so that a pass on another thread is noticed as well.
class pass_counter {
public:
    pass_counter() : now_(std::make_unique<std::atomic<std::uint64_t>>(0)) {}
    pass_counter(pass_counter const&) : pass_counter() {}
    pass_counter(pass_counter&&) noexcept = default;
    pass_counter& operator=(pass_counter const&) noexcept {
        begin();  // what was lent is replaced as well
        return *this;
    }
    pass_counter& operator=(pass_counter&&) noexcept = default;

    /// The next pass begins: what was lent before is no longer current.
    pass_stamp begin(std::uint64_t requests = 0) noexcept {
        return {now_.get(), now_->fetch_add(1, std::memory_order_relaxed) + 1, requests};
    }
    [[nodiscard]] pass_stamp current() const noexcept { return {now_.get(), now_->load(std::memory_order_relaxed), 0}; }

private:
    std::unique_ptr<std::atomic<std::uint64_t>> now_;
};

/// The pass of what was lent: of rows, of a forward pass, or of a type of one's own that has a member `pass`.
template <class Lent>
[[nodiscard]] pass_stamp pass_of(Lent const& lent) noexcept {
    if constexpr (requires { pass_stamp(lent.pass); }) {
        return lent.pass;
    } else if constexpr (requires { pass_stamp(lent.base_logits.pass); }) {
        return lent.base_logits.pass;
    } else {
        return {};
    }
}

/// Memory of T for each pass, for parts that have something to remember of it: who holds the pointer has the memory. It
/// takes more where more passes overlap than ever before. A copy has memory of its own.
template <class T>
class pass_pool {
public:
    pass_pool() = default;
    pass_pool(pass_pool const&) noexcept {}
    pass_pool(pass_pool&&) noexcept = default;
    pass_pool& operator=(pass_pool const&) noexcept { return *this; }
    pass_pool& operator=(pass_pool&&) noexcept = default;

    [[nodiscard]] std::shared_ptr<T> take() {
        for (auto const& memory : all_) {
            if (memory.use_count() == 1) return memory;
        }
        return all_.emplace_back(std::make_shared<T>());
    }

private:
    std::vector<std::shared_ptr<T>> all_;
};

SURELEAP_END_NAMESPACE
