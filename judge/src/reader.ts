/** Reads the fields of a layout in order (COMMITMENTS 1.2, 1.6). */

import { equalBytes, fromUtf8 } from "./bytes.ts";
import { refuse } from "./errors.ts";
import { LIMITS } from "./limits.ts";
import { tag } from "./sha256.ts";

export class Reader {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  /** How many bytes are left. */
  get left(): number {
    return this.#bytes.length - this.#at;
  }

  #step(count: number): number {
    if (count > this.left) throw refuse("bytes are missing");
    const at = this.#at;
    this.#at += count;
    return at;
  }

  /** The next bytes, as a view of the input: nothing is allocated from a claimed length. */
  take(count: number): Uint8Array {
    const at = this.#step(count);
    return this.#bytes.subarray(at, at + count);
  }

  /** The tag that must come next (1.6). */
  tag(name: string): void {
    const expected = tag(name);
    if (!equalBytes(this.take(expected.length), expected)) throw refuse(`no tag ${name}`);
  }

  u8(): number {
    return this.#view.getUint8(this.#step(1));
  }

  u16(): number {
    return this.#view.getUint16(this.#step(2), true);
  }

  u32(): number {
    return this.#view.getUint32(this.#step(4), true);
  }

  u64(): bigint {
    return this.#view.getBigUint64(this.#step(8), true);
  }

  f64(): number {
    return this.#view.getFloat64(this.#step(8), true);
  }

  /** A u64 that is a size, index or step: at most `limit`, which is below 2⁵³. */
  count(limit: number, what: string): number {
    const value = this.u64();
    if (value > BigInt(limit)) throw refuse(`${what}: ${value.toString()} is over ${limit}`);
    return Number(value);
  }

  hash(): Uint8Array {
    return this.take(32);
  }

  blob(limit: number, what: string): Uint8Array {
    return this.take(this.count(limit, what));
  }

  text(): string {
    const length = this.u32();
    if (length > LIMITS.nameBytes) throw refuse(`a text of ${length} bytes`);
    return fromUtf8(this.take(length));
  }

  /** A list: u64 count, then items of at least `least` bytes each, which must be there. */
  list<T>(limit: number, least: number, what: string, item: () => T): T[] {
    const length = this.count(limit, what);
    if (length * least > this.left) throw refuse(`${what}: bytes are missing`);
    return Array.from({ length }, item);
  }

  hashes(limit: number, what: string): Uint8Array[] {
    return this.list(limit, 32, what, () => this.hash());
  }

  /** Refuses bytes left over (1.6). */
  end(): void {
    if (this.left > 0) throw refuse(`${this.left} bytes are left over`);
  }
}
