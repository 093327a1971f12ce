/** Writes the fields of a layout in order (COMMITMENTS 1.2), or hashes them. */

import { concatAll, toUtf8 } from "./bytes.ts";
import { refuse } from "./errors.ts";
import { LIMITS } from "./limits.ts";
import { sha256All, tag } from "./sha256.ts";

const U64 = 1n << 64n;

export class Writer {
  readonly #parts: Uint8Array[] = [];

  /** A layout that begins with a tag (1.3). */
  static tagged(name: string): Writer {
    return new Writer().raw(tag(name));
  }

  raw(bytes: Uint8Array): this {
    this.#parts.push(bytes);
    return this;
  }

  #field(length: number, set: (view: DataView) => void): this {
    const bytes = new Uint8Array(length);
    set(new DataView(bytes.buffer));
    return this.raw(bytes);
  }

  u8(value: number | boolean): this {
    return this.raw(Uint8Array.of(Number(value)));
  }

  u16(value: number): this {
    return this.#field(2, (view) => {
      view.setUint16(0, value, true);
    });
  }

  u32(value: number): this {
    return this.#field(4, (view) => {
      view.setUint32(0, value, true);
    });
  }

  u64(value: number | bigint): this {
    const whole = BigInt(value);
    if (whole < 0n || whole >= U64) throw refuse(`${whole.toString()} is no u64`);
    return this.#field(8, (view) => {
      view.setBigUint64(0, whole, true);
    });
  }

  f64(value: number): this {
    return this.#field(8, (view) => {
      view.setFloat64(0, value, true);
    });
  }

  hash(bytes: Uint8Array): this {
    if (bytes.length !== 32) throw refuse("a hash has 32 bytes");
    return this.raw(bytes);
  }

  blob(bytes: Uint8Array): this {
    return this.u64(bytes.length).raw(bytes);
  }

  text(value: string): this {
    const bytes = toUtf8(value);
    if (bytes.length > LIMITS.nameBytes) throw refuse(`a text of ${bytes.length} bytes`);
    return this.u32(bytes.length).raw(bytes);
  }

  /** A list: u64 count, then the items. */
  list<T>(items: readonly T[], write: (item: T) => void): this {
    this.u64(items.length);
    items.forEach(write);
    return this;
  }

  hashes(hashes: readonly Uint8Array[]): this {
    return this.list(hashes, (hash) => this.hash(hash));
  }

  bytes(): Uint8Array {
    return concatAll(this.#parts);
  }

  /** H of the layout (1.1). */
  digest(): Uint8Array {
    return sha256All(this.#parts);
  }
}
