// SPDX-License-Identifier: MIT
//
// Calibration that is fitted while serving. Lent to the rounds, it maps every confidence. It is given their records and
// learns from what was accepted. What it learns acts from the next round on. So it depends on past rounds only, and
// every rule stays lossless.
//
//     online_calibration calibration{drafter.block_size(), {.tenants = 16}};
//     decoder dec{target, drafter, schedule, rule, {.max_requests = 64, .calibration = calibration}};
//     while (dec.step()) calibration.observe(dec.round());
//
// It also is the confidence of drafters that have no head. Give such a drafter top1_confidence, the one statistic of
// q_k that costs nothing beside the draw, and fit online_terms::history. How well this request was drafted of late is
// known before its next token is drawn. It says more about an easy or a hard text than the row of q alone. The row is
// all that c(q, k) sees, by signature before x_k; the request comes in here, where the round asks for it. Nothing has
// to be recorded between draw and verdict but the raw confidence, which every round keeps. Rejected: entropy and
// margin of q_k as further terms. They take two passes over the row for every token drafted, and won 0.6 to 1.7 % of
// the tokens a second under planned_schedule.
//
// The maps are serving/online_maps.hpp, which also argues why trimmed rounds do not bias them. Here are requests and
// tenants.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/round/record.hpp>
#include <sureleap/serving/drift.hpp>
#include <sureleap/serving/online_fit.hpp>
#include <sureleap/serving/online_maps.hpp>
#include <sureleap/serving/recent_acceptance.hpp>
#include <sureleap/verify/verdict.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What is learned, for how many tenants, and how much they share; fixed at set-up.
struct online_calibration_settings {
    online_settings maps{};
    /// Slots whose history is kept, for online_terms::history. Rounds that have more do not take the calibration.
    std::size_t max_requests = 0;
    /// Places for maps of tenants (request_settings::tenant), rounded up to whole sets of 8. 0: one map for everybody.
    std::size_t tenants = 0;
    /// Observations of its own at which a tenant's map is half its own and half the shared one; >= 1.
    double shared_weight = 512.0;
    /// false: tenants learn nothing from each other; each starts from the prior. Needs `tenants` > 0.
    bool shares_between_tenants = true;
};

/// A drift of the shared maps, or of those of a tenant; then rounds are counted in rounds that had requests of the
/// tenant since it got its place.
struct calibration_drift {
    std::optional<std::uint32_t> tenant{};
    drift_report what{};
};

/// Learns confidence maps from rounds. To be lent as a calibration_ref; must outlive what it is lent to. All memory is
/// taken at construction. Asking is const, concurrently callable and constant during a round; observing is neither.
class online_calibration {
public:
    explicit online_calibration(std::size_t block_size, online_calibration_settings const& settings = {})
        : shared_weight_(settings.shared_weight),
          shares_(settings.shares_between_tenants),
          relies_on_slots_(settings.maps.terms == online_terms::history),
          shared_(block_size, settings.maps),
          recent_(settings.max_requests) {
        if (!(shared_weight_ >= 1.0 && std::isfinite(shared_weight_))) {
            fail_with("online_calibration_settings: shared_weight is ", shared_weight_,
                      ", expected a finite number of at least 1");
        }
        if (!shares_ && settings.tenants == 0) {
            fail_with(
                "online_calibration_settings: tenants is 0 and shares_between_tenants is false, expected places for "
                "tenants, or maps that are shared");
        }
        if (settings.maps.terms == online_terms::history && settings.max_requests == 0) {
            fail_with(
                "online_calibration_settings: max_requests is 0, expected the number of slots whose history the maps "
                "rely on (online_terms::history)");
        }
        places_.resize((settings.tenants + set_size - 1) / set_size * set_size, place{shared_});
        drifts_.resize((places_.size() + 1) * 2 * block_size);
    }

    [[nodiscard]] std::size_t block_size() const noexcept { return shared_.block_size(); }

    /// Slots that it knows; no limit where maps rely on no history.
    [[nodiscard]] std::size_t max_requests() const noexcept {
        return relies_on_slots_ ? recent_.size() : std::numeric_limits<std::size_t>::max();
    }

    /// The calibrated confidence of position k < block_size() of a request. O(1).
    [[nodiscard]] double operator()(request_view const& request, std::size_t k, double c) const noexcept {
        online_maps const& maps = maps_of(request);
        return maps(k, logit_terms::of_confidence(c, history_of(request, maps)));
    }

    /// Learns from a round and ends it. Of trees from eldest children, whose confidences are those of a chain of their
    /// depth. O(gamma) for each request and each tenant among them, and a look at every place. Error, with nothing
    /// learned, if the round's blocks have more positions than the calibration.
    void observe(round_record const& round) {
        detail::expect_block("online_calibration", round.survivals.block_size, block_size());
        for (std::size_t r = 0; r < round.size(); ++r) {
            verdict const& v = round.verdicts[r];
            if (v.outcome != status::ok) continue;
            auto const raw = [&](std::size_t k) { return round.raw_confidence(r, k); };
            if (v.parents.empty()) {
                learn(round.requests[r], v.verified, v.accepted, raw);
            } else if (!round.raw_confidences.empty()) {
                learn_tree(round.requests[r], v, raw);
            }
        }
        close_round();
    }

    // The same for an engine that keeps no records: every request's outcome, then close_round().

    /// l tokens of the block were verified and a <= l accepted; raw(k) is the confidence of position k < l before it
    /// was calibrated. NaN: it was not, so there is nothing to learn.
    template <class Raw>
    void learn(request_view const& request, std::size_t verified, std::size_t accepted, Raw const& raw) {
        SURELEAP_EXPECTS(accepted <= verified);
        detail::expect_block("online_calibration", verified, block_size());
        learn_from(request, [&](auto const& judged) {
            for (std::size_t k = 0; k < verified && k <= accepted; ++k) judged(k, raw(k), k < accepted);
        });
    }
    /// Ends the round: from now on the maps know what it taught.
    void close_round() noexcept {
        drift_count_ = 0;
        report(std::nullopt, shared_.close_round(shared_requests_));
        shared_requests_ = 0;
        online_maps const* const centre = shares_ ? &shared_ : nullptr;
        for (place& p : places_) {
            if (p.requests == 0) continue;
            report(p.tenant, p.maps.close_round(p.requests, centre, shared_weight_));
            p.requests = 0;
        }
        if (!places_.empty() && shares_) {  // the others follow the shared maps in turns
            places_[round_ % places_.size()].maps.refit(centre, shared_weight_);
        }
        ++round_;
    }

    // ---- what was learned --------------------------------------------------------------------------------------

    /// Of all requests; with tenants that share nothing, the prior.
    [[nodiscard]] online_maps const& shared() const noexcept { return shared_; }
    /// Of a tenant; null while it has no place.
    [[nodiscard]] online_maps const* of_tenant(std::uint32_t tenant) const noexcept {
        place const* const p = find_place(tenant);
        return p ? &p->maps : nullptr;
    }
    /// Drifts that the last round brought to light, valid until the next.
    [[nodiscard]] std::span<calibration_drift const> drifts() const noexcept { return {drifts_.data(), drift_count_}; }
    [[nodiscard]] std::uint64_t rounds() const noexcept { return round_; }

    /// Goes on from evidence that was saved, shared maps only: tenants start from these.
    void restore(std::span<logit_evidence const> evidence) { shared_.restore(evidence); }

private:
    template <class Raw>
    void learn_tree(request_view const& request, verdict const& v, Raw const& raw) {
        learn_from(request, [&](auto const& judged) {
            for (std::size_t k = 0; k < v.verified; ++k) {
                if (v.reached(k)) judged(v.depth(k), raw(k), v.kept(k));
            }
        });
    }
    /// each(judged) calls judged(position, confidence, accepted) for all that the rule decided about by itself.
    template <class Each>
    void learn_from(request_view const& request, Each const& each) {
        place* const own = take_place(request.settings->tenant);
        online_maps const& in_force = maps_of(request);
        double const history = history_of(request, in_force);
        each([&](std::size_t k, double confidence, bool accepted) {
            if (std::isnan(confidence)) return;
            auto const x = logit_terms::of_confidence(confidence, history);
            if (shares_) shared_.observe(k, x, accepted);
            if (own) own->maps.observe(k, x, accepted);
            recent_.add(request, accepted);
        });
        if (shares_) ++shared_requests_;
        if (own) ++own->requests;
    }

    // A tenant can be in one of 8 places: finding it takes no table that grows, and few tenants push each other out
    // while there is room.
    static constexpr std::size_t set_size = 8;
    struct place {
        online_maps maps;
        std::uint32_t tenant = 0;
        bool taken = false;
        std::uint64_t last_used = 0;
        std::size_t requests = 0;  // in this round
    };

    [[nodiscard]] std::size_t first_of_set(std::uint32_t tenant) const noexcept {
        std::uint32_t const mixed = tenant * 0x9e3779b1u;  // neighbours apart
        return (mixed >> 8) % (places_.size() / set_size) * set_size;
    }
    [[nodiscard]] place const* find_place(std::uint32_t tenant) const noexcept {
        if (places_.empty()) return nullptr;
        auto const first = places_.begin() + static_cast<std::ptrdiff_t>(first_of_set(tenant));
        auto const last = first + set_size;
        auto const at = std::find_if(first, last, [&](place const& p) { return p.taken && p.tenant == tenant; });
        return at == last ? nullptr : &*at;
    }
    // The tenant's place, or the one of its set that was not used for longest; null if all are in use in this round.
    [[nodiscard]] place* take_place(std::uint32_t tenant) noexcept {
        if (places_.empty()) return nullptr;
        place* p = const_cast<place*>(find_place(tenant));
        if (!p) {
            place* const first = places_.data() + first_of_set(tenant);
            p = std::min_element(first, first + set_size, [](place const& a, place const& b) {
                return std::pair(a.taken, a.last_used) < std::pair(b.taken, b.last_used);
            });
            if (p->requests > 0) return nullptr;
            p->maps.forget();
            p->tenant = tenant;
            p->taken = true;
            if (shares_) p->maps.refit(&shared_, shared_weight_);
        }
        p->last_used = round_;
        return p;
    }
    [[nodiscard]] online_maps const& maps_of(request_view const& request) const noexcept {
        place const* const p = find_place(request.settings->tenant);
        return p ? p->maps : shared_;
    }

    [[nodiscard]] double history_of(request_view const& request, online_maps const& maps) const noexcept {
        return recent_.history(request, maps.mean_acceptance());
    }
    void report(std::optional<std::uint32_t> tenant, std::span<drift_report const> found) noexcept {
        for (drift_report const& d : found) drifts_[drift_count_++] = {tenant, d};
    }

    double shared_weight_;
    bool shares_;
    bool relies_on_slots_;
    online_maps shared_;
    std::size_t shared_requests_ = 0;
    std::vector<place> places_;
    recent_acceptance recent_;
    std::vector<calibration_drift> drifts_;
    std::size_t drift_count_ = 0;
    std::uint64_t round_ = 0;
};

SURELEAP_END_NAMESPACE
