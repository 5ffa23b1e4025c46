// SPDX-License-Identifier: MIT
//
// Replicas of an engine behind one queue. A request joins a replica when it arrives and stays until it is finished, or
// until its replica dies. Then it joins another one, with what was emitted as part of its prompt and with its seed. The
// library names draws by seed and absolute position, so it draws there as it would have drawn here: under rules that
// follow the target's token (keyed_coupling, target_match, greedy_match) the text is the same, token for token. Under
// rules that sample it is a text of the same law.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/round/request_place.hpp>

#include "keyed.hpp"
#include "simulation.hpp"

namespace serve {

/// Which replica a request joins: the next one; that with the least to do, the first among equals; or that of two taken
/// at random which has fewer requests. Tokens were rejected as default. An engine knows them only where texts are as
/// long as they may be. Places and the time of a step go by requests.
enum class joining { round_robin, fewest_requests, fewest_tokens, fewer_of_two };

class replica_queue {
public:
    /// Of a request, by the order of submission.
    using number = std::uint64_t;

    replica_queue(std::vector<std::unique_ptr<any_decoder>> replicas, joining how)
        : replicas_(replicas.size()), loads_(replicas.size(), 0), how_(how), living_(replicas.size()) {
        for (std::size_t r = 0; r < replicas.size(); ++r) replicas_[r].decoder = std::move(replicas[r]);
    }

    /// Joins a replica, whose number is returned; its next round takes the request in. Throws for requests that could
    /// not go on elsewhere, and if no replica lives. O(replicas) where the least of all is looked for, else O(1).
    std::size_t submit(std::span<sureleap::token_id const> prompt, sureleap::request_settings const& settings) {
        if (!settings.seed) {
            sureleap::fail_with("replica_queue: request ", submitted_,
                                " has no seed, expected one: it would go on with another one");
        }
        if (settings.text_end || settings.constraint) {
            sureleap::fail_with("replica_queue: request ", submitted_,
                                " has a text_end or a constraint, expected none: both count from the prompt's end, "
                                "which moves when a replica dies");
        }
        open_.emplace(submitted_, request{{prompt.begin(), prompt.end()}, settings});
        return join(submitted_++);
    }

    /// A round of what runs on a replica and of what has joined it; false if there is nothing. Its tokens count when
    /// settle() takes them.
    bool step(std::size_t r) {
        replica& at = replicas_[r];
        for (number const n : at.joined) {
            request const& joins = open_.at(n);
            at.running.emplace(at.decoder->submit(joins.tokens, joins.settings), n);
        }
        at.joined.clear();
        return at.in_round = !at.running.empty() && at.decoder->step();
    }
    /// Takes what the replica's round emitted, and tells it: see(number, event). O(requests of the round).
    template <class See>
    void settle(std::size_t r, See&& see) {
        replica& at = replicas_[r];
        if (!std::exchange(at.in_round, false)) return;
        for (sureleap::request_event const& event : at.decoder->events()) {
            auto const running = at.running.find(event.request);
            number const n = running->second;
            if (event.outcome != sureleap::status::ok) {
                sureleap::fail_with("replica_queue: the round of request ", n, " on replica ", r, " ended with ",
                                    to_string(event.outcome), ", expected ok");
            }
            see(n, event);
            take(r, open_.at(n), event.tokens);
            if (event.finished == sureleap::finish_reason::none) continue;
            loads_[r] -= load_of(open_.at(n));
            open_.erase(n);
            at.running.erase(running);
        }
    }
    /// The replica is gone, with the round that it was in. Its requests join others, in the order of submission:
    /// see(number, tokens it goes on from, replica). Precondition: it lives. Throws if it was the last one and had any.
    template <class See>
    void lose(std::size_t r, See&& see) {
        replica& dead = replicas_[r];
        std::vector<number> back = std::exchange(dead.joined, {});
        for (auto const& [id, n] : dead.running) back.push_back(n);
        dead = {};
        --living_;
        loads_[r] = std::numeric_limits<std::uint64_t>::max();
        std::sort(back.begin(), back.end());
        for (number const n : back) see(n, std::span<sureleap::token_id const>(open_.at(n).tokens), join(n));
    }

    [[nodiscard]] std::size_t size() const noexcept { return replicas_.size(); }
    [[nodiscard]] bool lives(std::size_t r) const noexcept { return replicas_[r].decoder != nullptr; }
    /// It has made a round that is not settled.
    [[nodiscard]] bool in_round(std::size_t r) const noexcept { return replicas_[r].in_round; }
    /// Precondition: it lives.
    [[nodiscard]] any_decoder& decoder(std::size_t r) const noexcept { return *replicas_[r].decoder; }
    [[nodiscard]] std::size_t requests_at(std::size_t r) const noexcept {
        return replicas_[r].running.size() + replicas_[r].joined.size();
    }
    /// Submitted and not finished.
    [[nodiscard]] std::size_t open() const noexcept { return open_.size(); }

private:
    struct request {
        std::vector<sureleap::token_id> tokens;  // the prompt, and what was emitted
        sureleap::request_settings settings;     // of what is left
    };
    struct replica {
        std::unique_ptr<any_decoder> decoder;  // null: dead
        std::map<sureleap::request_id, number> running;
        std::vector<number> joined;  // until its next round
        bool in_round = false;
    };

    [[nodiscard]] std::uint64_t load_of(request const& of) const noexcept {
        return how_ == joining::fewest_tokens ? of.settings.max_new_tokens : 1;
    }
    [[nodiscard]] std::size_t choose(number n) {
        if (living_ == 0) {
            sureleap::fail_with("replica_queue: request ", n, " finds 0 of ", size(), " replicas alive, expected one");
        }
        if (how_ == joining::round_robin) {
            std::size_t r = next_++ % size();
            while (!lives(r)) r = next_++ % size();
            return r;
        }
        if (how_ == joining::fewer_of_two) {
            std::size_t const one = mixed(n) % size();
            std::size_t const other = mixed(n, 1) % size();
            std::size_t const fewer = loads_[other] < loads_[one] ? other : one;
            if (lives(fewer)) return fewer;
        }
        return static_cast<std::size_t>(std::min_element(loads_.begin(), loads_.end()) - loads_.begin());
    }
    std::size_t join(number n) {
        std::size_t const r = choose(n);
        loads_[r] += load_of(open_.at(n));
        replicas_[r].joined.push_back(n);
        return r;
    }
    /// They are part of the text, wherever it goes on.
    void take(std::size_t r, request& of, std::span<sureleap::token_id const> emitted) {
        std::uint64_t const before = load_of(of);
        of.tokens.insert(of.tokens.end(), emitted.begin(), emitted.end());
        of.settings.max_new_tokens -= emitted.size();
        of.settings.min_new_tokens -= std::min(of.settings.min_new_tokens, emitted.size());
        loads_[r] -= before - load_of(of);
    }

    std::vector<replica> replicas_;
    std::vector<std::uint64_t> loads_;  // the most of all for a dead one
    std::unordered_map<number, request> open_;
    joining how_;
    std::size_t living_;
    std::size_t next_ = 0;
    number submitted_ = 0;
};

}  // namespace serve
