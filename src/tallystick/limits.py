"""Every bound on another party's sizes, in one place.

The code checks a bound before it allocates from the bounded number (THREATS 3.5): a file must not
make a judge on a laptop run out of memory. No digest covers the bounds. But a party whose message
exceeds one counts as silent, so the bounds are numbers of the protocol's version (COMMITMENTS
11.1). A build may change those of `LOCAL` and no others.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Upper bounds, all inclusive. Sizes are bytes unless the name says otherwise."""

    manifest_bytes: int = 16 << 20
    json_depth: int = 64
    program_bytes: int = 64 << 20
    nodes: int = 1_000_000
    node_inputs: int = (1 << 20) + 16
    node_outputs: int = (1 << 20) + 16
    attribute_bytes: int = 1 << 20
    name_bytes: int = 1024
    slots: int = 1 << 20
    steps: int = 1 << 40
    checkpoints: int = 4_000_000
    tensor_rank: int = 16
    tensor_bytes: int = 1 << 40
    records: int = 1 << 40
    record_bytes: int = 1 << 20
    long_record_bytes: int = 1 << 30
    record_part_bytes: int = 64 << 10
    record_fields: int = 256
    batch_size: int = 1 << 20
    scalar_tables: int = 256
    scalar_table_values: int = 1 << 26
    proof_hashes: int = 1 << 18
    log_sections: int = 1 << 17
    log_block_bytes: int = 8 << 10
    opening_leaves: int = 1 << 16
    opening_bytes: int = 16 << 20
    envelope_bytes: int = 1 << 20
    commitment_bytes: int = 64 << 10
    forfeit_bytes: int = 256 << 10
    signatures: int = 64
    key_file_bytes: int = 16 << 10
    json_values: int = 1 << 20
    directory_entries: int = 1 << 22
    strays_named: int = 100
    journal_session_bytes: int = 16 << 20
    journal_bytes: int = 1 << 30
    query_bytes: int = 64 << 10
    answer_bytes: int = 4 << 20
    evidence_bytes: int = 16 << 20
    carried_bytes: int = 134_479_880
    page_bytes: int = 168_034_312
    parties: int = 64
    seal_bytes: int = 1 << 10
    sealed_bytes: int = 66 << 10
    entry_bytes: int = (4 << 20) + (64 << 10)
    log_entries: int = 1 << 20
    turn_bytes: int = 9 << 20
    turn_messages: int = 64
    turn_entries: int = 1 << 10
    duration_ms: int = 1 << 40
    onnx_file_bytes: int = 2 << 30
    onnx_folded_bytes: int = 256 << 20
    model_statement_bytes: int = 16 << 20
    model_programs: int = 256
    model_files: int = 64
    model_file_bytes: int = 64 << 20
    vocabulary: int = 1 << 24
    text_places: int = 1 << 20
    stop_tokens: int = 4096
    request_bytes: int = 4 << 20
    choices: int = 1 << 10
    spoken_bytes: int = 16 << 20
    receipt_bytes: int = 1 << 10
    cancellation_bytes: int = 1 << 10
    conviction_bytes: int = 24 << 20
    rendered_bytes: int = 16 << 20

    @property
    def evidence_frame(self) -> int:
        """Bytes of evidence (PROTOCOL 8.1) besides the answers before the last two.

        They are both commitments, two answers of any length, the forfeit, tag, counts and hash.
        """
        return 2 * self.commitment_bytes + 2 * self.answer_bytes + self.forfeit_bytes + 256

    @property
    def game_bytes(self) -> int:
        """The most bytes that a game's answers before the last two may have (PROTOCOL 8.5).

        With it every conviction fits into `evidence_bytes`, two maximal answers included.
        """
        return self.evidence_bytes - self.evidence_frame


LIMITS = Limits()
# Bounds on a party's own files: no other party's message meets them (11.3).
LOCAL = frozenset(
    {
        "directory_entries",
        "journal_bytes",
        "journal_session_bytes",
        "key_file_bytes",
        "onnx_file_bytes",
        "onnx_folded_bytes",
        "strays_named",
    }
)
# Bounds of answers (ANSWERS 10.1): no message of a game has these parts.
OF_ANSWERS = frozenset(
    {
        "model_statement_bytes",
        "model_programs",
        "model_files",
        "model_file_bytes",
        "vocabulary",
        "text_places",
        "stop_tokens",
        "request_bytes",
        "choices",
        "spoken_bytes",
        "receipt_bytes",
        "cancellation_bytes",
        "conviction_bytes",
        "rendered_bytes",
    }
)
