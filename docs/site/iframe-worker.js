// SPDX-License-Identifier: MIT
//
// A browser runs no workers for pages that are opened as files. The search needs one, so there its script runs in a frame instead.
if (location.protocol === "file:") {
    window.Worker = class extends EventTarget {
        constructor(url) {
            super();
            const frame = document.createElement("iframe");
            frame.hidden = true;
            this.ready = new Promise((loaded) => frame.addEventListener("load", () => loaded(frame.contentWindow)));
            frame.srcdoc = `<script>self.importScripts = (...urls) => Promise.all(urls.map((url) => new Promise((done) => {
                const script = document.createElement("script");
                script.src = url;
                script.onload = done;
                document.head.append(script);
            })));</script><script src="${new URL(url, location.href)}"></script>`;
            document.body.append(frame);
            // What the script posts goes to whoever holds this worker; what is posted to it is an event in the frame.
            this.ready.then((inside) => {
                inside.postMessage = (data) => this.tell(data);
            });
        }
        tell(data) {
            const event = new MessageEvent("message", { data });
            this.dispatchEvent(event);
            if (this.onmessage) this.onmessage(event);
        }
        postMessage(data) {
            this.ready.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
        }
        terminate() {
            this.ready.then((inside) => inside.frameElement.remove());
        }
    };
}
