// Browsers refuse to start a Worker from a file. Pages that are opened as files run the search in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inner = this.frame.contentWindow;
      this.receive = (event) => {
        if (event.source === inner) {
          this.dispatchEvent(new MessageEvent("message", { data: event.data }));
          if (this.onmessage) this.onmessage(event);
        }
      };
      window.addEventListener("message", this.receive);
      this.loaded = new Promise((resolve) => (inner.loaded = resolve));
      const own = "postMessage = (data) => parent.postMessage(data, '*')";
      inner.document.open();
      inner.document.write(`<script>${own}</script><script src="${url}"></script><script>loaded()</script>`);
      inner.document.close();
    }
    postMessage(data) {
      const inner = this.frame.contentWindow;
      this.loaded.then(() => inner && inner.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) })));
    }
    terminate() {
      window.removeEventListener("message", this.receive);
      this.frame.remove();
    }
  };
}
