/** Seeds of random keys (COMMITMENTS 7.6.6, 7.7.6). */
import { Reader } from "../reader.ts";
import { Writer } from "../writer.ts";
import { at, type Job } from "./job.ts";

/** The seed s of a stream's programs. */
export function seedOf({ rngSeed, streams }: Job, stream: number): bigint {
  if (stream === 0) return rngSeed;
  const { name } = at(streams, stream);
  const digest = Writer.tagged("program-seed/1").u64(rngSeed).text(name).digest();
  return new Reader(digest).u64() % 2n ** 63n;
}
