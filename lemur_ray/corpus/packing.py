"""Best-fit packing of documents into rows, and the arrays that a model receives for packed rows.

Only documents longer than a row are cut, at multiples of the row length; no token is dropped."""

from dataclasses import dataclass

import numpy as np

WINDOW = 8192
"""Number of pieces packed at a time: enough for more than 99.9 % used tokens, with bounded memory."""
SHARD_BYTES = 3 << 30
"""Minimum bytes of tokens of a shard, except of a smaller set. A shard is five files, so that the sixteen sources of
the paper with 180 billion tokens are fewer than 700."""


@dataclass(frozen=True)
class PackedRow:
    """A batch of packed rows as model input: token ids, next tokens and their loss weights, document number from 1 (0:
    padding) and position in it. Every array is (rows, seq_len)."""

    tokens: np.ndarray
    """int32. Token ids; the padding id where segment_ids is 0."""
    targets: np.ndarray
    """int32. The next token of the same document; 0 if there is none."""
    loss_weights: np.ndarray
    """float32. Weight of predicting ``targets``: 0 at a document's last token and on padding."""
    segment_ids: np.ndarray
    """int32. Documents numbered from 1 within a row; 0 is padding."""
    positions: np.ndarray
    """int32. Position inside the document, from 0; padding counts from 0 as well."""

    def as_dict(self) -> dict[str, np.ndarray]:
        """The five arrays by field name."""
        return dict(vars(self))


@dataclass(frozen=True)
class Packing:
    """Assignment of pieces of documents to rows, sorted by row, then by position in the row.
    A piece is a document or, if that is longer than a row, a part of it. All arrays are (pieces,) int64."""

    document: np.ndarray
    """Index of the document a piece belongs to."""
    start: np.ndarray
    """First token of the piece inside its document."""
    length: np.ndarray
    """Tokens of the piece."""
    row: np.ndarray
    """Row of the piece, from 0, without gaps."""
    num_rows: int


def split_long(lengths: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut documents at multiples of ``capacity`` tokens; lengths: tokens of each document. Returns int64 arrays
    (document, start, length) of the pieces, in document order. Raises ValueError on a length < 1."""
    lengths = np.asarray(lengths, np.int64)
    if lengths.size and lengths.min() < 1:
        raise ValueError(f"document {int(lengths.argmin())} has {int(lengths.min())} tokens: expected at least 1")
    num_pieces = -(-lengths // capacity)
    document = np.repeat(np.arange(len(lengths)), num_pieces)
    first_piece = np.cumsum(num_pieces) - num_pieces
    start = (np.arange(len(document)) - first_piece[document]) * capacity
    return document, start, np.minimum(lengths[document] - start, capacity)


def best_fit(lengths: np.ndarray, capacity: int) -> tuple[np.ndarray, int]:
    """Assign pieces to rows by best fit on decreasing lengths; returns (row of every piece, number of rows).
    ``lengths`` is an integer array in [1, capacity]. The set of free spaces among open rows is one integer (bit f: some
    row has f tokens free), so the tightest row for n tokens is the lowest set bit at or above n."""
    rows_with_free: dict[int, list[int]] = {}
    free_sizes = 0
    num_rows = 0
    order = np.argsort(-lengths, kind="stable")
    placed = []
    for length in lengths[order].tolist():
        candidates = free_sizes >> length
        if candidates:
            remaining = (candidates & -candidates).bit_length() - 1
            rows = rows_with_free[remaining + length]
            row = rows.pop()
            if not rows:
                free_sizes ^= 1 << (remaining + length)
        else:
            row, remaining = num_rows, capacity - length
            num_rows += 1
        placed.append(row)
        if remaining:
            rows_with_free.setdefault(remaining, []).append(row)
            free_sizes |= 1 << remaining
    row_of = np.empty(len(lengths), np.int64)
    row_of[order] = placed
    return row_of, num_rows


def pack(lengths: np.ndarray, capacity: int, window: int = WINDOW) -> Packing:
    """Pack documents of the given lengths (tokens, each at least 1) into rows of ``capacity`` tokens. ``window`` pieces
    are packed at a time, in document order; a last window of less than half that size joins the one before it. Raises
    ValueError for a length below 1."""
    document, start, length = split_long(lengths, capacity)
    row = np.empty(len(length), np.int64)
    num_rows = 0
    for begin, end in windows(len(length), window):
        row_in_window, rows = best_fit(length[begin:end], capacity)
        row[begin:end] = row_in_window + num_rows
        num_rows += rows
    order = np.lexsort((np.arange(len(row)), -length, row))
    return Packing(document[order], start[order], length[order], row[order], num_rows)


def windows(count: int, window: int) -> list[tuple[int, int]]:
    """Half-open ranges (begin, end) that cut ``count`` items into windows of ``window`` items; the last has from half
    to one and a half times as many. [] for no items."""
    if not count:
        return []
    begins = list(range(0, count, window))
    if len(begins) > 1 and count - begins[-1] < window // 2:
        begins.pop()
    return [(begin, end) for begin, end in zip(begins, [*begins[1:], count], strict=True)]


def shard_ends(window_bytes: np.ndarray, shard_bytes: int) -> list[int]:
    """Ends (exclusive indices of windows) of shards of about equal size, each of ``shard_bytes`` to twice that; a
    smaller set is one shard. window_bytes: (windows,) bytes of the tokens of each window, at least one."""
    total = np.cumsum(window_bytes)
    count = max(1, int(total[-1]) // shard_bytes)
    goals = int(total[-1]) * np.arange(1, count) // count
    ends = np.searchsorted(total, goals) + 1
    return sorted({*ends.tolist(), len(window_bytes)})


def expand(
    tokens: np.ndarray, piece_lengths: np.ndarray, pieces_per_row: np.ndarray, trained: np.ndarray | None = None
) -> PackedRow:
    """Model input for packed rows: their tokens with targets, loss weights, segment ids and positions.
    tokens: (rows, seq_len) integers. piece_lengths: lengths of all pieces of all rows, flat, in order. pieces_per_row:
    (rows,) number of pieces. trained: (rows, seq_len) bool, whether a token is to be predicted; None: all."""
    num_rows, seq_len = tokens.shape
    piece_lengths = np.asarray(piece_lengths, np.int64)
    row_of_piece = np.repeat(np.arange(num_rows), pieces_per_row)
    used = np.bincount(row_of_piece, weights=piece_lengths, minlength=num_rows).astype(np.int64)
    ends = np.cumsum(pieces_per_row)
    # A row is its pieces followed by one run of padding (possibly empty), which is segment 0.
    runs = np.insert(piece_lengths, ends, seq_len - used)
    first = ends - pieces_per_row
    number = np.arange(len(piece_lengths)) - first[row_of_piece] + 1
    run_segments = np.insert(number, ends, 0)
    run_starts = np.cumsum(runs) - runs
    segments = np.repeat(run_segments, runs).astype(np.int32).reshape(num_rows, seq_len)
    positions = np.arange(num_rows * seq_len) - np.repeat(run_starts, runs)
    same = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    targets = np.zeros((num_rows, seq_len), np.int32)
    targets[:, :-1] = np.where(same, tokens[:, 1:], 0)
    weights = np.zeros((num_rows, seq_len), np.float32)
    weights[:, :-1] = same if trained is None else same & trained[:, 1:]
    return PackedRow(
        tokens.astype(np.int32), targets, weights, segments, positions.astype(np.int32).reshape(num_rows, seq_len)
    )
