import { checkReceipt, hex } from "./receipt.js";

const by = (id) => document.getElementById(id);
const messages = [];
let digests = {};
let stopping = null;

function add(kind, text) {
  const found = document.createElement(kind === "checks" ? "ul" : "div");
  found.className = kind;
  found.textContent = text;
  by("said").append(found);
  return found;
}

/** A line below an answer: what was found, in bold, and of what. */
function item(list, kind, found, ...of) {
  const line = document.createElement("li");
  const word = document.createElement("b");
  line.className = kind;
  word.textContent = found;
  line.append(word, ...of);
  list.append(line);
}

/** The signed members of a receipt, behind a fold. */
function fold(id, receipt) {
  const found = document.createElement("details");
  const name = document.createElement("summary");
  const members = document.createElement("pre");
  name.textContent = `receipt ${id}, finish ${receipt.finish}`;
  members.textContent = JSON.stringify(receipt, null, 2);
  found.append(name, members);
  return found;
}

function headers() {
  const key = by("key").value.trim();
  const found = { "content-type": "application/json" };
  return key === "" ? found : { ...found, authorization: `Bearer ${key}` };
}

async function models() {
  const response = await fetch("v1/models", { headers: headers() });
  if (!response.ok) {
    by("digest").textContent = response.status === 401 ? "give an API key" : "unknown";
    return;
  }
  const found = (await response.json()).data.filter((model) => model.gives === "answers");
  digests = Object.fromEntries(found.map((model) => [model.id, model.digest]));
  by("model").replaceChildren(...found.map((model) => new Option(model.id, model.id)));
  by("digest").textContent = digests[by("model").value] ?? "this server has no model that chats";
}

/** The objects of a stream of events. */
async function* events(body) {
  let rest = "";
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error("The stream broke off: nothing of it is an answer.");
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line === "data: [DONE]") return;
      if (line.startsWith("data: ")) yield JSON.parse(line.slice(6));
    }
  }
}

const random = (bytes) => hex(crypto.getRandomValues(new Uint8Array(bytes)));

async function ask(content) {
  const before = messages.length;
  messages.push({ role: "user", content });
  add("user", content);
  const shown = add("assistant", "");
  const checks = add("checks", "");
  const asked = {
    messages: messages.map((message) => ({ ...message })),
    digest: digests[by("model").value],
    nonce: random(16),
    secret: random(32),
    tokens: Number(by("tokens").value),
    temperature: Number(by("temperature").value),
  };
  stopping = new AbortController();
  by("stop").disabled = !(by("send").disabled = true);
  try {
    const response = await fetch("v1/chat/completions", {
      method: "POST",
      headers: headers(),
      signal: stopping.signal,
      body: JSON.stringify({
        model: by("model").value, messages: asked.messages, stream: true, max_tokens: asked.tokens,
        temperature: asked.temperature, nonce: asked.nonce, secret: asked.secret,
      }),
    });
    if (!response.ok) throw new Error((await response.json()).error.message);
    let told = null;
    for await (const value of events(response.body)) {
      if (value.error !== undefined) throw new Error(value.error.message);
      const choice = value.choices[0];
      shown.textContent += choice?.delta.content ?? "";
      told = choice?.tallystick ?? told;
    }
    if (told === null) throw new Error("The stream ended without a receipt.");
    messages.push({ role: "assistant", content: shown.textContent });
    const report = await checkReceipt(told, asked, shown.textContent);
    for (const line of report.wrong) item(checks, "wrong", "WRONG ", line);
    for (const line of report.checked) item(checks, "checked", "checked ", line);
    for (const line of report.unchecked) item(checks, "unchecked", "not checked ", line);
    item(checks, "receipt", "", fold(told.id, report.receipt));
  } catch (error) {
    messages.length = before; // what has no receipt is no part of the conversation
    if (shown.textContent === "") shown.remove();
    const stopped = error.name === "AbortError";
    item(checks, "wrong", stopped ? "You stopped it: " : "No answer: ", stopped ? "no receipt came." : error.message);
  } finally {
    by("stop").disabled = !(by("send").disabled = false);
    stopping = null;
  }
}

by("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const content = by("message").value;
  if (content === "" || stopping !== null) return;
  by("message").value = "";
  ask(content);
});
by("message").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  by("ask").requestSubmit();
});
by("settings").addEventListener("submit", (event) => event.preventDefault());
by("stop").addEventListener("click", () => stopping?.abort());
by("key").addEventListener("change", models);
by("model").addEventListener("change", () => {
  by("digest").textContent = digests[by("model").value] ?? "unknown";
});
models();
