// SPDX-License-Identifier: MIT
//
// A run: requests arrive, wait for a place, are decoded by the library's decoder round after round in virtual time, and
// finish. The only events are ends of rounds and arrivals while nobody runs, so the loop of rounds is the event loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sureleap/core/types.hpp>
#include <sureleap/ranks/rank_consensus.hpp>
#include <sureleap/ranks/thread_ranks.hpp>
#include <sureleap/round/record.hpp>
#include <sureleap/round/request_place.hpp>

#include "cost_world.hpp"
#include "measures.hpp"
#include "texts.hpp"

namespace serve {

// ---- what is asked of the engine -------------------------------------------------------------------------------

struct arrival {
    double seconds = 0;  ///< since the run began
    std::size_t context = 1;
    std::size_t tokens = 1;
};

/// Requests that wait for no answer: an open loop. Text i is that of arrival i.
struct open_workload {
    std::vector<arrival> arrivals;  ///< in order
};

/// So many requests at a time, each followed by the next as soon as it is done. With bursts, phases of `concurrency`
/// and of `burst` times as many requests alternate; at the end of a burst the surplus is paused, and goes on in the
/// next. Phases last from half to one and a half times `period` / 2, at random: rounds must not fall in step with them.
struct closed_workload {
    std::size_t concurrency = 1;
    std::size_t tokens = 256;   ///< of a text, from half to one and a half times as many
    std::size_t context = 256;  ///< of its prompt
    std::size_t burst = 1;
    double period = 0;  ///< seconds; 0: no bursts

    [[nodiscard]] std::size_t most() const noexcept { return concurrency * burst; }
};

struct run_settings {
    std::size_t places = 0;                  ///< of the decoder; 0: what the closed loop needs
    std::uint64_t request_rounds = 100'000;  ///< that a closed loop is measured for,
    double warm_up = 0.2;                    ///< after so many of them, in part
    std::optional<double> seconds{};         ///< or until this moment of virtual time
    std::uint64_t window = 0;                ///< rounds of a window; 0: none are kept
};

// ---- what answers ----------------------------------------------------------------------------------------------

/// What replicas that go in step agree through.
using agreement = sureleap::rank_consensus<sureleap::thread_ranks::rank_type>;

/// The parts of a run that no policy can change.
struct scenario {
    text_source const& texts;
    cost_world truth;                   ///< moves the clock
    cost_world believed;                ///< what schedules reckon with
    double prefill_seconds = 0;         ///< per token of a prompt, when its request gets its place
    agreement const* agrees = nullptr;  ///< of one replica with the others, for policies that agree
};

/// The library's decoder of any schedule, on the simulated machine.
class any_decoder {
public:
    any_decoder() = default;
    any_decoder(any_decoder const&) = delete;
    any_decoder& operator=(any_decoder const&) = delete;
    virtual ~any_decoder() = default;

    virtual sureleap::request_id submit(std::span<sureleap::token_id const> prompt,
                                        sureleap::request_settings const& settings) = 0;
    virtual void cancel(sureleap::request_id id) = 0;
    virtual void pause(sureleap::request_id id) = 0;
    virtual void resume(sureleap::request_id id) = 0;
    virtual bool step() = 0;
    [[nodiscard]] virtual std::span<sureleap::request_event const> events() const = 0;
    [[nodiscard]] virtual sureleap::round_record const& round() const = 0;
    /// By the decoder's own books.
    [[nodiscard]] virtual std::size_t placed() const = 0;
    [[nodiscard]] virtual std::size_t waiting() const = 0;
    /// The virtual clock; wait_until moves it forwards only.
    [[nodiscard]] virtual double now() const = 0;
    virtual void wait_until(double moment) = 0;
};

/// How a policy sets up its decoder, and what its requests ask for besides.
struct policy {
    std::string name;
    std::string words;     ///< what it is, for tables
    bool lossless = true;  ///< keeps the target's law
    bool agrees = false;   ///< through scenario::agrees
    std::size_t max_draft_tokens = static_cast<std::size_t>(-1);
    std::function<std::unique_ptr<any_decoder>(scenario const&, std::size_t places)> make;
};

/// Told how far a run is, 0 .. 1.
using progress_observer = std::function<void(double)>;

/// Everything that arrived is finished, cancelled, or reported as what it is. Throws what a decoder throws.
[[nodiscard]] outcome run(policy const& how, scenario const& where, closed_workload const& load,
                          run_settings const& settings, progress_observer const& progress = {});
/// Until all are done, or settings.seconds.
[[nodiscard]] outcome run(policy const& how, scenario const& where, open_workload const& load,
                          run_settings const& settings, progress_observer const& progress = {});

}  // namespace serve
