// The websocket: connects again after a break, subscribes, and sends requests.

const RETRIES = 20;
const PAUSE = 250;

export class Stream {
  // *on* has the functions `welcomed`, `rejected`, `lost` (with the reason) and `message`.
  constructor(on) {
    this.on = on;
    this.socket = null;
    this.token = null;
    this.asked = 0;
    this.waiting = new Map();
    this.moment = { clock: 0, unix: 0 };
    this.received = 0;
  }

  connect(token) {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    let welcomed = false;
    this.socket = new WebSocket(`${scheme}://${location.host}/console/stream`);
    this.socket.addEventListener("open", () => this.socket.send(JSON.stringify({ hello: 1, token })));
    this.socket.addEventListener("message", (message) => {
      const content = JSON.parse(message.data);
      if (content.kind === "welcome") {
        welcomed = true;
        this.setMoment(content.now);
        this.on.welcomed(token);
      } else this.take(content);
    });
    this.socket.addEventListener("close", (end) => {
      for (const { reject } of this.waiting.values()) reject(new Error("not connected"));
      this.waiting.clear();
      if (!welcomed && end.code === 1008) this.on.rejected();
      else {
        this.on.lost(end.reason);
        setTimeout(() => this.connect(token), 1000);
      }
    });
  }

  get isOpen() {
    return this.socket?.readyState === WebSocket.OPEN;
  }

  // The controller's clock now.
  get clock() {
    return this.moment.clock + (performance.now() - this.received) / 1000;
  }

  setMoment(now) {
    this.moment = now;
    this.received = performance.now();
  }

  send(message) {
    if (this.isOpen) this.socket.send(JSON.stringify(message));
  }

  // Returns the answer to a request; repeats it while the newest changes are not rendered yet.
  async ask(topic, more = {}) {
    for (let tries = 0; ; tries += 1) {
      try {
        return await this.askOnce(topic, more);
      } catch (error) {
        if (tries >= RETRIES || !error.message.includes("retry soon")) throw error;
        await new Promise((resolve) => setTimeout(resolve, PAUSE));
      }
    }
  }

  askOnce(topic, more) {
    if (!this.isOpen) return Promise.reject(new Error("not connected"));
    this.asked += 1;
    const id = this.asked;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.send({ ask: topic, id, ...more });
    });
  }

  take(message) {
    const { resolve, reject } = this.waiting.get(message.id) ?? {};
    switch (message.kind) {
      case "answer": this.waiting.delete(message.id); resolve?.(message.value); break;
      case "rejected": this.waiting.delete(message.id); reject?.(new Error(message.message)); break;
      case "now": this.setMoment(message.value); break;
      default: this.on.message(message);
    }
  }
}
