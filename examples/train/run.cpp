// SPDX-License-Identifier: MIT
#include "run.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <mutex>

#include <sureleap/core/error.hpp>
#include <sureleap/ext/safetensors.hpp>
#include <sureleap/ext/safetensors_writer.hpp>

namespace train {
namespace {

using sureleap::fail_with;
using clock = std::chrono::steady_clock;

std::sig_atomic_t volatile stop_requested = 0;

double seconds_since(clock::time_point start) {
    return std::chrono::duration<double>(clock::now() - start).count();
}

std::string duration(double seconds) {
    auto const s = static_cast<long>(seconds + 0.5);
    char text[64];
    std::snprintf(text, sizeof text, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    return text;
}

}  // namespace

void sharded_gradients::for_each_shard(std::function<void(std::size_t)> const& f) {
    std::mutex guard;
    std::exception_ptr thrown;
    pool_.run(shards_.size(), [&](std::size_t i) {
        try {
            f(i);
        } catch (...) {
            std::lock_guard const lock(guard);
            thrown = std::current_exception();
        }
    });
    if (thrown) std::rethrow_exception(thrown);
}

std::span<float const> sharded_gradients::sum(std::function<void(std::size_t, std::span<float>)> const& f) {
    for_each_shard([&](std::size_t i) {
        std::ranges::fill(shards_[i], 0.0f);
        f(i, shards_[i]);
    });
    std::size_t const size = shards_[0].size();
    std::size_t const piece = 1 << 16;
    pool_.run((size + piece - 1) / piece, [&](std::size_t i) {
        std::size_t const first = i * piece;
        std::size_t const count = std::min(piece, size - first);
        for (std::size_t s = 1; s < shards_.size(); ++s) {
            eigen_array(std::span(shards_[0]).subspan(first, count)) +=
                eigen_array(std::span(shards_[s]).subspan(first, count));
        }
    });
    return shards_[0];
}

void catch_interrupts() {
    stop_requested = 0;
    for (int const signal : {SIGINT, SIGTERM}) {
        std::signal(signal, [](int) { stop_requested = 1; });
    }
}

bool interrupted() {
    return stop_requested != 0;
}

void save_state(std::filesystem::path const& file, std::string const& fingerprint, training_state const& state) {
    using sureleap::safetensors::dtype;
    std::vector<std::size_t> const shape{state.values.size()};
    sureleap::safetensors::writer out(
        file, {{"values", dtype::f32, shape}, {"first", dtype::f32, shape}, {"second", dtype::f32, shape}},
        {{"step", std::to_string(state.step)}, {"settings", fingerprint}});
    for (auto const* numbers : {&state.values, &state.first, &state.second}) {
        out.append(std::as_bytes(std::span(*numbers)));
    }
    out.finish();
}

bool load_state(std::filesystem::path const& file, std::string const& fingerprint, training_state& state) {
    if (!std::filesystem::exists(file)) return false;
    auto const in = sureleap::safetensors::file::read(file);
    auto const metadata = [&](char const* name) {
        auto const found = in.metadata().find(name);
        if (found == in.metadata().end()) fail_with(file.string(), ": no '", name, "', expected a state of training");
        return found->second;
    };
    if (std::string const saved = metadata("settings"); saved != fingerprint) {
        fail_with(file.string(), ": belongs to another run; remove it to start afresh, or go on with its settings\n",
                  "  saved:    ", saved, "\n  expected: ", fingerprint);
    }
    for (auto [name, numbers] :
         {std::pair{"values", &state.values}, {"first", &state.first}, {"second", &state.second}}) {
        std::ranges::copy(in.values<float>(name, {numbers->size()}), numbers->begin());
    }
    state.step = std::stoul(metadata("step"));
    return true;
}

bool run(run_settings const& settings, parameter_layout const& layout,
         std::function<step_result(std::size_t, std::span<float const>)> const& step, training_state& state) {
    if (load_state(settings.state_file, settings.fingerprint, state)) {
        std::printf("going on after step %zu of %zu\n", state.step, settings.steps);
    }
    auto const start = clock::now();
    auto saved = start;
    auto logged = start;
    std::size_t const first = state.step;
    std::size_t tokens = 0;
    while (state.step < settings.steps) {
        auto const result = step(state.step, state.values);
        double const rate = learning_rate(settings.optimizer, state.step, settings.steps);
        double const norm = update(settings.optimizer, settings.steps, layout, result.gradients, state, settings.pool);
        tokens += result.tokens;
        bool const last = state.step == settings.steps || interrupted();
        if (last || state.step == first + 1 || seconds_since(logged) > settings.log_seconds) {
            logged = clock::now();
            double const spent = seconds_since(start);
            double const left =
                spent / static_cast<double>(state.step - first) * static_cast<double>(settings.steps - state.step);
            std::printf("step %zu/%zu  %s  norm %.2f  rate %.2g  %.0f %s/s  %s left\n", state.step, settings.steps,
                        result.losses.c_str(), norm, rate, static_cast<double>(tokens) / spent, settings.unit,
                        duration(left).c_str());
            std::fflush(stdout);
        }
        if (last || seconds_since(saved) > settings.save_seconds) {
            saved = clock::now();
            save_state(settings.state_file, settings.fingerprint, state);
        }
        if (interrupted()) break;
        bool const at_the_end = state.step == settings.steps;
        if (settings.visit && settings.visit_steps > 0 && (at_the_end || state.step % settings.visit_steps == 0)) {
            settings.visit(state);
        }
    }
    if (state.step < settings.steps) {
        std::printf("interrupted after step %zu; the same command goes on from there\n", state.step);
        return false;
    }
    return true;
}

}  // namespace train
