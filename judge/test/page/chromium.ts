/** A headless Chromium, spoken to by the DevTools protocol over a pipe. */
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable, Writable } from "node:stream";

const NAMES = ["chromium", "chromium-browser", "google-chrome"];

/** The program's name, where there is one. */
export const CHROMIUM = NAMES.find(
  (name) => spawnSync(name, ["--version"], { stdio: "ignore" }).status === 0,
);

interface Message {
  readonly id?: number;
  readonly method?: string;
  readonly params?: Readonly<Record<string, unknown>>;
  readonly result?: Readonly<Record<string, unknown>>;
  readonly error?: { readonly message: string };
}

type Send = (method: string, params?: object) => Promise<Readonly<Record<string, unknown>>>;

export interface Tab {
  /** The value of an expression in the page. */
  evaluate(expression: string): Promise<unknown>;
  /** Milliseconds of a processor that the page's process has worked. */
  worked(): Promise<number>;
  /** Waits until an expression is true. */
  until(expression: string): Promise<void>;
  /** Hands files to the file input with this id. */
  choose(id: string, paths: readonly string[]): Promise<void>;
  open(path: string): Promise<void>;
  look(width: number, scheme: "light" | "dark", path: string): Promise<void>;
  /** Addresses asked for, and what the page said in the console. */
  readonly requests: string[];
  readonly complaints: string[];
  close(): Promise<void>;
}

export async function openTab(program: string): Promise<Tab> {
  const profile = mkdtempSync(join(tmpdir(), "judge-page-"));
  const flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"];
  const browser = spawn(program, [...flags, `--user-data-dir=${profile}`, "about:blank"], {
    stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"],
  });
  const [input, output] = [browser.stdio[3] as Writable, browser.stdio[4] as Readable];
  const waiting = new Map<number, (message: Message) => void>();
  const [requests, complaints]: [string[], string[]] = [[], []];
  let [number, left] = [0, ""];
  const heard = (message: Message): void => {
    if (message.id !== undefined) waiting.get(message.id)?.(message);
    const said = JSON.stringify(message.params ?? {});
    if (message.method === "Network.requestWillBeSent") requests.push(said);
    if (message.method === "Log.entryAdded" || message.method === "Runtime.exceptionThrown") {
      complaints.push(said);
    }
  };
  output.setEncoding("utf8").on("data", (text: string) => {
    const parts = (left + text).split("\0");
    left = parts.pop() ?? "";
    for (const part of parts) heard(JSON.parse(part) as Message);
  });
  const call = (method: string, params: object, sessionId?: string) =>
    new Promise<Readonly<Record<string, unknown>>>((resolve, reject) => {
      const id = ++number;
      waiting.set(id, ({ result, error }) => {
        waiting.delete(id);
        if (error === undefined) resolve(result ?? {});
        else reject(new Error(`${method}: ${error.message}`));
      });
      input.write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    });
  const { targetId } = await call("Target.createTarget", { url: "about:blank" });
  const { sessionId } = await call("Target.attachToTarget", { targetId, flatten: true });
  const send: Send = (method, params = {}) => call(method, params, String(sessionId));
  for (const domain of ["Page", "Network", "Log", "Runtime", "DOM", "Performance"])
    await send(`${domain}.enable`);
  const evaluate = async (expression: string): Promise<unknown> => {
    const { result } = await send("Runtime.evaluate", { expression, returnByValue: true });
    return (result as { value?: unknown }).value;
  };
  const until = async (expression: string): Promise<void> => {
    for (let tries = 0; tries < 200; tries++) {
      if ((await evaluate(expression)) === true) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error(`never true: ${expression}`);
  };
  return {
    evaluate,
    async worked() {
      const { metrics } = await send("Performance.getMetrics");
      const all = metrics as readonly { readonly name: string; readonly value: number }[];
      return 1000 * (all.find(({ name }) => name === "ProcessTime")?.value ?? NaN);
    },
    until,
    requests,
    complaints,
    async choose(id, files) {
      const { result } = await send("Runtime.evaluate", {
        expression: `document.getElementById(${JSON.stringify(id)})`,
      });
      const { objectId } = result as { objectId: string };
      await send("DOM.setFileInputFiles", { files, objectId });
    },
    async open(path) {
      await send("Page.navigate", { url: `file://${path}` });
      await until("document.readyState === 'complete' && location.protocol === 'file:'");
    },
    async look(width, scheme, path) {
      const metrics = { width, height: 900, deviceScaleFactor: 1, mobile: width < 600 };
      await send("Emulation.setDeviceMetricsOverride", metrics);
      const features = [{ name: "prefers-color-scheme", value: scheme }];
      await send("Emulation.setEmulatedMedia", { features });
      const shot = await send("Page.captureScreenshot", { captureBeyondViewport: true });
      writeFileSync(path, Buffer.from(String(shot["data"]), "base64"));
    },
    async close() {
      const ended = new Promise((resolve) => browser.once("exit", resolve));
      await call("Browser.close", {});
      await ended;
      rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}
