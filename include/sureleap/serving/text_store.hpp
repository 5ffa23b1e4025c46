// SPDX-License-Identifier: MIT
//
// Texts that requests may draft from, of themselves and of others, kept by tenant: what one tenant added is never found
// for another. Only what an engine adds is in it. An engine decides what that is: answers that are finished, outputs of
// tools, nothing of requests that must not be seen by others.
//
//     text_store store{{.tokens_per_tenant = 1 << 20, .tenants = 8}};
//     with_lookup drafter{model, store};
//     ...
//     store.add(settings.tenant, text);  // when a request has ended, say
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <utility>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/drafter/ngram_index.hpp>

SURELEAP_BEGIN_NAMESPACE

struct text_store_options {
    std::size_t tokens_per_tenant = std::size_t{1} << 20;  ///< the newest are kept; as ngram_index
    std::size_t tenants = 1;                               ///< that are kept at a time, at least 1
};

/// Thread-safe: searches go on beside each other, and wait while a text is added. Takes tokens_per_tenant *
/// ngram_view::bytes_per_token for a tenant when its first text comes. Where there are too many tenants, the one that
/// added nothing for the longest time is forgotten.
class text_store {
public:
    explicit text_store(text_store_options const& options = {}) : options_(options) {
        if (options.tenants == 0) fail_with("text_store: tenants is 0, expected at least 1");
        static_cast<void>(ngram_index::checked(options.tokens_per_tenant));
    }

    /// A whole text, found from the next search on. O(text).
    void add(std::uint32_t tenant, std::span<token_id const> text) {
        std::unique_lock const lock(mutex_);
        ngram_index& index = index_of(tenant);
        index.append(text);
        index.end_text();
    }
    /// Forgets what a tenant has added.
    void forget(std::uint32_t tenant) {
        std::unique_lock const lock(mutex_);
        tenants_.remove_if([&](entry const& e) { return e.tenant == tenant; });
    }
    /// A text of everybody, such as a corpus (ext/ngram_file.hpp), that somebody else keeps: it must outlive the store.
    void add_for_all(ngram_view const& corpus) {
        std::unique_lock const lock(mutex_);
        corpora_.push_back(corpus);
    }
    /// visit(ngram_view), of what the request's tenant has added, and of the texts of everybody. Models draft_texts.
    template <class Visit>
    void look(request_view const& request, Visit const& visit) const {
        look(request.settings->tenant, visit);
        std::shared_lock const lock(mutex_);
        for (ngram_view const& corpus : corpora_) visit(corpus);
    }
    /// visit(ngram_view), of what a tenant has added; of nothing for one that added nothing. The view is good until
    /// visit returns.
    template <class Visit>
    void look(std::uint32_t tenant, Visit const& visit) const {
        std::shared_lock const lock(mutex_);
        for (entry const& e : tenants_) {
            if (e.tenant == tenant) return visit(e.index.view());
        }
        visit(ngram_view{});
    }

private:
    struct entry {
        std::uint32_t tenant;
        ngram_index index;
    };

    /// Comes to the front.
    [[nodiscard]] ngram_index& index_of(std::uint32_t tenant) {
        for (auto at = tenants_.begin(); at != tenants_.end(); ++at) {
            if (at->tenant != tenant) continue;
            tenants_.splice(tenants_.begin(), tenants_, at);
            return tenants_.front().index;
        }
        if (tenants_.size() == options_.tenants) tenants_.pop_back();
        tenants_.push_front({tenant, ngram_index(options_.tokens_per_tenant)});
        return tenants_.front().index;
    }

    text_store_options options_;
    mutable std::shared_mutex mutex_;
    std::list<entry> tenants_{};  // who added last comes first
    std::vector<ngram_view> corpora_{};
};

SURELEAP_END_NAMESPACE
