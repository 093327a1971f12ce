/** Writes the fields of a layout in order (COMMITMENTS 1.2), or hashes them. */

import { concatAll, toUtf8 } from "./bytes.ts";
import { refuse } from "./errors.ts";
import { LIMITS } from "./limits.ts";
import { sha256All, tag } from "./sha256.ts";

const U64 = 1n << 64n;
/** A number is written here, and copied: a view of each field's own bytes would cost far more. */
const field = new Uint8Array(8);
const view = new DataView(field.buffer);

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

  #field(length: number): this {
    return this.raw(field.slice(0, length));
  }

  u8(value: number | boolean): this {
    return this.raw(Uint8Array.of(Number(value)));
  }

  u16(value: number): this {
    view.setUint16(0, value, true);
    return this.#field(2);
  }

  u32(value: number): this {
    view.setUint32(0, value, true);
    return this.#field(4);
  }

  u64(value: number | bigint): this {
    const whole = BigInt(value);
    if (whole < 0n || whole >= U64) throw refuse(`${whole.toString()} is no u64`);
    view.setBigUint64(0, whole, true);
    return this.#field(8);
  }

  f64(value: number): this {
    view.setFloat64(0, value, true);
    return this.#field(8);
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
