// SPDX-License-Identifier: MIT
//
// Any calls of the C header in any order, with wrong sizes, null pointers, NaN and handles of objects that are gone.
// Each has to end in a result, and rounds that are called in order have to go on working. Runs with any compiler; under
// sanitizers a call that reads or writes what it should not is a crash.
//
//     c.fuzz_calls [calls, by default 200,000] [seed]
#include <sureleap/sureleap.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <random>
#include <vector>

namespace {

std::int32_t ends_at_even(void*, std::uint64_t, std::int32_t const* emitted, std::size_t count) {
    return emitted[count - 1] % 2 == 0 ? 1 : 0;
}

std::int32_t const* allows_some(void*, std::uint64_t id, std::int32_t const* drafted, std::size_t count) {
    static constexpr std::int32_t words[] = {0x0fff, 0x0a5a, 0x0010, 0};
    return id == 2 ? nullptr : &words[(count > 0 ? static_cast<std::size_t>(drafted[count - 1]) : 0) % 4];
}

constexpr std::size_t V = 12;
constexpr std::size_t gamma_most = 5;
constexpr std::size_t most_requests = 3;
constexpr std::size_t places = 4;  // objects of each kind

class caller {
public:
    explicit caller(std::uint64_t seed) : dice_(seed) {
        for (auto& m : memories_) m = std::make_unique<std::byte[]>(room);
        for (float& x : numbers_) x = std::uniform_real_distribution<float>(-2.0f, 2.0f)(dice_);
        for (std::size_t i = 0; i < lists_.size(); ++i) lists_[i] = static_cast<std::int32_t>(i % V);
    }
    ~caller() {
        for (std::size_t i = 0; i < places; ++i) {
            static_cast<void>(sureleap_round_destroy(rounds_[i]));
            static_cast<void>(sureleap_calibration_destroy(calibrations_[i]));
            static_cast<void>(sureleap_cost_destroy(costs_[i]));
        }
    }

    /// One call; more often than not the one that would be right next.
    void call() {
        ++calls_;
        sureleap_round* const r = coin(0.9) ? rounds_[current_] : any_round();
        switch (coin(0.75) ? next_ : below(14)) {
            case 0: return create_round();
            case 1: return begin(r);
            case 2: return plan(r);
            case 3: return draft(r);
            case 4: return admit(r);
            case 5: return accept(r);
            case 6: return end(r);
            case 7: count(sureleap_round_rollback(r)); return;
            case 8: count(sureleap_round_join(r, size(most_requests))); return;
            case 9: return cost();
            case 10: return calibration();
            case 11: return observe(r);
            case 12:
                if (coin(0.1)) count(sureleap_round_destroy(r));
                return;
            default: current_ = below(places); return;
        }
    }

    [[nodiscard]] std::uint64_t refused() const { return refused_; }
    [[nodiscard]] std::uint64_t verdicts() const { return verdicts_; }
    [[nodiscard]] std::uint64_t failed_verdicts() const { return failed_; }
    /// What no call may ever say.
    [[nodiscard]] bool strange() const { return strange_; }

private:
    static constexpr std::size_t room = 1 << 16;

    [[nodiscard]] bool coin(double p) { return std::uniform_real_distribution<>()(dice_) < p; }
    /// Whether something is made wrong. Half of the rounds are spared: with dozens of places to fail few others end.
    [[nodiscard]] bool spoils(double p) { return !spared_ && coin(p); }
    [[nodiscard]] std::size_t below(std::size_t n) {
        return std::uniform_int_distribution<std::size_t>(0, n - 1)(dice_);
    }
    /// A good size, or one that is not.
    [[nodiscard]] std::size_t size(std::size_t good) {
        if (!spoils(0.05)) return good;
        constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
        std::array<std::size_t, 8> const bad{0,    good + 1, good - 1, good / 2,
                                             most, most / 2, most / 8, std::size_t{1} << 40};
        return bad[below(bad.size())];
    }
    /// The same from a row to the next. Where it is refused or within what is there: more cannot be known of a pointer.
    [[nodiscard]] std::size_t stride(std::size_t good) {
        if (!spoils(0.05)) return good;
        constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
        std::array<std::size_t, 5> const others{0, good - 1, good + 1, most, most / 2};
        return others[below(others.size())];
    }
    [[nodiscard]] std::int32_t choice(std::int32_t count) {
        if (spoils(0.02)) return static_cast<std::int32_t>(dice_());
        return static_cast<std::int32_t>(below(static_cast<std::size_t>(count)));
    }
    [[nodiscard]] double number(double good) {
        if (!spoils(0.05)) return good;
        std::array<double, 7> const bad{std::numeric_limits<double>::quiet_NaN(),
                                        std::numeric_limits<double>::infinity(),
                                        -std::numeric_limits<double>::infinity(),
                                        -1.0,
                                        0.0,
                                        1e300,
                                        5e-324};
        return bad[below(bad.size())];
    }
    template <class T>
    [[nodiscard]] T* maybe(T* pointer) {
        return spoils(0.02) ? nullptr : pointer;
    }
    [[nodiscard]] sureleap_round* any_round() {
        // Null, a place that nothing was made in, an object of another kind, or a round.
        switch (below(4)) {
            case 0: return nullptr;
            case 1: return reinterpret_cast<sureleap_round*>(costs_[below(places)]);
            case 2: return reinterpret_cast<sureleap_round*>(empty_.data());
            default: return rounds_[below(places)];
        }
    }

    void count(sureleap_result result) {
        if (result != SURELEAP_OK) ++refused_;
        strange_ = strange_ || result < SURELEAP_OK || result > SURELEAP_NOT_LOSSLESS;
        // The right call after this one, if it went well; else any.
        last_ok_ = result == SURELEAP_OK;
    }
    void then(std::size_t next) { next_ = last_ok_ ? next : coin(0.5) ? 1 : below(14); }

    void create_round() {
        sureleap_round_options o;
        sureleap_round_options_init(&o);
        o.struct_size = size(o.struct_size);
        o.rule = choice(5);
        if (coin(0.3)) o.draft_rule = choice(4);
        o.schedule = choice(7);
        o.confidence = coin(0.7) ? SURELEAP_CONFIDENCE_GIVEN : choice(3);
        o.target_format = choice(3);
        o.draft_format = choice(3);
        o.q = choice(3);
        o.q_values = coin(0.8) ? 0 : choice(2);
        o.plans_at_anchor = coin(0.8) ? 1 : choice(2);
        o.allow_lossy = coin(0.9) ? 0 : choice(2);
        o.constrained = choice(2);
        o.top_log_probabilities = coin(0.5) ? 2 : size(0);
        o.max_requests = size(most_requests);
        o.block_size = size(1 + below(gamma_most));
        o.vocabulary = size(V);
        o.list_size = size(V);
        o.threshold = number(0.5);
        o.prior = number(0.8);
        o.lag = size(2);
        o.fixed_length = size(3);
        o.cost = coin(0.9) ? costs_[below(places)] : nullptr;
        o.calibration = coin(0.4) ? calibrations_[below(places)] : nullptr;
        sureleap_error error{};
        std::size_t bytes = 0;
        count(sureleap_round_bytes(maybe(&o), maybe(&bytes), maybe(&error)));
        std::size_t const at = below(places);
        if (!last_ok_ || bytes == 0 || bytes > room) return then(0);
        // A round may not be made where another lives: its memory is in use.
        static_cast<void>(sureleap_round_destroy(rounds_[at]));
        void* const memory = maybe(memories_[at].get() + below(64));
        sureleap_round* made = nullptr;
        count(
            sureleap_round_create(maybe(&o), memory, coin(0.05) ? bytes / 2 : room - 64, maybe(&made), maybe(&error)));
        if (made != nullptr) {
            rounds_[at] = made;
            options_[at] = o;
            current_ = at;
        }
        then(1);
    }
    void begin(sureleap_round* r) {
        spared_ = coin(0.5);
        std::size_t const requests = below(most_requests + 1);
        for (std::size_t i = 0; i < requests; ++i) {
            sureleap_request& q = requests_[i];
            sureleap_request_init(&q);
            q.id = i;
            q.slot = size(i);
            q.anchor = static_cast<std::int32_t>(spoils(0.02) ? dice_() : below(V));
            q.position = spoils(0.01) ? dice_() : (position_ += 8);
            q.seed = dice_();
            q.remaining = coin(0.9) ? q.remaining : size(2);
            q.draft_limit = coin(0.8) ? q.draft_limit : size(1);
            q.target.temperature = number(coin(0.7) ? 1.0 : 0.0);
            q.target.top_p = number(coin(0.8) ? 1.0 : 0.7);
            q.target.min_p = coin(0.9) ? 0.0 : number(0.1);
            q.target.top_k = coin(0.8) ? 0 : choice(5);
            if (coin(0.2)) q.draft = {number(1.0), choice(4), number(1.0), number(0.0)};
            q.priority = number(1.0);
            q.tenant = static_cast<std::uint32_t>(below(3));
            q.stop_tokens = maybe(lists_.data());
            q.stop_token_count = coin(0.8) ? 0 : 2;
            if (coin(0.2)) q.text_end = ends_at_even;
            if (coin(0.2)) q.constraint = allows_some;
            if (coin(0.1)) q.min_new_tokens = size(2);
            q.log_probabilities = coin(0.5) ? 1 : 0;
            q.raw_log_probabilities = coin(0.5) ? 1 : 0;
            if (q.log_probabilities == 1) q.top_log_probabilities = size(below(3));
            q.replays = coin(0.5) ? 1 : 0;
            q.unread = coin(0.8) ? below(300) : dice_();
        }
        count_ = requests;
        count(sureleap_round_begin(r, requests == 0 ? nullptr : maybe(requests_.data()),
                                   spoils(0.02) ? most_requests + 2 + below(99) : requests, maybe(caps_.data())));
        bool const plans = options_[current_].schedule == SURELEAP_PLANNED;
        then(plans && coin(0.95) ? 2 : 3);
    }
    void spoil() {
        if (spoils(0.02)) numbers_[below(numbers_.size())] = static_cast<float>(number(0.3));
        if (spoils(0.02)) confidences_[below(confidences_.size())] = number(0.6);
        if (spoils(0.02)) lists_[below(lists_.size())] = static_cast<std::int32_t>(coin(0.5) ? below(V) : dice_());
    }
    void plan(sureleap_round* r) {
        spoil();
        count(sureleap_round_plan(r, maybe(confidences_.data()), stride(options_[current_].block_size)));
        then(3);
    }
    /// Rows of numbers in some format: the numbers' bits will do. What is told never exceeds what is there.
    [[nodiscard]] sureleap_rows rows(std::size_t needed) {
        sureleap_rows rows{};
        rows.data = maybe(reinterpret_cast<std::byte const*>(numbers_.data()) + (spoils(0.02) ? 1 : 0));
        rows.rows = size(needed);
        rows.columns = size(V);
        rows.stride = stride(V);
        return rows;
    }
    void draft(sureleap_round* r) {
        spoil();
        sureleap_drafts d{};
        d.positions = size(coin(0.7) ? 1 : options_[current_].block_size);
        for (std::size_t& c : counts_) c = spoils(0.02) ? below(1u << 20) : below(2);
        d.counts = coin(0.7) ? nullptr : counts_.data();
        bool const one_hot = options_[current_].q == SURELEAP_Q_ONE_HOT;
        d.tokens = coin(one_hot ? 0.95 : 0.2) ? lists_.data() : nullptr;
        d.confidences = maybe(confidences_.data());
        d.rows = rows(count_ * d.positions);
        d.list_tokens = maybe(lists_.data());
        d.list_stride = stride(V);
        d.list_counts = coin(0.7) ? nullptr : list_counts_.data();
        for (std::size_t& c : list_counts_) c = size(1 + below(V));
        d.drawn = coin(0.5) ? nullptr : drawn_.data();
        count(sureleap_round_draft(r, maybe(&d)));
        then(coin(0.5) ? 3 : 4);
    }
    void admit(sureleap_round* r) {
        sureleap_batch b{};
        count(sureleap_round_admit(r, maybe(&b)));
        if (b.rows > 0) batch_rows_ = b.rows;
        then(5);
    }
    void accept(sureleap_round* r) {
        spoil();
        sureleap_rows target = rows(batch_rows_);
        if (coin(0.1)) target.log_normalisers = confidences_as_floats_.data();
        if (coin(0.05)) {
            target.block_sums = confidences_as_floats_.data();
            target.block_sums_stride = stride(1);
        }
        if (spoils(0.1)) target.per_request = coin(0.5) ? 1 + below(9) : dice_();
        count(sureleap_round_accept(r, maybe(&target)));
        then(6);
    }
    void end(sureleap_round* r) {
        count(sureleap_round_end(r, maybe(verdicts_of_.data()), spoils(0.02) ? 0 : 2 * most_requests));
        if (last_ok_) {
            for (std::size_t i = 0; i < count_ && r == rounds_[current_]; ++i) {
                ++verdicts_;
                sureleap_verdict const& v = verdicts_of_[i];
                failed_ += v.outcome == SURELEAP_REQUEST_OK && v.draft_outcome == SURELEAP_REQUEST_OK ? 0u : 1u;
            }
        }
        then(coin(0.3) ? 11 : coin(0.05) ? 0 : 1);
    }
    void cost() {
        std::array<std::size_t, 3> tokens{1, size(4), size(16)};
        std::array<double, 3> seconds{number(1.0), number(1.5), number(3.0)};
        sureleap_cost_options o;
        sureleap_cost_options_init(&o);
        o.struct_size = size(o.struct_size);
        o.kind = choice(4);
        o.prices.draft_token = number(0.01);
        o.prices.unread_token = number(0.001);
        o.prices.replay = number(1.0);
        if (o.kind == SURELEAP_COST_ADDITIVE) o.prices.fixed = number(1.0);
        o.batch_tokens = maybe(tokens.data());
        o.seconds = maybe(seconds.data());
        o.points = coin(0.95) ? 3 : below(4);
        o.rate = number(10.0);
        o.overhead = number(4.0);
        o.token_sizes = coin(0.8) ? nullptr : tokens.data();
        o.token_size_count = coin(0.8) ? 0 : 3;
        std::size_t const at = below(places);
        static_cast<void>(sureleap_cost_destroy(costs_[at]));
        sureleap_error error{};
        sureleap_cost* made = nullptr;
        std::size_t const bytes = coin(0.95) ? sureleap_cost_bytes() : below(sureleap_cost_bytes());
        count(sureleap_cost_create(maybe(&o), maybe(cost_memories_[at].data()), bytes, maybe(&made), maybe(&error)));
        if (made != nullptr) costs_[at] = made;
        sureleap_load const load{size(2), size(9), size(1), size(4), dice_() % 10000, dice_() % 500, size(1)};
        double s = 0.0;
        count(sureleap_cost_seconds(costs_[at], maybe(&load), maybe(&s)));
        then(0);
    }
    void calibration() {
        std::array<double, gamma_most> temperatures{number(1.0), number(2.0), number(0.5), 1.0, 1.0};
        std::array<double, gamma_most> offsets{number(0.1), 0.0, 0.0, number(0.0), 0.0};
        sureleap_calibration_options o;
        sureleap_calibration_options_init(&o);
        o.struct_size = size(o.struct_size);
        o.kind = choice(2);
        o.block_size = coin(0.9) ? gamma_most : below(gamma_most);
        o.temperatures = coin(0.7) ? temperatures.data() : nullptr;
        o.offsets = coin(0.7) ? offsets.data() : nullptr;
        o.fit = coin(0.9) ? 1 + choice(3) : choice(9);
        o.prior_weight = number(o.prior_weight);
        o.memory = number(o.memory);
        o.assumed_acceptance = number(o.assumed_acceptance);
        o.max_requests = coin(0.9) ? most_requests : below(2);
        o.tenants = below(9);
        o.shared_weight = number(o.shared_weight);
        std::size_t const at = below(places);
        static_cast<void>(sureleap_calibration_destroy(calibrations_[at]));
        sureleap_error error{};
        sureleap_calibration* made = nullptr;
        std::size_t const bytes = coin(0.95) ? sureleap_calibration_bytes() : below(99);
        count(sureleap_calibration_create(maybe(&o), maybe(calibration_memories_[at].data()), bytes, maybe(&made),
                                          maybe(&error)));
        if (made != nullptr) calibrations_[at] = made;
        double c = 0.0;
        count(sureleap_calibration_apply(calibrations_[at], coin(0.5) ? nullptr : requests_.data(), size(2),
                                         number(0.4), maybe(&c)));
        count(sureleap_calibration_maps(calibrations_[at], maybe(temperatures.data()), maybe(offsets.data()),
                                        size(gamma_most)));
        then(0);
    }
    void observe(sureleap_round* r) {
        sureleap_calibration* const learns = calibrations_[below(places)];
        count(sureleap_calibration_observe(learns, r));
        strange_ = strange_ || sureleap_round_error(r) == nullptr || sureleap_calibration_error(learns) == nullptr;
        next_ = 1;
    }

    std::mt19937_64 dice_;
    bool spared_ = false;
    std::array<std::unique_ptr<std::byte[]>, places> memories_{};
    std::array<std::array<std::byte, 1 << 12>, places> cost_memories_{};
    std::array<std::array<std::byte, 1 << 14>, places> calibration_memories_{};
    std::array<std::uint64_t, 1024> empty_{};
    std::array<sureleap_round*, places> rounds_{};
    std::array<sureleap_round_options, places> options_{};
    std::array<sureleap_cost*, places> costs_{};
    std::array<sureleap_calibration*, places> calibrations_{};
    std::array<float, most_requests * 1024> numbers_{};
    std::array<float, 64> confidences_as_floats_{};
    std::array<double, most_requests * 1024> confidences_{};
    std::array<std::int32_t, most_requests * 1024> lists_{};
    std::array<std::size_t, most_requests * 1024> list_counts_{};
    std::array<std::size_t, 2 * most_requests> counts_{};  // a round may be made for one more
    std::array<std::size_t, 2 * most_requests> caps_{};
    std::array<std::int32_t, most_requests * 1024> drawn_{};
    std::array<sureleap_request, 2 * most_requests> requests_{};
    std::array<sureleap_verdict, 2 * most_requests> verdicts_of_{};
    std::size_t current_ = 0;
    std::size_t next_ = 0;
    std::size_t count_ = 0;
    std::size_t batch_rows_ = 1;
    std::uint64_t position_ = 0;
    std::uint64_t calls_ = 0;
    std::uint64_t refused_ = 0;
    std::uint64_t verdicts_ = 0;
    std::uint64_t failed_ = 0;
    bool last_ok_ = true;
    bool strange_ = false;
};

}  // namespace

int main(int count, char** arguments) {
    std::uint64_t const calls = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 200'000;
    std::uint64_t const seed = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 1;
    caller c(seed);
    for (std::uint64_t i = 0; i < calls && !c.strange(); ++i) c.call();
    std::printf("seed %llu: %llu calls, %llu refused, %llu verdicts, %llu of them not ok or of bad drafts\n",
                static_cast<unsigned long long>(seed), static_cast<unsigned long long>(calls),
                static_cast<unsigned long long>(c.refused()), static_cast<unsigned long long>(c.verdicts()),
                static_cast<unsigned long long>(c.failed_verdicts()));
    // Both kinds must be met, or nothing was tried.
    bool const mixed = c.refused() > calls / 100 && c.verdicts() > calls / 100 && c.failed_verdicts() > 0;
    return !c.strange() && mixed ? 0 : 1;
}
