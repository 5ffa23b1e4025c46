// SPDX-License-Identifier: MIT
//
// Replays a recorded run under another load: which drafts a schedule would have verified, and what that would have gained.
// replay.json.js holds the run: { about, seconds: {rows: s}, rounds: [{ drafted, confidence, accepted, own }] }.
(() => {
    const root = document.getElementById("replay");
    if (!root || !window.sureleapReplay) return;
    const { seconds, rounds } = window.sureleapReplay;

    // The target's pass between measured numbers of rows, as capacity_table interpolates; beyond the last on its last line.
    const known = Object.entries(seconds).map(([rows, s]) => [Number(rows), s]).sort((a, b) => a[0] - b[0]);
    const passSeconds = (rows) => {
        let i = 1;
        while (i < known.length - 1 && rows > known[i][0]) ++i;
        const [[x0, y0], [x1, y1]] = [known[i - 1], known[i]];
        return Math.max(known[0][1], y0 + ((rows - x0) * (y1 - y0)) / (x1 - x0));
    };
    // Of R requests with this block: the length with the most tokens a second (Algorithm 1, every request alike).
    const chooseLength = (confidence, requests) => {
        let best = 0, most = 1 / passSeconds(requests), tokens = 1, survival = 1;
        confidence.forEach((c, k) => {
            survival *= c;
            tokens += survival;
            const rate = tokens / passSeconds(requests * (k + 2));
            if (rate > most) [best, most] = [k + 1, rate];
        });
        return best;
    };
    const measure = (requests) => {
        let tokens = 0, time = 0, rows = 0;
        const lengths = rounds.map((round) => {
            const length = chooseLength(round.confidence, requests);
            tokens += Math.min(length, round.accepted) + 1;
            rows += length + 1;
            time += passSeconds(requests * (length + 1));
            return length;
        });
        return { lengths, perPass: tokens / rounds.length, rows: rows / rounds.length,
                 speedup: (tokens / time) * passSeconds(requests) };
    };

    const element = (tag, properties = {}, ...children) => {
        const made = Object.assign(document.createElement(tag), properties);
        made.append(...children);
        return made;
    };
    const load = element("input", { type: "range", min: 0, max: 8, step: 1, value: 0, id: "replay-load" });
    const place = element("input", { type: "range", min: 1, max: rounds.length, step: 1, value: rounds.length, id: "replay-round" });
    const loadText = element("output"), placeText = element("output"), figures = element("p", { className: "replay-figures" });
    const list = element("ol", { className: "replay-rounds" });
    root.replaceChildren(
        element("label", {}, "Requests like this one at once ", load, loadText),
        element("label", {}, "Rounds ", place, placeText), figures, list);

    const token = (text, kind, confidence) => {
        const shown = text.replace(/\n/g, "\u21b5");
        const box = element("span", { className: `replay-token ${kind}` }, shown);
        if (confidence !== undefined) box.append(element("small", {}, confidence.toFixed(2)));
        return box;
    };
    const show = () => {
        const requests = 2 ** Number(load.value);
        const result = measure(requests);
        loadText.value = requests;
        placeText.value = `${place.value} of ${rounds.length}`;
        figures.textContent = `${result.rows.toFixed(2)} rows a pass for each request, ${result.perPass.toFixed(2)} tokens; ` +
            `${result.speedup.toFixed(2)} times the tokens a second of plain decoding at this load, drafting not counted`;
        list.replaceChildren(...rounds.slice(0, Number(place.value)).map((round, i) => {
            const length = result.lengths[i];
            const boxes = round.drafted.map((text, k) => token(text,
                k >= length ? "unverified" : k < round.accepted ? "accepted" : "refused", round.confidence[k]));
            // Cut before the place where the recorded round ended, the target writes the drafted token itself.
            const own = length < round.accepted ? round.drafted[length] : round.own;
            return element("li", {}, ...boxes, token(own, "own"));
        }));
    };
    load.addEventListener("input", show);
    place.addEventListener("input", show);
    show();
})();
