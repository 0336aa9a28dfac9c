"""The sections of a page on data and training: mixture as asked and as built, losses, held-out bits per byte, speed.

Knows run folders as ``inputs`` reads them; nothing of agents."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from lemur_ray.host.durations import duration
from lemur_ray.report.inputs import Stage, TrainingRun
from lemur_ray.report.pages import figures
from lemur_ray.report.pages.markup import numeric, percent, table, warning
from lemur_ray.report.pages.rendering import macro, render

CONVENTIONS = {
    "6n": "6 x parameters per token",
    "6n_causal": "6 x parameters + 6 x layers x width x length per token (causal attention)",
}
"""MFU conventions by the suffix of the metric (model/flops.py)."""
BITS = "/bits_per_byte"


def corpus_section(corpus: Mapping[str, Any], folder: str, pretrain: TrainingRun | None) -> Markup:
    """Sources of the corpus, the mixture as asked and as trained on, and the documents that the filters dropped.
    pretrain: the run that was trained on it, if any."""
    sources: Sequence[Mapping[str, Any]] = corpus.get("sources", [])
    documents, tokens, num_rows = (sum(s.get(count) or 0 for s in sources) for count in ("documents", "tokens", "rows"))
    rows = [[s["name"], s.get("kind"), s.get("documents"), s.get("tokens"), s.get("rows")] for s in sources]
    rows.append(["all", "", documents, tokens, num_rows])
    fill = corpus.get("fill")
    facts = [
        f"{len(sources)} sources, {tokens:,} tokens in rows of {corpus.get('seq_len', 0):,}",
        f"vocabulary {corpus.get('vocab_size', 0):,}",
    ]
    facts += [f"packing fill {fill:.4f}"] if isinstance(fill, int | float) else []
    if absent := corpus.get("missing"):
        facts.append(f"not found on this machine: {', '.join(map(str, absent))}")
    return render(
        "corpus",
        facts=", ".join(facts),
        folder=folder,
        mixture=_mixture(pretrain.mixture) if pretrain is not None and pretrain.mixture else None,
        sources=table(["source", "kind", "documents", "tokens", "rows"], rows, frozenset([len(rows) - 1])),
        filters=_filters(corpus.get("counts")),
    )


def _mixture(sources: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Shares by kind and the ratio of code to text in words, and the shares of sources as figure and table."""
    mixture = sorted(sources, key=lambda s: (s["kind"], -s["asked_share"]))
    asked = {s["name"]: s["asked_share"] for s in mixture}
    built = {s["name"]: s["built_share"] for s in mixture}
    kinds = sorted({s["kind"] for s in mixture})
    by_kind = {
        k: [sum(s[f"{what}_share"] for s in mixture if s["kind"] == k) for what in ("asked", "built")] for k in kinds
    }
    ratio = ""
    if {"code", "text"} <= set(kinds) and min(by_kind["text"]) > 0:
        ratios = [by_kind["code"][i] / by_kind["text"][i] for i in (0, 1)]
        ratio = f" Code to text: {ratios[0]:.3g} : 1 asked, {ratios[1]:.3g} : 1 built."
    rows = [
        [s["name"], s["kind"], numeric(percent(s["asked_share"])), numeric(percent(s["built_share"])), s["built_rows"],
         s["rows"], round(s["built_epochs"], 3)]
        for s in mixture
    ]  # fmt: skip
    label = "Mixture of sources as asked and as built"
    return {
        "shares": "; ".join(f"{k} {percent(a)} asked, {percent(b)} built" for k, (a, b) in by_kind.items()),
        "ratio": ratio,
        "legend": figures.legend([(name, i) for i, name in enumerate(asked)]),
        "figure": figures.shares([("as asked", asked), ("as built", built)], label=label),
        "table": table(["source", "kind", "asked", "built", "rows trained on", "rows available", "epochs"], rows),
    }


def _filters(counts: object) -> Markup:
    """Documents read, kept, dropped and masked by rule, per source, as corpus/selection.py counts them."""
    if not isinstance(counts, Mapping) or not counts:
        return Markup("")
    rows = []
    for name, of in counts.items():
        rows.append([name, of.get("read"), of.get("kept"), _by_rule(of.get("dropped")), _by_rule(of.get("masked"))])
    return table(["source", "documents read", "kept", "dropped, by rule", "masked in kept ones"], rows)


def _by_rule(counts: object) -> str:
    if not isinstance(counts, Mapping) or not counts:
        return "none"
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    return ", ".join(f"{rule.replace('_', ' ')} {number:,}" for rule, number in ranked)


def run_section(run: TrainingRun) -> Markup:
    """The section of a page on one training run as HTML: recipe, losses, held-out numbers, speed."""
    losses = run.series("loss/")
    whole = run.series("loss").get("", [])
    series = {"all": whole, **losses} if len(losses) > 1 else {"loss": whole}
    held_out = {k.removesuffix(BITS): v for k, v in run.series("heldout/").items() if k.endswith(BITS)}
    several = any(len(points) > 2 for points in held_out.values())
    return render(
        "runs/training_run",
        problems=_problems(run),
        facts=_facts(run),
        by_source=len(losses) > 1,
        losses=figures.curves(_without_start(series), x_label="step", y_label="loss"),
        heldout=_heldout(run, held_out) if held_out else "",
        heldout_curves=figures.curves(held_out, x_label="step", y_label="bits per byte", window=1) if several else "",
        pretraining=run.stage is Stage.PRETRAINING,
    )


def _heldout(run: TrainingRun, by_kind: Mapping[str, Sequence[tuple[float, float]]]) -> Markup:
    """Bits per byte and loss on held-out rows, by kind and then by source."""
    of_sources = run.series("heldout_source/").items()
    lines: list[tuple[object, str, Sequence[tuple[float, float]]]] = [
        (name, f"heldout/{name}", points) for name, points in by_kind.items()
    ]
    for metric, points in of_sources:
        if metric.endswith(BITS):
            name = metric.removesuffix(BITS)
            lines.append((macro("parts", "indented")(name), f"heldout_source/{name}", points))
    rows = [
        [name, numeric(f"{points[-1][1]:.4f}"), numeric(f"{points[0][1]:.4f} at step {points[0][0]:.0f}"),
         run.last(f"{metric}/loss")]
        for name, metric, points in lines
    ]  # fmt: skip
    return table(["kind, then source", "bits per byte, last", "first measured", "loss (nats per token), last"], rows)


def _without_start(series: Mapping[str, list[tuple[float, float]]]) -> dict[str, list[tuple[float, float]]]:
    """Series without the first 2 % of the steps, whose fall from a random start would flatten the rest."""
    last = max((points[-1][0] for points in series.values() if points), default=0.0)
    kept = {name: [p for p in points if p[0] >= 0.02 * last] for name, points in series.items()}
    return {name: points for name, points in kept.items() if points}


def _problems(run: TrainingRun) -> Markup:
    lines = []
    if not run.result:
        lines.append("This run has not finished; the numbers are those of its last logged step.")
    if skipped := run.result.get("skipped_steps"):
        lines.append(f"{skipped} updates were skipped (not finite, or spikes).")
    if differing := run.result.get("replays_that_differ"):
        lines.append(f"After a restart {len(differing)} replayed steps came out different: the resume was not exact.")
    return warning(lines)


def _facts(run: TrainingRun) -> Markup:
    train = run.recipe.get("train", {})
    steps = run.result.get("steps") or (int(run.metrics[-1]["step"]) if run.metrics else 0)
    trained_s = run.result.get("train_s") or run.last("time_s")
    mono = macro("parts", "mono")
    facts: list[tuple[str, object]] = [
        ("recipe", mono(run.hash, run.recipe.get("name", "?"))),
        ("parameters", run.result.get("parameters")),
        ("steps", f"{steps:,} of {train.get('steps', steps):,}"),
        ("tokens", run.result.get("tokens") or run.last("tokens")),
        ("training time", "not logged" if trained_s is None else duration(trained_s)),
        ("loss over", loss_over(run)),
        ("final loss", run.result.get("loss") or run.last("loss")),
        ("tokens per second", speed_text(run)),
        ("model FLOP/s and MFU", utilisation_text(run)),
        ("started from", run.init_from or "random parameters"),
        ("folder", mono(run.place)),
    ]
    return table((), facts)


def loss_over(run: TrainingRun) -> str:
    """Text that names the tokens over which a run's loss is a mean: all, or in tuning the assistant's."""
    return "every token" if run.stage is Stage.PRETRAINING else "the assistant alone (paper A.2)"


def speed(run: TrainingRun) -> float | None:
    """Tokens per second over the whole run, from its newest logged tokens and seconds; None if never logged."""
    tokens, seconds = run.last("tokens"), run.last("time_s")
    return tokens / seconds if tokens and seconds else run.result.get("tokens_per_s")


def speed_text(run: TrainingRun) -> str:
    value = speed(run)
    return "not logged" if value is None else f"{value:,.0f} (mean of the run, compilation left out)"


def utilisation_text(run: TrainingRun) -> Markup | str:
    """Model FLOP/s by each MFU convention, and MFU if the device's peak is known; "not logged" without any."""
    logged = []
    for suffix, meaning in CONVENTIONS.items():
        flops, share = run.last(f"flops_per_s_{suffix}"), run.last(f"mfu_{suffix}")
        if flops is not None:
            mfu = f"MFU {share:.1%}" if share is not None else "no MFU: no published peak for this device"
            logged.append((f"{flops / 1e9:,.1f}", suffix, meaning, mfu))
    return macro("parts", "utilisation")(logged) if logged else "not logged"


def run_summary(run: TrainingRun) -> dict[str, Any]:
    """Numbers of a run for ``training`` in report.json: the newest logged values, None for what was never logged.
    Results that begin with ``heldout`` are included."""
    held_out = {key: value for key, value in run.result.items() if key.startswith("heldout")}
    utilisation = {f"{what}_{c}": run.last(f"{what}_{c}") for c in CONVENTIONS for what in ("flops_per_s", "mfu")}
    return {
        "name": run.name, "stage": run.stage.value, "recipe": run.recipe.get("name"), "hash": run.hash,
        "folder": run.place, "finished": bool(run.result), "init_from": run.init_from,
        "steps": run.last("step"), "tokens": run.last("tokens"), "parameters": run.result.get("parameters"),
        "loss": run.last("loss"),
        "train_s": run.last("time_s"), "tokens_per_s": speed(run), **utilisation,
        **held_out, "mixture": list(run.mixture), "skipped_steps": run.last("skipped_steps"),
    }  # fmt: skip
