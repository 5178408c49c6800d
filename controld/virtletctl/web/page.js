// The page of a machine: its screen by noVNC, its serial console by xterm.js, each over a WebSocket of its own.
//
// `data-screen` and `data-console` of the body say how they are: off, connecting, connected, lost or over. Text of others (the machine's name, why
// something ended) is only ever set as text.

import RFB from "./novnc/core/rfb.js";
import { Terminal } from "./xterm/lib/xterm.mjs";
import { FitAddon } from "./fit/lib/addon-fit.mjs";

// What the server closes a WebSocket with, beside the standard's codes.
const TAKEN = 4001;
const ABNORMAL = 1006;
// Seconds before each new try.
const PAUSES = [1, 2, 4, 8, ...Array(30).fill(15)];

const at = (id) => document.getElementById(id);
const tabs = ["screen", "console"];
let shown = "screen";

// A connection to one of the server's two streams, which is made anew when it is lost.
class Link {
	constructor(name, begin) {
		this.name = name;
		this.begin = begin;
		this.socket = null;
		this.tries = 0;
		this.timer = 0;
		this.text = "";
	}

	connect() {
		clearTimeout(this.timer);
		const before = this.socket;
		const at = new URL(this.name, location.href);
		at.protocol = "ws:";
		const socket = new WebSocket(at);
		socket.binaryType = "arraybuffer";
		this.socket = socket;
		before?.close();
		this.say("connecting", "Connecting");
		socket.addEventListener("close", (event) => {
			if (this.socket === socket) {
				this.lost(event);
			}
		});
		this.begin(socket);
	}

	connected() {
		this.tries = 0;
		this.say("connected", "Connected");
	}

	async lost(event) {
		if (event.code === TAKEN) {
			this.say("over", "Shown in another tab or window; Reconnect brings it here");
			return;
		}
		let why = event.reason;
		if (event.code === ABNORMAL) {
			const answer = await fetch("about", { cache: "no-store" }).catch(() => null);
			if (this.socket !== event.target) {
				return;
			}
			if (answer?.status === 403) {
				this.say("over", "The virtletctl that made this page has ended; open the link of the new one");
				return;
			}
			why = answer ? "Connection lost" : "virtletctl does not answer; it may have ended";
		}
		const pause = PAUSES[this.tries++];
		if (pause === undefined) {
			this.say("over", why);
			return;
		}
		this.say("lost", `${why || "Connection closed"}. Trying again in ${pause} s`);
		clearTimeout(this.timer);
		this.timer = setTimeout(() => this.connect(), pause * 1000);
	}

	say(state, text) {
		document.body.dataset[this.name] = state;
		this.text = text;
		if (shown === this.name) {
			at("state").textContent = text;
		}
	}
}

// === the screen

let rfb = null;

function showScreen(socket) {
	at("screen").replaceChildren();
	const own = new RFB(at("screen"), socket, { shared: true });
	rfb = own;
	size();
	own.addEventListener("connect", () => {
		screen.connected();
		if (shown === "screen") {
			own.focus();
		}
	});
	own.addEventListener("disconnect", () => {
		if (rfb === own) {
			rfb = null;
		}
	});
}

function size() {
	if (rfb) {
		const how = at("size").value;
		rfb.resizeSession = how === "ask";
		rfb.scaleViewport = how !== "own";
	}
}

const screen = new Link("screen", showScreen);

// Keys of a US keyboard that need Shift, and those without a character.
const SHIFTED = /^[A-Z~!@#$%^&*()_+{}|:"<>?]$/;
const NAMED = { "\n": 0xff0d, "\t": 0xff09 };
const SHIFT = 0xffe1;
// A keyboard of the machine's holds few keys that its guest has not taken.
const KEY_PAUSE = 20;

// Types a text as keys; how many of its characters a US keyboard does not have.
async function type(text) {
	const to = rfb;
	let left = 0;
	for (const key of text.replaceAll("\r\n", "\n")) {
		const code = NAMED[key] ?? (/^[ -~]$/.test(key) ? key.codePointAt(0) : 0);
		if (!to || to !== rfb) {
			return left;
		}
		if (code === 0) {
			left += 1;
			continue;
		}
		const shift = SHIFTED.test(key);
		if (shift) {
			to.sendKey(SHIFT, null, true);
		}
		to.sendKey(code, null);
		if (shift) {
			to.sendKey(SHIFT, null, false);
		}
		await new Promise((resolve) => setTimeout(resolve, KEY_PAUSE));
	}
	return left;
}

at("ctrl-alt-del").addEventListener("click", () => {
	rfb?.sendCtrlAltDel();
	rfb?.focus();
});
at("size").addEventListener("change", size);
at("whole").addEventListener("click", () => {
	if (document.fullscreenElement) {
		document.exitFullscreen();
	} else {
		document.documentElement.requestFullscreen();
	}
});
at("paste").addEventListener("click", () => at("paste-dialog").showModal());
at("paste-dialog").addEventListener("close", async () => {
	rfb?.focus();
	if (at("paste-dialog").returnValue === "type") {
		const left = await type(at("paste-text").value);
		if (left > 0) {
			screen.say("connected", `${left} characters are not on a US keyboard, and were left out`);
		}
	}
});

// === the console

const dark = matchMedia("(prefers-color-scheme: dark)");
const encoder = new TextEncoder();
// What a guest prints is nobody's to follow: a link of its is text.
const terminal = new Terminal({ scrollback: 5000, theme: theme(), linkHandler: { activate() {} } });
const fit = new FitAddon();
terminal.loadAddon(fit);
terminal.onData((text) => send(encoder.encode(text)));
terminal.onBinary((text) => send(Uint8Array.from(text, (one) => one.charCodeAt(0))));
// A copy by keys, as Ctrl-C is the guest's. Pasting by Ctrl-Shift-V is the browser's.
terminal.attachCustomKeyEventHandler((event) => {
	const copies = event.type === "keydown" && event.ctrlKey && event.shiftKey && event.code === "KeyC" && terminal.hasSelection();
	if (copies) {
		event.preventDefault();
		navigator.clipboard.writeText(terminal.getSelection());
	}
	return !copies;
});

function theme() {
	return dark.matches
		? { background: "#101113", foreground: "#e8e8e8", cursor: "#e8e8e8", selectionBackground: "#3d5a80" }
		: { background: "#ffffff", foreground: "#1a1a1a", cursor: "#1a1a1a", selectionBackground: "#b3d4fc" };
}

function send(bytes) {
	if (consoleLink.socket?.readyState === WebSocket.OPEN) {
		consoleLink.socket.send(bytes);
	}
}

function showConsole(socket) {
	let done = 0;
	socket.addEventListener("open", () => consoleLink.connected());
	socket.addEventListener("message", (event) => {
		const bytes = new Uint8Array(event.data);
		// The server sends more once these are on the terminal.
		terminal.write(bytes, () => {
			done += bytes.length;
			if (socket.readyState === WebSocket.OPEN) {
				socket.send(String(done));
			}
		});
	});
}

const consoleLink = new Link("console", showConsole);

dark.addEventListener("change", () => {
	terminal.options.theme = theme();
});
at("read-aloud").addEventListener("change", (event) => {
	terminal.options.screenReaderMode = event.target.checked;
	terminal.focus();
});
new ResizeObserver(() => {
	if (shown === "console") {
		fit.fit();
	}
}).observe(at("console"));

// === tabs and buttons

const links = { screen, console: consoleLink };

function show(name) {
	shown = name;
	for (const tab of tabs) {
		at(`tab-${tab}`).setAttribute("aria-selected", String(tab === name));
		at(`tab-${tab}`).tabIndex = tab === name ? 0 : -1;
		at(`${tab}-tools`).hidden = tab !== name;
		at(tab).hidden = tab !== name;
	}
	at("state").textContent = links[name].text;
	if (name === "console") {
		if (!terminal.element) {
			terminal.open(at("console"));
			consoleLink.connect();
		}
		fit.fit();
		terminal.focus();
	} else {
		rfb?.focus();
	}
}

for (const tab of tabs) {
	at(`tab-${tab}`).addEventListener("click", () => show(tab));
	at(`tab-${tab}`).addEventListener("keydown", (event) => {
		if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
			const other = tabs[1 - tabs.indexOf(tab)];
			show(other);
			at(`tab-${other}`).focus();
		}
	});
}

at("again").addEventListener("click", () => {
	links[shown].tries = 0;
	links[shown].connect();
});

// The way out for who has no mouse. The guest is told that the keys are up, as their end is not its any more.
const HELD = [[0xffe3, "ControlLeft"], [0xffe4, "ControlRight"], [0xffe9, "AltLeft"], [0xffea, "AltRight"]];
document.addEventListener("keydown", (event) => {
	if (event.ctrlKey && event.altKey && event.code === "Space") {
		event.preventDefault();
		event.stopPropagation();
		HELD.forEach(([key, code]) => rfb?.sendKey(key, code, false));
		at(`tab-${shown}`).focus();
	}
}, true);

const about = await fetch("about", { cache: "no-store" }).then((answer) => answer.json());
document.title = about.name;
at("name").textContent = about.name;
at("name").title = about.name;
screen.connect();
