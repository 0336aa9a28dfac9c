"""The part of a page about data and training: mixture as asked and as built, losses, held-out bits per byte, speed.

Knows run folders as ``inputs`` reads them; nothing of agents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lemur_ray.host.durations import duration
from lemur_ray.report.escape import inline
from lemur_ray.report.inputs import TrainingRun
from lemur_ray.report.pages import figures
from lemur_ray.report.pages.markup import Safe, percent, table, warning

CONVENTIONS = {
    "6n": "6 x parameters per token",
    "6n_causal": "6 x parameters + 6 x layers x width x length per token (causal attention)",
}
"""MFU conventions by the suffix of the metric (model/flops.py)."""


BITS = "/bits_per_byte"


def corpus_section(corpus: Mapping[str, Any], folder: str, pretrain: TrainingRun | None) -> str:
    """Sources of the corpus, the mixture as asked and as trained on, and what the filters dropped."""
    sources: Sequence[Mapping[str, Any]] = corpus.get("sources", [])
    rows = [[s["name"], s.get("kind"), s.get("documents"), s.get("tokens"), s.get("rows")] for s in sources]
    tokens = sum(s.get("tokens") or 0 for s in sources)
    rows.append(
        ["all", "", sum(s.get("documents") or 0 for s in sources), tokens, sum(s.get("rows") or 0 for s in sources)]
    )
    fill = corpus.get("fill")
    said = [
        f"{len(sources)} sources, {tokens:,} tokens in rows of {corpus.get('seq_len', 0):,}",
        f"vocabulary {corpus.get('vocab_size', 0):,}",
    ]
    said += [f"packing fill {fill:.4f}"] if isinstance(fill, int | float) else []
    if absent := corpus.get("missing"):
        said.append(f"not found on this machine: {', '.join(map(str, absent))}")
    parts = [f'<p class="soft">{inline(", ".join(said))}. <span class="mono">{inline(folder)}</span></p>']
    parts.append(_mixture(pretrain) if pretrain is not None and pretrain.mixture else "")
    parts.append("<h3>Sources</h3>")
    parts.append(table(["source", "kind", "documents", "tokens", "rows"], rows, frozenset([len(rows) - 1])))
    parts.append(_filters(corpus.get("counts")))
    return "".join(parts)


def _mixture(run: TrainingRun) -> str:
    mixture = sorted(run.mixture, key=lambda s: (s["kind"], -s["asked_share"]))
    asked = {s["name"]: s["asked_share"] for s in mixture}
    built = {s["name"]: s["built_share"] for s in mixture}
    kinds = sorted({s["kind"] for s in mixture})
    by_kind = {
        k: [sum(s[f"{what}_share"] for s in mixture if s["kind"] == k) for what in ("asked", "built")] for k in kinds
    }
    sums = "; ".join(f"{k} {percent(a)} asked, {percent(b)} built" for k, (a, b) in by_kind.items())
    ratio = ""
    if {"code", "text"} <= set(kinds) and min(by_kind["text"]) > 0:
        ratios = [by_kind["code"][i] / by_kind["text"][i] for i in (0, 1)]
        ratio = f" Code to text: {ratios[0]:.3g} : 1 asked, {ratios[1]:.3g} : 1 built."
    rows = [
        [s["name"], s["kind"], Safe(percent(s["asked_share"])), Safe(percent(s["built_share"])), s["built_rows"],
         s["rows"], round(s["built_epochs"], 3)]
        for s in mixture
    ]  # fmt: skip
    drawn = figures.shares([("as asked", asked), ("as built", built)], label="Mixture of sources as asked and as built")
    return (
        f"<h3>Mixture, as asked and as built</h3><p>{inline(sums)}.{inline(ratio)}</p>"
        + figures.legend([(name, i) for i, name in enumerate(asked)])
        + drawn
        + table(["source", "kind", "asked", "built", "rows trained on", "rows there", "epochs"], rows)
    )


def _filters(counts: object) -> str:
    """Documents read, kept, dropped and masked by rule, per source, as corpus/selection.py counts them."""
    if not isinstance(counts, Mapping) or not counts:
        return ""
    rows = []
    for name, of in counts.items():
        rows.append([name, of.get("read"), of.get("kept"), _by_rule(of.get("dropped")), _by_rule(of.get("masked"))])
    header = ["source", "documents read", "kept", "dropped, by rule", "masked in kept ones"]
    return f"<h3>What the filters did</h3>{table(header, rows)}"


def _by_rule(counts: object) -> str:
    if not isinstance(counts, Mapping) or not counts:
        return "none"
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    return ", ".join(f"{rule.replace('_', ' ')} {number:,}" for rule, number in ranked)


def run_section(run: TrainingRun) -> str:
    """One training run: what it is, its losses, its held-out numbers, its speed."""
    losses = run.series("loss/")
    whole = run.series("loss").get("", [])
    series = {"all": whole, **losses} if len(losses) > 1 else {"loss": whole}
    held_out = {k: v for k, v in run.series("heldout/").items() if k.endswith("/bits_per_byte")}
    parts = [_problems(run), _facts(run)]
    parts.append(
        "<h3>Training loss by source, nats per trained token</h3>"
        if len(losses) > 1
        else "<h3>Training loss, nats per trained token</h3>"
    )
    parts.append(figures.curves(_without_start(series), x_label="step", y_label="loss"))
    if held_out:
        rows = [
            [name.split("/")[0], Safe(f"{points[-1][1]:.4f}"), Safe(f"{points[0][1]:.4f} at step {points[0][0]:.0f}"),
             run.last(f"heldout/{name.split('/')[0]}/loss")]
            for name, points in held_out.items()
        ]  # fmt: skip
        parts.append("<h3>Held-out rows: bits per byte</h3>")
        rows += [
            [Safe(f"&nbsp; {inline(name.removesuffix(BITS))}"), Safe(f"{points[-1][1]:.4f}"),
             Safe(f"{points[0][1]:.4f} at step {points[0][0]:.0f}"),
             run.last(f"heldout_source/{name.removesuffix(BITS)}/loss")]
            for name, points in run.series("heldout_source/").items() if name.endswith(BITS)
        ]  # fmt: skip
        header = ["kind, then source", "bits per byte, last", "first measured", "loss (nats per token), last"]
        parts.append(table(header, rows))
        if max(map(len, held_out.values())) > 2:
            named = {name.split("/")[0]: points for name, points in held_out.items()}
            parts.append(figures.curves(named, x_label="step", y_label="bits per byte", window=1))
    elif run.stage == "pretraining":
        parts.append('<p class="none">No held-out loss was measured in this run.</p>')
    return "".join(parts)


def _without_start(series: Mapping[str, list[tuple[float, float]]]) -> dict[str, list[tuple[float, float]]]:
    """Without the first 2 % of the steps, where the fall from a random start would flatten everything else."""
    last = max((points[-1][0] for points in series.values() if points), default=0.0)
    kept = {name: [p for p in points if p[0] >= 0.02 * last] for name, points in series.items()}
    return {name: points for name, points in kept.items() if points}


def _problems(run: TrainingRun) -> str:
    lines = []
    if not run.result:
        lines.append("This run has not finished; the numbers are those of its last logged step.")
    if skipped := run.result.get("skipped_steps"):
        lines.append(f"{skipped} updates were skipped (not finite, or spikes).")
    if differing := run.result.get("replays_that_differ"):
        lines.append(f"After a restart {len(differing)} replayed steps came out different: the resume was not exact.")
    return warning(lines)


def _facts(run: TrainingRun) -> str:
    train = run.recipe.get("train", {})
    steps = run.result.get("steps") or (int(run.metrics[-1]["step"]) if run.metrics else 0)
    trained_s = run.result.get("train_s") or run.last("time_s")
    facts: list[tuple[str, object]] = [
        ("recipe", Safe(f'{inline(run.recipe.get("name", "?"))} <span class="mono">{inline(run.hash)}</span>')),
        ("parameters", run.result.get("parameters")),
        ("steps", Safe(f"{steps:,} of {train.get('steps', steps):,}")),
        ("tokens", run.result.get("tokens") or run.last("tokens")),
        ("training time", Safe("not logged" if trained_s is None else duration(trained_s))),
        ("loss over", loss_over(run)),
        ("final loss", run.result.get("loss") or run.last("loss")),
        ("tokens per second", Safe(speed_text(run))),
        ("model FLOP/s and MFU", Safe(utilisation_text(run))),
        ("started from", run.init_from or "random parameters"),
        ("folder", Safe(f'<span class="mono">{inline(run.place)}</span>')),
    ]
    return table(["", ""], facts).replace("<thead><tr><th></th><th></th></tr></thead>", "").replace(' class="n"', "")


def loss_over(run: TrainingRun) -> str:
    """What the loss of a run is taken over."""
    return "every token" if run.stage == "pretraining" else "the assistant alone (paper A.2)"


def speed(run: TrainingRun) -> float | None:
    """Tokens per second over the whole run: tokens of the last line over its seconds of training."""
    tokens, seconds = run.last("tokens"), run.last("time_s")
    return tokens / seconds if tokens and seconds else run.result.get("tokens_per_s")


def speed_text(run: TrainingRun) -> str:
    value = speed(run)
    return "not logged" if value is None else f"{value:,.0f} (mean of the run, compilation left out)"


def utilisation_text(run: TrainingRun) -> str:
    """FLOP/s by convention, and MFU where the peak of the device is known; says so where it is not."""
    parts = []
    for suffix, meaning in CONVENTIONS.items():
        flops, share = run.last(f"flops_per_s_{suffix}"), run.last(f"mfu_{suffix}")
        if flops is None:
            continue
        mfu = f"MFU {share:.1%}" if share is not None else "no MFU: no published peak for this device"
        parts.append(f"{flops / 1e9:,.1f} GFLOP/s by <b>{inline(suffix)}</b> ({inline(meaning)}), {mfu}")
    return "<br>".join(parts) or "not logged"


def run_summary(run: TrainingRun) -> dict[str, Any]:
    """The numbers of a run for report.json."""
    held_out = {key: value for key, value in run.result.items() if key.startswith("heldout")}
    utilisation = {f"{what}_{c}": run.last(f"{what}_{c}") for c in CONVENTIONS for what in ("flops_per_s", "mfu")}
    return {
        "name": run.name, "stage": run.stage, "recipe": run.recipe.get("name"), "hash": run.hash,
        "folder": run.place, "finished": bool(run.result), "init_from": run.init_from,
        "steps": run.last("step"), "tokens": run.last("tokens"), "parameters": run.result.get("parameters"),
        "loss": run.last("loss"),
        "train_s": run.last("time_s"), "tokens_per_s": speed(run), **utilisation,
        **held_out, "mixture": list(run.mixture), "skipped_steps": run.last("skipped_steps"),
    }  # fmt: skip
