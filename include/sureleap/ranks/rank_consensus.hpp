// SPDX-License-Identifier: MIT
//
// What the ranks of an engine agree on in a round, over any communicator: the exchange of `agreed`
// (schedule/agreed.hpp).
//
//     agreed schedule{top_k_schedule{cost}, rank_consensus{ranks, {.fingerprint = of_the_model}}};
//
// Three exchanges a round: limits, weights and floor, before anything is drafted; the batch; the seconds. Each carries
// a checksum of what must be the same on all ranks. So a rank of another version or model, or with other requests,
// seeds or positions, is found before its round emits anything. Then, and where a rank is lost, the round ends on every
// rank with nothing emitted and the status ranks_differ or ranks_lost.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/ranks/gather.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What ranks hold.
enum class rank_requests : std::uint8_t {
    same,  ///< the same ones, as ranks with a slice of the model do: rank 0's numbers are everybody's
    own    ///< each its own, and they pad to one batch: the largest number is everybody's, limits are not exchanged
};

struct rank_consensus_options {
    rank_requests requests = rank_requests::same;
    std::size_t max_requests = 256;  ///< of a round; the same on all ranks
    std::uint64_t fingerprint = 0;   ///< of what else must be the same: the model, its shapes, how it is divided
};

namespace detail {

/// A number that depends on all that was put in, and on its order. Finaliser of splitmix64 (Steele et al. 2014).
class mixed_number {
public:
    void put(std::uint64_t x) noexcept {
        value_ = (value_ ^ x) + 0x9e3779b97f4a7c15u;
        value_ = (value_ ^ value_ >> 30) * 0xbf58476d1ce4e5b9u;
        value_ = (value_ ^ value_ >> 27) * 0x94d049bb133111ebu;
        value_ ^= value_ >> 31;
    }
    void put(double x) noexcept { put(std::bit_cast<std::uint64_t>(x)); }
    [[nodiscard]] std::uint64_t value() const noexcept { return value_; }

private:
    std::uint64_t value_ = 0;
};

/// Of all by which ranks with the same requests would draw or emit otherwise.
[[nodiscard]] inline std::uint64_t mixed(std::span<request_view const> requests) noexcept {
    mixed_number all;
    for (request_view const& r : requests) {
        all.put(r.id);
        all.put(r.seed);
        all.put(r.position);
        all.put(static_cast<std::uint64_t>(static_cast<std::uint32_t>(r.anchor)));
        all.put(std::uint64_t{r.remaining});
        all.put(r.settings->temperature);
        all.put(static_cast<std::uint64_t>(static_cast<std::uint32_t>(r.settings->top_k)));
        all.put(r.settings->top_p);
        all.put(r.settings->min_p);
        all.put(std::uint64_t{r.settings->max_draft_tokens});
    }
    return all.value();
}

}  // namespace detail

/// Models batch_exchange over `ranks`, which must outlive it. Made on all ranks; copies are one and the same. Allocates
/// when it is made, and never again. Bytes of a round and rank: 48, and 24 + 16 max_requests if they hold the same
/// requests.
template <communicator Ranks>
class rank_consensus {
public:
    /// Throws sureleap::error on every rank if one has another version, fingerprint or options, or if one is lost.
    explicit rank_consensus(Ranks& ranks, rank_consensus_options const& options = {})
        : state_(std::make_shared<state>(ranks, options)) {
        state_->meet();
    }

    /// The batch of rank 0, or the largest.
    [[nodiscard]] std::size_t operator()(std::size_t batch) const noexcept {
        return static_cast<std::size_t>(state_->decide(topic::batch, static_cast<double>(batch)));
    }
    /// The seconds of rank 0, or of the slowest; NaN if nobody timed the round.
    [[nodiscard]] double seconds(double s) const noexcept { return state_->decide(topic::seconds, s); }
    /// The limits, weights and floor of rank 0, if all hold the same requests.
    void drafting(std::span<request_view> requests, fixed_probability& floor) const noexcept {
        state_->take_limits(requests, floor);
    }
    /// How the ranks stand: ok, ranks_lost or ranks_differ. It does not become better; make new ones.
    [[nodiscard]] status standing() const noexcept { return state_->standing; }

private:
    enum class topic : std::uint64_t { meeting, limits, batch, seconds };
    struct word {
        std::uint64_t step = 0;      // how many exchanges there were
        std::uint64_t checksum = 0;  // of what must be the same
        double number = 0.0;
    };

    struct state {
        Ranks& ranks;
        rank_consensus_options options;
        status standing = status::ok;
        std::uint64_t steps = 0;
        std::vector<word> words;            // [size]
        std::vector<std::uint64_t> limits;  // step, checksum, floor, then a limit and a weight for each request
        std::vector<std::uint64_t> of_all;  // [size] of them

        state(Ranks& over, rank_consensus_options const& how)
            : ranks(over),
              options(how),
              words(over.size()),
              limits(3 + 2 * how.max_requests),
              of_all(over.size() * limits.size()) {}

        void meet() {
            detail::mixed_number own;
            own.put(std::uint64_t{SURELEAP_VERSION_MAJOR * 1000000 + SURELEAP_VERSION_MINOR * 1000 +
                                  SURELEAP_VERSION_PATCH});
            own.put(options.fingerprint);
            own.put(static_cast<std::uint64_t>(options.requests));
            own.put(std::uint64_t{options.max_requests});
            exchange({++steps, checksum(topic::meeting, own.value()), 0.0});
            if (standing == status::ranks_lost) {
                fail_with("rank_consensus: rank ", ranks.rank(), " of ", ranks.size(),
                          " waited in vain for the others to make theirs");
            }
            for (std::size_t i = 0; i < words.size(); ++i) {
                if (words[i].checksum == words[0].checksum) continue;
                fail_with("rank_consensus: rank ", i,
                          " has another version, fingerprint or other options, expected those of rank 0");
            }
        }
        [[nodiscard]] double decide(topic what, double number) noexcept {
            exchange({++steps, checksum(what, 0), number});
            if (standing != status::ok) return number;
            if (options.requests == rank_requests::same) return words[0].number;
            double most = words[0].number;
            for (word const& w : words) most = std::fmax(most, w.number);  // which leaves out NaN
            return most;
        }
        void take_limits(std::span<request_view> requests, fixed_probability& floor) noexcept {
            if (options.requests == rank_requests::own || standing != status::ok) return;
            if (requests.size() > options.max_requests) {
                standing = status::ranks_differ;
                return;
            }
            detail::mixed_number own;
            own.put(std::uint64_t{requests.size()});
            own.put(detail::mixed(requests));
            limits[0] = ++steps;
            limits[1] = checksum(topic::limits, own.value());
            limits[2] = floor;
            for (std::size_t r = 0; r < requests.size(); ++r) {
                limits[3 + 2 * r] = requests[r].draft_limit;
                limits[4 + 2 * r] = requests[r].weight;
            }
            if (!gather(ranks, std::span<std::uint64_t const>(limits), std::span(of_all))) {
                standing = status::ranks_lost;
                return;
            }
            for (std::size_t i = 0; i < words.size(); ++i) {
                words[i] = {of_all[i * limits.size()], of_all[i * limits.size() + 1], 0.0};
            }
            compare();
            if (standing != status::ok) return;
            floor = static_cast<fixed_probability>(of_all[2]);
            for (std::size_t r = 0; r < requests.size(); ++r) {
                requests[r].draft_limit = static_cast<std::size_t>(of_all[3 + 2 * r]);
                requests[r].weight = static_cast<fixed_probability>(of_all[4 + 2 * r]);
            }
        }

    private:
        [[nodiscard]] static std::uint64_t checksum(topic what, std::uint64_t of) noexcept {
            detail::mixed_number all;
            all.put(static_cast<std::uint64_t>(what));
            all.put(of);
            return all.value();
        }
        void exchange(word const& own) noexcept {
            if (standing != status::ok) return;
            if (gather(ranks, own, std::span(words))) {
                compare();
            } else {
                standing = status::ranks_lost;
            }
        }
        void compare() noexcept {
            for (word const& w : words) {
                if (w.step != words[0].step || w.checksum != words[0].checksum) standing = status::ranks_differ;
            }
        }
    };

    std::shared_ptr<state> state_;
};

template <communicator Ranks>
rank_consensus(Ranks&, rank_consensus_options) -> rank_consensus<Ranks>;
template <communicator Ranks>
rank_consensus(Ranks&) -> rank_consensus<Ranks>;

SURELEAP_END_NAMESPACE
