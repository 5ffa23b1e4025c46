// SPDX-License-Identifier: MIT
//
// Worlds: what the simulated engine costs, and where a world says so, what its texts are like. By name or from a file
// (worlds/README.md has the format).
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cost_world.hpp"
#include "texts.hpp"

namespace serve {

/// The published drafter with one draft token.
struct rival {
    double accepts = 0;
    double draft_seconds = 0;
};

struct world {
    cost_world cost;
    std::optional<std::size_t> block_size;
    std::vector<domain_settings> domains;  ///< empty: the world says nothing of texts
    std::vector<double> weights;           ///< [domains]
    std::optional<rival> mtp1;
    nlohmann::json published;
};

/// Throws with file, field and value for what is no world.
[[nodiscard]] world read_world(std::filesystem::path const& file);

/// Figures that were printed or plotted by papers and pull requests, as one file holds them.
class published_figures {
public:
    explicit published_figures(std::filesystem::path const& file);

    /// Conditional acceptance by depth of DSpark on "chat", "code" or "math" (the paper's Figure 2), or of "prefix16",
    /// a 16-token draft of which prefix survivals were published.
    [[nodiscard]] std::vector<double> acceptance(std::string const& domain) const;

    /// Step times of Qwen3-8B on an H20, milliseconds by batch size and verified tokens. They are f(R) + g(B) within
    /// 0.1 ms, which is fitted by least squares; drafting was not published apart and is taken to be in them.
    [[nodiscard]] cost_world h20() const;

    /// Tokens per second on an MI350X by concurrency, without speculation and with all of 7 drafts. R requests take a
    /// step of R / throughput seconds without drafts; with 7 they take R tau / throughput, tau being what the chat
    /// curve gives. Time is a R + g(B) + d with d for drafting. Batches of both series that are equally large (8 R of
    /// one, R of the other) determine a and d by least squares. The rest at each batch size is g.
    [[nodiscard]] cost_world mi350x() const;

    [[nodiscard]] nlohmann::json const& document() const noexcept { return document_; }
    [[nodiscard]] std::string const& source() const noexcept { return source_; }

private:
    std::string source_;
    nlohmann::json document_;
};

/// "smooth", "stairs:N", "h20", "mi350x" (which need figures), or a file's name.
[[nodiscard]] world find_world(std::string const& name, published_figures const* figures);

}  // namespace serve
