// SPDX-License-Identifier: MIT
//
// A regular expression over bytes as an automaton that is walked byte by byte. After each byte it says whether the text
// may end there, and whether anything may follow. PCRE2, which the tokenizer uses, matches whole texts and cannot be
// asked that at the price of a step. States are made when they are first reached (subset construction).
//
//     literals    any byte but \ . [ ] ( ) { } * + ? |      \n \r \t and \ before any of these
//     classes     .  (any byte but \n)   [a-z0-9_]   [^"\\]   \d \w \s
//     repeats     x*  x+  x?  x{3}  x{2,}  x{2,5}          groups and choices   (ab|cd)
#pragma once

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include <sureleap/core/error.hpp>

namespace engine::text {

class byte_automaton {
public:
    using state = std::uint32_t;
    static constexpr state dead = 0;   ///< nothing that begins like this matches
    static constexpr state start = 1;  ///< before the first byte

    /// Error: what is no expression, with the place; more than most_nodes of them when repeats are written out.
    explicit byte_automaton(std::string_view pattern) : pattern_(pattern) {
        fragment const whole = choice();
        if (at_ < pattern_.size()) refuse("a ) without a (");
        accept_ = add({});
        link(whole.end, accept_);
        begin_ = whole.begin;
        states_.push_back({});  // dead
        std::vector<node> first;
        follow(begin_, first);
        static_cast<void>(state_of(std::move(first)));
    }

    /// The state behind a byte. O(1) where it is known.
    [[nodiscard]] state next(state from, unsigned char byte) {
        if (from == dead) return dead;
        if (state const known = states_[from].next[byte]; known != unknown) return known;
        std::vector<node> reached;
        for (node const n : states_[from].nodes) {
            if (nodes_[n].eats && nodes_[n].bytes[byte]) follow(nodes_[n].next[0], reached);
        }
        state const to = reached.empty() ? dead : state_of(std::move(reached));
        states_[from].next[byte] = to;
        return to;
    }
    [[nodiscard]] state next(state from, std::string_view bytes) {
        for (char const c : bytes) from = next(from, static_cast<unsigned char>(c));
        return from;
    }
    /// The text may end here.
    [[nodiscard]] bool accepts(state s) const { return states_[s].accepts; }
    /// States that were made so far.
    [[nodiscard]] std::size_t size() const { return states_.size(); }

private:
    using node = std::uint32_t;
    static constexpr node none = static_cast<node>(-1);
    static constexpr state unknown = static_cast<state>(-1);
    static constexpr std::size_t most_nodes = 100'000;
    static constexpr std::size_t most_repeats = 1'000;
    static constexpr std::size_t most_depth = 200;
    using byte_set = std::bitset<256>;

    /// Of the nondeterministic automaton: eats a byte of a set and goes on, or goes on to one or two others at once.
    struct position {
        bool eats = false;
        byte_set bytes{};
        node next[2] = {none, none};
    };
    /// A part of it; `end` goes nowhere yet.
    struct fragment {
        node begin;
        node end;
    };
    struct subset {
        std::vector<node> nodes;  // ascending, those that eat or accept
        bool accepts = false;
        std::vector<state> next = std::vector<state>(256, unknown);
    };

    // ---- the expression ------------------------------------------------------------------------------------------

    [[noreturn]] void refuse(char const* what) const {
        sureleap::fail_with("regular expression: ", what, " at byte ", at_, ", expected one of the forms in ",
                            "examples/engine/text/byte_automaton.hpp");
    }
    [[nodiscard]] bool sees(char c) const { return at_ < pattern_.size() && pattern_[at_] == c; }
    bool take(char c) {
        if (!sees(c)) return false;
        ++at_;
        return true;
    }
    node add(position p) {
        if (nodes_.size() >= most_nodes) refuse("too large an expression");
        nodes_.push_back(p);
        return static_cast<node>(nodes_.size() - 1);
    }
    void link(node from, node to) { nodes_[from].next[nodes_[from].next[0] == none ? 0 : 1] = to; }

    fragment choice() {
        fragment all = sequence();
        while (take('|')) {
            fragment const other = sequence();
            node const fork = add({.next = {all.begin, other.begin}});
            node const join = add({});
            link(all.end, join);
            link(other.end, join);
            all = {fork, join};
        }
        return all;
    }
    fragment sequence() {
        node const nothing = add({});
        fragment all{nothing, nothing};
        while (at_ < pattern_.size() && !sees('|') && !sees(')')) {
            fragment const next = repeated();
            link(all.end, next.begin);
            all.end = next.end;
        }
        return all;
    }
    fragment repeated() {
        std::size_t const began = at_;
        fragment one = atom();
        for (;;) {
            if (take('*')) {
                one = loop(one, false);
            } else if (take('+')) {
                one = loop(one, true);
            } else if (take('?')) {
                one = optional(one);
            } else if (take('{')) {
                one = counted(one, began);
            } else {
                return one;
            }
        }
    }
    fragment loop(fragment one, bool at_least_once) {
        node const fork = add({.next = {one.begin, none}});
        node const out = add({});
        link(fork, out);
        link(one.end, fork);
        return {at_least_once ? one.begin : fork, out};
    }
    fragment optional(fragment one) {
        node const fork = add({.next = {one.begin, none}});
        node const out = add({});
        link(fork, out);
        link(one.end, out);
        return {fork, out};
    }
    // Written out: what stands before the brace is read as often as it is meant.
    fragment counted(fragment first, std::size_t began) {
        std::size_t const brace = at_;
        std::size_t const least = number();
        bool const open = take(',');
        bool const endless = open && sees('}');
        std::size_t const most = endless ? least : open ? number() : least;
        if (!take('}') || most < least || most == 0 || most > most_repeats) {
            at_ = brace;
            refuse("a repeat that is none of {3}, {2,}, {2,5}");
        }
        std::size_t const end = at_;
        auto const again = [&] {
            at_ = began;
            fragment const copy = repeated_before(brace - 1);
            at_ = end;
            return copy;
        };
        fragment all = least == 0 ? optional(first) : first;
        for (std::size_t i = 1; i < most; ++i) {
            fragment const copy = i < least ? again() : optional(again());
            link(all.end, copy.begin);
            all.end = copy.end;
        }
        if (endless) {
            fragment const rest = loop(again(), false);
            link(all.end, rest.begin);
            all.end = rest.end;
        }
        return all;
    }
    // The atom at at_ with its repeats up to `end`.
    fragment repeated_before(std::size_t end) {
        std::string_view const whole = std::exchange(pattern_, pattern_.substr(0, end));
        fragment const one = repeated();
        pattern_ = whole;
        return one;
    }
    std::size_t number() {
        std::size_t n = 0;
        bool any = false;
        for (; at_ < pattern_.size() && pattern_[at_] >= '0' && pattern_[at_] <= '9'; ++at_, any = true) {
            n = std::min(n * 10 + static_cast<std::size_t>(pattern_[at_] - '0'), most_repeats + 1);
        }
        if (!any) refuse("no number");
        return n;
    }
    fragment atom() {
        if (take('(')) {
            if (++depth_ > most_depth) refuse("too many groups inside each other");
            fragment const inside = choice();
            if (!take(')')) refuse("a ( without a )");
            --depth_;
            return inside;
        }
        byte_set bytes;
        if (take('[')) {
            bytes = char_class();
        } else if (take('.')) {
            bytes.set();
            bytes.reset('\n');
        } else if (take('\\')) {
            bytes = escaped();
        } else if (at_ == pattern_.size() ||
                   std::string_view("])}*+?|{").find(pattern_[at_]) != std::string_view::npos) {
            refuse("nothing to match");
        } else {
            bytes.set(static_cast<unsigned char>(pattern_[at_++]));
        }
        node const n = add({.eats = true, .bytes = bytes});
        return {n, n};
    }
    byte_set escaped() {
        if (at_ == pattern_.size()) refuse("a \\ at the end");
        byte_set bytes;
        char const c = pattern_[at_++];
        auto const range = [&](unsigned char from, unsigned char to) {
            for (unsigned b = from; b <= to; ++b) bytes.set(b);
        };
        switch (c) {
            case 'n': bytes.set('\n'); break;
            case 'r': bytes.set('\r'); break;
            case 't': bytes.set('\t'); break;
            case 's':
                for (char const space : {' ', '\t', '\n', '\r', '\f', '\v'})
                    bytes.set(static_cast<unsigned char>(space));
                break;
            case 'w':
                range('a', 'z');
                range('A', 'Z');
                bytes.set('_');
                [[fallthrough]];
            case 'd': range('0', '9'); break;
            default: {
                bool const letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
                --at_;
                if (letter) refuse("an unknown escape");
                ++at_;
                bytes.set(static_cast<unsigned char>(c));
            }
        }
        return bytes;
    }
    byte_set char_class() {
        byte_set bytes;
        bool const others = take('^');
        for (bool first = true; first || !sees(']'); first = false) {
            if (at_ == pattern_.size()) refuse("a [ without a ]");
            byte_set const one = class_member();
            if (one.count() == 1 && sees('-') && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']') {
                ++at_;
                byte_set const last = class_member();
                unsigned const from = lowest(one);
                unsigned const to = lowest(last);
                if (last.count() != 1 || to < from) refuse("a range that is none");
                for (unsigned b = from; b <= to; ++b) bytes.set(b);
            } else {
                bytes |= one;
            }
        }
        ++at_;
        return others ? ~bytes : bytes;
    }
    byte_set class_member() {
        if (take('\\')) return escaped();
        byte_set one;
        one.set(static_cast<unsigned char>(pattern_[at_++]));
        return one;
    }
    [[nodiscard]] static unsigned lowest(byte_set const& bytes) {
        unsigned b = 0;
        while (b < 256 && !bytes[b]) ++b;
        return b;
    }

    // ---- states --------------------------------------------------------------------------------------------------

    // Adds what is reached from n without a byte.
    void follow(node n, std::vector<node>& reached) {
        std::vector<node> open{n};
        while (!open.empty()) {
            node const at = open.back();
            open.pop_back();
            if (at == none || (seen_.size() > at && seen_[at] == round_)) continue;
            if (seen_.size() < nodes_.size()) seen_.resize(nodes_.size());
            seen_[at] = round_;
            if (nodes_[at].eats || at == accept_) {
                reached.push_back(at);
            } else {
                open.insert(open.end(), {nodes_[at].next[0], nodes_[at].next[1]});
            }
        }
    }
    state state_of(std::vector<node> nodes) {
        ++round_;
        std::sort(nodes.begin(), nodes.end());
        auto const [at, is_new] = known_.try_emplace(nodes, static_cast<state>(states_.size()));
        if (is_new) {
            bool const accepts = std::binary_search(nodes.begin(), nodes.end(), accept_);
            states_.push_back({.nodes = std::move(nodes), .accepts = accepts});
        }
        return at->second;
    }

    std::string_view pattern_;  // while it is read
    std::size_t at_ = 0;
    std::size_t depth_ = 0;  // of groups
    std::vector<position> nodes_;
    node begin_ = none;
    node accept_ = none;
    std::vector<subset> states_;
    std::map<std::vector<node>, state> known_;
    std::vector<std::uint64_t> seen_;  // by node: the state that was being made when it was reached
    std::uint64_t round_ = 1;
};

}  // namespace engine::text
