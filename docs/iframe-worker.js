// A browser starts no worker for a page that was opened from a file. Then the search's worker runs in a hidden frame.
"use strict";

class IframeWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    this.frame = frame;
    this.ready = new Promise(resolve => frame.addEventListener("load", resolve, {once: true}));
    addEventListener("message", event => {
      if (event.source !== frame.contentWindow) return;
      const answer = new MessageEvent("message", {data: event.data});
      this.dispatchEvent(answer);
      this.onmessage?.(answer);
    });
    // What a worker's script expects to find: the functions postMessage and importScripts.
    const prepare = () => {
      window.postMessage = message => parent.postMessage(message, "*");
      window.importScripts = (...urls) => urls.reduce((before, one) => before.then(() => new Promise(resolve => {
        const script = document.createElement("script");
        script.src = one;
        script.onload = resolve;
        document.body.append(script);
      })), Promise.resolve());
    };
    const page = frame.contentDocument;
    page.open();
    page.write(`<!doctype html><body><script>(${prepare})()</` + `script><script src="${url}"></` + "script></body>");
    page.close();
  }

  async postMessage(data) {
    await this.ready;
    this.frame.contentWindow.dispatchEvent(new MessageEvent("message", {data: structuredClone(data)}));
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") window.Worker = IframeWorker;
