/** Which turn, program and batch each step has (COMMITMENTS 7.6.3, 7.7.3). */
import { at, type Job } from "./job.ts";

interface TurnPlace {
  readonly program: number;
  readonly stream: number;
  readonly steps: number;
  /** Steps of the cycle before the turn. */
  readonly start: number;
  /** Earlier steps of its stream: of its pass, or else of the cycle. */
  readonly earlier: number;
}

export interface StepPlace {
  readonly program: number;
  readonly stream: number;
  /** The batch number j. */
  readonly batchNumber: number;
}

export class Timetable {
  readonly turns: readonly TurnPlace[];
  /** The steps of a cycle. */
  readonly cycle: number;
  /** The steps of each stream in a cycle. */
  readonly #ofCycle: readonly number[];

  constructor(readonly job: Job) {
    const turns: TurnPlace[] = [];
    const ofCycle = job.streams.map(() => 0);
    let start = 0;
    for (const { program, steps } of job.turns) {
      const { stream } = at(job.programs, program);
      const before = turns.at(-1);
      const goesOn = before?.stream === stream && before.program !== program;
      const passed = goesOn ? before.earlier + before.steps : 0;
      const inCycle = ofCycle[stream] ?? 0;
      const earlier = at(job.streams, stream).byPass ? passed : inCycle;
      turns.push({ program, stream, steps, start, earlier });
      ofCycle[stream] = inCycle + steps;
      start += steps;
    }
    this.turns = turns;
    this.cycle = start;
    this.#ofCycle = ofCycle;
  }

  /** What step t executes. */
  at(t: number): StepPlace {
    const [cycles, rest] = [Math.floor(t / this.cycle), t % this.cycle];
    const turn = this.turns.find(({ start, steps }) => rest < start + steps);
    if (turn === undefined) throw new Error("a step of no turn");
    const { program, stream, earlier, start } = turn;
    const { byPass, first } = at(this.job.streams, stream);
    const repeated = byPass ? 0 : first + cycles * this.stepsOfCycle(stream);
    return { program, stream, batchNumber: repeated + earlier + (rest - start) };
  }

  stepsOfCycle(stream: number): number {
    return at(this.#ofCycle, stream);
  }

  /** How many steps of a run of the job's number of steps execute a program of the stream. */
  stepsOfRun(stream: number): number {
    const { steps } = this.job;
    let count = Math.floor(steps / this.cycle) * this.stepsOfCycle(stream);
    for (const turn of this.turns) {
      if (turn.stream === stream) count += this.stepsOfTurn(turn, steps % this.cycle);
    }
    return count;
  }

  /** How many of a turn's steps are among the first ones of a cycle. */
  stepsOfTurn({ start, steps }: TurnPlace, first: number): number {
    return Math.min(Math.max(first - start, 0), steps);
  }

  /** The steps of the longest pass of a stream. */
  longestPass(stream: number): number {
    const own = this.turns.filter((turn) => turn.stream === stream);
    return Math.max(...own.map(({ earlier, steps }) => earlier + steps));
  }

  /** The rows of a table that a program of the stream reads (7.6.5, 7.7.6). */
  rows(stream: number): number {
    const { byPass } = at(this.job.streams, stream);
    return byPass ? this.longestPass(stream) : this.stepsOfRun(stream);
  }
}
