// Search without a server: browsers refuse workers on pages opened as files, so the worker's script runs in a frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      window.addEventListener("message", event => {
        if (event.source !== this.frame.contentWindow) return
        event.stopImmediatePropagation()
        this.dispatchEvent(new MessageEvent("message", { data: event.data }))
      })
      document.body.append(this.frame)
      const page = this.frame.contentWindow.document
      page.open()
      page.write(
        `<script>postMessage = data => parent.dispatchEvent(new MessageEvent("message", { source: window, data }))<\/script>` +
        `<script src="${url}"><\/script>`
      )
      page.close()
      this.frame.contentWindow.addEventListener("load", () => {
        const waiting = this.waiting
        this.waiting = null
        waiting.forEach(data => this.postMessage(data))
      })
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }))
    }

    terminate() { this.frame.remove() }
  }
}
