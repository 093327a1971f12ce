// What a page can check of a receipt by itself: signature, request and text.
// The numbers are clauses of spec/ANSWERS.md and spec/COMMITMENTS.md.

const utf8 = new TextEncoder();

function fromBase64(text) {
  const plain = text.replace(/-/g, "+").replace(/_/g, "/");
  return Uint8Array.from(atob(plain), (c) => c.charCodeAt(0));
}

export function hex(bytes) {
  return Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
}

function fromHex(text) {
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

function joined(...parts) {
  const all = new Uint8Array(parts.reduce((n, part) => n + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

function little(value, bytes) {
  const found = new Uint8Array(bytes);
  new DataView(found.buffer).setUint32(0, value, true);
  return found;
}

const tag = (name) => utf8.encode(`tallystick/${name}\0`); // COMMITMENTS 1.3
const text = (value) => joined(little(utf8.encode(value).length, 4), utf8.encode(value));
const blob = (bytes) => joined(little(bytes.length, 8), bytes);

async function sha256(...parts) {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", joined(...parts)));
}

/** RFC 8785, of values without fractions (COMMITMENTS 1.8). */
function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const members = Object.keys(value).sort();
  return `{${members.map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(",")}}`;
}

/** A number as Python's float.hex writes it. */
export function floatHex(value) {
  if (value === 0) return "0x0.0p+0";
  let exponent = Math.floor(Math.log2(Math.abs(value)));
  let mantissa = Math.abs(value) / 2 ** exponent;
  if (mantissa >= 2) [mantissa, exponent] = [mantissa / 2, exponent + 1];
  if (mantissa < 1) [mantissa, exponent] = [mantissa * 2, exponent - 1];
  const digits = Math.round((mantissa - 1) * 2 ** 52).toString(16).padStart(13, "0");
  return `${value < 0 ? "-" : ""}0x1.${digits}p${exponent < 0 ? "" : "+"}${exponent}`;
}

/** The request's digest (ANSWERS 5.3, 5.4). */
export async function requestDigest(parts, secret) {
  const names = Object.keys(parts).sort();
  const found = [];
  for (const name of names) {
    const salt = await sha256(tag("answer-salt/1"), secret, text(name));
    const data = utf8.encode(canonical(parts[name]));
    found.push(text(name), await sha256(tag("request-part/1"), text(name), salt, blob(data)));
  }
  return sha256(tag("request/1"), little(names.length, 8), ...found);
}

/** Whether the envelope's signature is by the key in its payload; null where the browser cannot
 * tell (COMMITMENTS 9.2). */
async function isSigned(envelope, payload, key) {
  const kind = utf8.encode(envelope.payloadType);
  const head = utf8.encode(`DSSEv1 ${kind.length} ${envelope.payloadType} ${payload.length} `);
  try {
    const known = await crypto.subtle.importKey("raw", key, "Ed25519", false, ["verify"]);
    const signature = fromBase64(envelope.signatures[0].sig);
    return await crypto.subtle.verify("Ed25519", known, signature, joined(head, payload));
  } catch (error) {
    if (error.name === "NotSupportedError" || crypto.subtle === undefined) return null;
    return false;
  }
}

/** What of an answer is right, wrong, or not looked at. `asked` is what the page has asked for, and
 * `shown` the text that it has shown. */
export async function checkReceipt(told, asked, shown) {
  const checked = [], unchecked = [], wrong = [];
  const payload = fromBase64(told.receipt.payload);
  const receipt = JSON.parse(new TextDecoder().decode(payload));
  const signed = await isSigned(told.receipt, payload, fromBase64(receipt.key));
  const signer = hex(fromBase64(receipt.key));
  if (signed === null) unchecked.push("signature: this browser knows no Ed25519");
  else if (signed) checked.push(`signature: of the public key ${signer}`);
  else wrong.push("The receipt's signature does not verify.");

  const parts = {
    ...told.request.parts,
    choices: 1,
    input: { messages: asked.messages },
    model: asked.digest,
    seed: { by: "client", nonce: asked.nonce, seed: null },
    stop_strings: [],
  };
  const floats = { frequency: 0, min_p: 0, presence: 0, repetition: 1, temperature: asked.temperature, top_p: 1 };
  parts.settings = { bias: [], max_tokens: asked.tokens, stop: [], top_k: 0 };
  for (const [name, value] of Object.entries(floats)) parts.settings[name] = floatHex(value);
  const digest = hex(await requestDigest(parts, fromHex(asked.secret)));
  if (digest === hex(fromBase64(receipt.request))) checked.push("request: your messages and settings, by their digest");
  else wrong.push("The receipt is of another request.");
  if (hex(fromBase64(receipt.model)) === asked.digest) checked.push(`model: ${asked.digest}`);
  else wrong.push("The receipt is of another model.");
  if (shown !== told.answer.text) wrong.push("The text shown is not the one beside the receipt.");
  if (receipt.answer !== told.answer.tokens.length) wrong.push("The receipt counts other tokens.");
  unchecked.push("that these tokens are the signed ones, and their text: the command tallystick chat does");
  unchecked.push("the computation: the command tallystick chat --model DIR does");
  return { checked, unchecked, wrong, receipt };
}
