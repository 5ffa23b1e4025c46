// SPDX-License-Identifier: MIT
//
// Small random models as the engine serves them: a target with a drafter of any kind.
//
// Shapes, weights that agree at times, and plain decoding are headers of their own; this one has them all.
#pragma once

#include <cstddef>
#include <memory>

#include <engine/causal_lm.hpp>
#include <engine/config.hpp>
#include <engine/dspark.hpp>
#include <engine/eagle3.hpp>
#include <engine/parts.hpp>
#include <engine/target.hpp>
#include <engine/thread_pool.hpp>
#include <sureleap/sureleap.hpp>

#include "support/tiny_models_agreeing.hpp"
#include "support/tiny_models_decoding.hpp"
#include "support/tiny_models_shapes.hpp"

namespace tiny {

/// Every kind of drafter; dflash is DSpark without heads, listed one that draws from shortlists, joined one behind
/// lookup.
enum class kind { none, lookup, vanilla, gated, rnn, dflash, eagle3, listed, joined };
inline constexpr kind kinds[] = {kind::none,   kind::lookup, kind::vanilla, kind::gated, kind::rnn,
                                 kind::dflash, kind::eagle3, kind::listed,  kind::joined};

[[nodiscard]] inline char const* name_of(kind k) {
    constexpr char const* names[] = {"none",   "lookup", "vanilla", "gated", "rnn",
                                     "dflash", "eagle3", "listed",  "joined"};
    return names[static_cast<std::size_t>(k)];
}

/// A target with a drafter of that kind, for engine::server: server(s.target, s.drafter, s.observer, ..., s.pool).
struct served {
    engine::thread_pool pool;
    engine::causal_lm<float> target;
    std::unique_ptr<engine::dspark<float>> dspark;
    std::unique_ptr<engine::eagle3<float>> eagle3;
    engine::draft_model<float>* observer = nullptr;
    std::unique_ptr<sureleap::successor_table const> successors;
    sureleap::text_store texts;  ///< that a joined drafter looks in
    engine::any_drafter<float> drafter;

    served(agreeing_models const& models, kind k, drafter_shape const& d, engine::storage type,
           engine::serving_limits const& limits, std::size_t threads = 1, engine::any_ranks* ranks = nullptr)
        : pool(threads),
          target(models.target(type), feature_layers(models.dimensions()), pool, limits, ranks),
          drafter(make(models, k, d, type, limits)) {}

private:
    engine::any_drafter<float> make(agreeing_models const& models, kind k, drafter_shape d, engine::storage type,
                                    engine::serving_limits const& limits) {
        std::size_t const V = target.vocabulary();
        if (k == kind::none) return sureleap::no_drafter<float>(V);
        if (k == kind::lookup) return sureleap::lookup({.block_size = d.block_size, .target_vocabulary = V});
        if (k == kind::eagle3) {
            eagle3 = std::make_unique<engine::eagle3<float>>(models.eagle3(d, type), target, pool, limits);
            observer = eagle3.get();
            return engine::make_drafter(*eagle3);
        }
        d.head = k == kind::dflash  ? engine::head_kind::none
                 : k == kind::gated ? engine::head_kind::gated
                 : k == kind::rnn   ? engine::head_kind::rnn
                                    : engine::head_kind::vanilla;
        d.confidence = k != kind::dflash;
        dspark = std::make_unique<engine::dspark<float>>(models.dspark(d, type), target, pool, limits);
        observer = dspark.get();
        auto made = engine::make_drafter(*dspark);
        if (k == kind::listed) {  // a part of the vocabulary that often misses the target's choice
            auto head = engine::load_head<float>(dspark->source());
            successors = std::make_unique<sureleap::successor_table const>(head, 1 + V / 10);
            engine::set_drafter(made, *dspark,
                                engine::listing_head<float>(std::move(head), 1 + V / 5, successors->view()));
        }
        if (k == kind::joined) engine::join_lookup(made, texts, {.longest = 3, .shortest = 1});
        return made;
    }
};

}  // namespace tiny
