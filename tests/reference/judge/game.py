"""The referee: phases 0 to 2 (PROTOCOL 3 to 5)."""

from __future__ import annotations

from reference.judge import messages as ask
from reference.judge.encoding import sha, tag, text, u32, u64
from reference.judge.merkle import (
    Type,
    by_inclusion,
    by_multi,
    canonical,
    digest_of_bytes,
    elements,
    leaf_hash,
    outside,
    tensor_digest,
    width,
)
from reference.judge.rounds import (
    BOTH,
    CHAIN,
    Party,
    Play,
    VerdictError,
    asked,
    both,
    convict,
    descend,
    first_element,
)
from reference.judge.terms import Node, Terms


class Referee:
    """One game."""

    def __init__(self, terms: Terms, parties: list[Party], arity: int) -> None:
        self.terms, self.parties, self.arity = terms, parties, arity
        self.program = terms.program_at(0)  # of the disputed step, once it is found (5.0)
        self.slots = self.program.slots()
        self.log_before: list[bytes] | None = None
        self.logs_at: dict[int, list[bytes]] = {}

    def run(self) -> Play:
        yield from self.begin()
        yield from self.diverging_step()
        yield from self.diverging_node()

    # Phase 0.

    def begin(self) -> Play:
        wrong = []
        for p, party in enumerate(self.parties):
            n, steps = party.final, self.terms.steps
            early = self.terms.stops or self.terms.slot_stops
            ends = n == steps or (early and 1 <= n < steps)
            wrong.append((p, not ends or party.checkpoints != self.terms.checkpoints(n)))
        convict(wrong, "3.2")
        chosen = {p: sorted({0, party.checkpoints - 1}) for p, party in enumerate(self.parties)}
        self.proofs = yield from self.prove(chosen)
        convict([(p, x.proved[0] != self.terms.genesis) for p, x in self.each()], "3.4")
        last = [(p, x.proved[x.checkpoints - 1] != x.final_root) for p, x in self.each()]
        convict(last, "3.5")
        a, b = self.parties
        if a.run_root == b.run_root and a.final == b.final:
            raise VerdictError([])

    def each(self) -> list[tuple[int, Party]]:
        return list(enumerate(self.parties))

    def prove(self, chosen: dict[int, list[int]]) -> Play:
        """Each party's multi-proof of the checkpoints chosen of it (3.3)."""
        queries = {
            p: ask.checkpoints(c, self.parties[p].checkpoints) for p, c in chosen.items() if c
        }
        found = yield from asked(queries)
        wrong = []
        for p, (roots, proof) in found.items():
            party = self.parties[p]
            n = party.checkpoints
            leaves = {
                i: leaf_hash(tag("checkpoint/1") + u64(self.step_of(party, i)) + r)
                for i, r in roots.items()
            }
            fits = len(proof) == len(outside(list(roots), n))
            tree = by_multi(leaves, n, proof) if fits else b""
            fits = fits and sha(tag("run/1") + self.terms.digest + u64(n) + tree) == party.run_root
            wrong.append((p, not fits))
            party.proved.update(roots)
        convict(wrong, "3.3")
        return {p: proof for p, (_, proof) in found.items()}

    def step_of(self, party: Party, index: int) -> int:
        return min(index * self.terms.interval, party.final)

    # Phase 1.

    def points(self, lo: int, hi: int) -> list[int]:
        """4.3."""
        n = self.arity
        found = {lo + -(-k * (hi - lo) // n) for k in range(1, n)}
        return sorted(i for i in found if lo < i < hi)

    def search(self, lo: int, hi: int, name: str) -> Play:
        """4.3, among checkpoints (`proved`), or 4.4, among states (`stated`)."""
        a, b = (getattr(x, name) for x in self.parties)
        while hi > lo + 1:
            points = self.points(lo, hi)
            new = [i for i in points if i not in a or i not in b]
            if new and name == "proved":
                yield from self.prove({0: new, 1: new})
            elif new:
                found = yield from both(ask.states(new))
                a.update(found[0])
                b.update(found[1])
            for i in points:
                if a[i] != b[i]:
                    hi = i
                    break
                lo = i
        return lo, hi

    def diverging_step(self) -> Play:
        a, b = self.parties
        low = min(a.final, b.final)
        shorter, longer = (a, b) if a.final < b.final else (b, a)
        if a.final == b.final:
            hi = a.checkpoints - 1
            if a.final_root == b.final_root:
                hi = yield from self.between(self.proofs, [0, hi])
        else:
            hi = low // self.terms.interval
            missing = {p: [hi] for p, x in self.each() if hi not in x.proved}
            if missing:
                yield from self.prove(missing)
        if a.proved[hi] != b.proved[hi]:
            lo, hi = yield from self.search(0, hi, "proved")
            first, last = self.step_of(a, lo), self.step_of(a, hi)
            for x in self.parties:
                x.stated |= {first: x.proved[lo], last: x.proved[hi]}
        else:
            first, last = hi * self.terms.interval, low
            p = self.parties.index(longer)
            at = {first: a.proved[hi], low: shorter.final_root}
            for x in self.parties:
                x.stated |= at
            if low > first:
                found = yield from asked({p: ask.states([low])})
                longer.stated[low] = found[p][low]
            if longer.stated[low] == shorter.stated[low]:
                yield from self.last_loss(low, shorter.stated[low])
        self.step, _ = yield from self.search(first, last, "stated")

    def between(self, proofs: dict[int, list[bytes]], chosen: list[int]) -> Play:
        """A checkpoint at which runs of equal ends differ (4.2)."""
        n = self.parties[0].checkpoints
        start, end = 0, n
        while True:
            trees = outside(chosen, n)
            start, end = next(
                t
                for t, x, y in zip(trees, proofs[0], proofs[1], strict=True)
                if x != y and start <= t[0] and t[1] <= end
            )
            points = self.points(start - 1, end)
            a, b = (x.proved for x in self.parties)
            chosen = [i for i in points if i not in a or i not in b]
            proofs = yield from self.prove({0: chosen, 1: chosen})
            for i in points:
                if a[i] != b[i]:
                    return i

    def last_loss(self, last: int, agreed: bytes) -> Play:
        """4.7: whoever is wrong about the end of the run."""
        longer = 0 if self.parties[0].final > self.parties[1].final else 1
        if self.terms.stops:
            yield from self.non_finite(last, agreed, longer)
        found = yield from asked({0: ask.slot(last, "control.stop")})
        digest, proof = found[0]
        convict([(0, self.slot_root("control.stop", digest, proof) != agreed)], "4.11")
        true = digest == digest_of_bytes(("bool", ()), b"\1")
        raise VerdictError([(longer if true else 1 - longer, "4.11")])

    def non_finite(self, last: int, agreed: bytes, longer: int) -> Play:
        """4.8 to 4.10."""
        found = yield from asked({0: ask.loss(last - 1)})
        chain, bits, proof = found[0]
        after = sha(tag("loss-chain/1") + chain + u64(last - 1) + u32(bits))
        digest = digest_of_bytes(CHAIN, after)
        fits = self.slot_root("chain.loss", digest, proof) == agreed
        wrong = not fits or not canonical("f32", u32(bits))
        convict([(0, wrong)], "4.10")
        if bits & 0x7F800000 == 0x7F800000:
            raise VerdictError([(longer, "4.8")])
        if not self.terms.slot_stops:
            raise VerdictError([(1 - longer, "4.9")])

    def slot_root(self, name: str, digest: bytes, proof: list[bytes]) -> bytes:
        """The state root that a slot's proof gives (COMMITMENTS 5)."""
        n = len(self.slots)
        leaf = leaf_hash(tag("slot/1") + text(name) + digest)
        tree = by_inclusion(leaf, self.slots.index(name), n, proof)
        return sha(tag("state/1") + u64(n) + tree)

    # Phase 2.

    def fits_program(self, record: ask.Record, node: Node) -> bool:
        """5.5: operator, attributes, numbers of inputs and outputs."""
        outputs = 3 if node.op == "tallystick.commit" else len(node.types)
        inputs = sum(o is not None for o in node.operands)
        return (record.op, record.attrs) == (node.op, node.attr_bytes) and (
            len(record.inputs),
            len(record.outputs),
        ) == (inputs, outputs)

    def in_tree(self, record: ask.Record, index: int, root: bytes) -> bool:
        leaf = leaf_hash(record.digest(self.program.digest, self.step, index))
        return by_inclusion(leaf, index, len(self.program.nodes), record.proof) == root

    def diverging_node(self) -> Play:
        self.program = self.terms.program_at(self.step)
        t, nodes = self.step, self.program.nodes
        n = len(nodes)
        found = yield from both(ask.nodes(t))
        convict([(p, found[p][0] != n) for p in BOTH], "5.2")
        self.trees = trees = [found[p][1] for p in BOTH]
        commits = yield from both(ask.node(t, n - 1))
        wrong = []
        for p, r in sorted(commits.items()):
            fits = self.in_tree(r, n - 1, trees[p]) and self.fits_program(r, nodes[-1])
            fits = fits and r.outputs[2] == self.parties[p].stated[t + 1]
            wrong.append((p, not fits))
        convict(wrong, "5.3")
        j, leaves = yield from descend(
            lambda first, count: ask.node_hashes(t, first, count),
            n,
            lambda p, whole: whole == trees[p],
            "5.4",
        )
        records = commits
        if j != n - 1:
            records = yield from both(ask.node(t, j))
            wrong = []
            for p, r in sorted(records.items()):
                leaf = leaf_hash(r.digest(self.program.digest, t, j))
                wrong.append((p, leaf != leaves[p] or not self.fits_program(r, nodes[j])))
            convict(wrong, "5.5")
        present = [k for k, o in enumerate(nodes[j].operands) if o is not None]
        for k, x, y in zip(present, records[0].inputs, records[1].inputs, strict=True):
            if nodes[j].operands[k] == ("input", "chain.log") and self.log_before:
                claimed = [(0, x != self.log_before[0]), (1, y != self.log_before[1])]
                convict(claimed, "5.6.1")
            elif x != y:
                yield from self.input_differs(j, k, (x, y))
        inputs = dict(zip(present, records[0].inputs, strict=True))
        if j == n - 1:
            yield from self.commit(records, inputs)
        from reference.judge.element import output_differs

        yield from output_differs(self, j, inputs, records)

    def input_differs(self, j: int, k: int, digests: tuple[bytes, bytes]) -> Play:
        """5.6."""
        t, program = self.step, self.program
        operand = program.nodes[j].operands[k]
        assert operand is not None
        where, what = operand
        if where == "node":
            i, output = what
            found = yield from asked({0: ask.node(t, i)})
            convict([(0, not self.in_tree(found[0], i, self.trees[0]))], "5.6.6")
            if not self.fits_program(found[0], program.nodes[i]):
                raise VerdictError([(0, "5.6.2"), (1, "5.6.2")])
            true, clause = found[0].outputs[output], "5.6.2"
        elif program.inputs[what][0] == "state":
            found = yield from asked({0: ask.slot(t, what)})
            true, proof = found[0]
            agreed = self.parties[0].stated[t]
            convict([(0, self.slot_root(what, true, proof) != agreed)], "5.6.6")
            clause = "5.6.1"
        elif program.inputs[what][0] == "batch":
            yield from self.batch_differs(ask.Place(t, j, 0, k), what, digests)
            return
        else:
            true, clause = self.terms.derived(what, t), "5.6.4"
        convict([(p, digests[p] != true) for p in BOTH], clause)

    def batch_differs(self, place: ask.Place, name: str, digests: tuple[bytes, bytes]) -> Play:
        """5.6.3."""
        kind = self.program.inputs[name][1]
        element, claims = yield from first_element(place, kind, digests)
        field, _, part = name.removeprefix("batch.").partition("#")
        terms = self.terms
        entry = terms.entries[terms.at(self.step)[0]]
        reads = terms.stream_of(terms.at(self.step)[0])["data"]
        records = terms.data[reads]
        each = elements(dict(records.schema)[field])
        w = width(kind[0])
        row = element // each + int(part or 0) * (entry["batch_size"] // entry["micro_batches"])
        index = terms.record_at(self.step, row)
        number, length, at = records.place(field, element % each * w)
        if terms.format == 1:
            found = yield from asked({0: ask.record(index, length)})
            data, proof = found[0]
            inner: list[bytes] = []
        else:
            found = yield from asked({0: ask.part(reads, index, number, length)})
            data, inner, proof = found[0]
        leaf = leaf_hash(data)
        proved = True
        if records.long:
            count = len(records.cut())
            record = by_inclusion(leaf, number, count, inner)
            proved = record != b""
            leaf = leaf_hash(sha(tag("record/2") + u64(count) + record))
        elif inner:
            proved = False
        tree = by_inclusion(leaf, index, records.count, proof)
        proved = proved and records.data_root(tree) == records.root
        convict([(0, not proved)], "5.6.6")
        convict([(p, claims[p] != data[at : at + w]) for p in BOTH], "5.6.3")

    def commit(self, records: dict[int, ask.Record], inputs: dict[int, bytes]) -> Play:
        """5.8: chains and state root after the step."""
        last = len(self.program.nodes) - 1
        first = len(self.program.nodes[last].operands) - 3
        opened = []
        for k, kind in ((first, ("f32", ())), (first + 1, CHAIN)):
            place = ask.Place(self.step, last, 0, k)
            data, _ = yield from self.opened(place, kind, inputs[k], [0])
            opened.append(data[0])
        logs = None
        if "replay/" in self.terms.contract:
            from reference.judge.logs import open_logs

            logs = yield from open_logs(self)
        after = sha(tag("loss-chain/1") + opened[1] + u64(self.step) + opened[0])
        wrong = []
        for p in BOTH:
            log = digest_of_bytes(CHAIN, logs[p][1]) if logs else inputs[first + 2]
            chains = {"chain.loss": digest_of_bytes(CHAIN, after), "chain.log": log}
            names = [s for s in self.slots if not s.startswith("chain.")]
            slots = dict(zip(names, [inputs[k] for k in range(first)], strict=True)) | chains
            due = [chains["chain.loss"], chains["chain.log"], self.state_root(slots)]
            wrong.append((p, records[p].outputs != due))
        convict(wrong, "5.8")
        assert logs is not None
        from reference.judge.beyond import equal_outputs

        yield from equal_outputs(self, [logs[p][0] for p in BOTH])

    def state_root(self, slots: dict[str, bytes]) -> bytes:
        from reference.judge.merkle import root

        leaves = [leaf_hash(tag("slot/1") + text(n) + slots[n]) for n in self.slots]
        return sha(tag("state/1") + u64(len(leaves)) + root(leaves))

    def opened(self, place: ask.Place, kind: Type, digest: bytes, leaves: list[int]) -> Play:
        """Leaves of an operand, opened by party 0 (6.5, OPENING 5.3.1)."""
        found = yield from asked({0: ask.opening(place, kind, leaves)})
        data, tree = found[0]
        convict([(0, tensor_digest(kind, tree) != digest)], "6.5")
        if not all(canonical(kind[0], d) for d in data.values()):
            raise VerdictError([(0, "6.5"), (1, "6.5")])
        return data, tree
