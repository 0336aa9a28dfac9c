"""Language of a text by an optional library: py3langid (its model is inside), else langdetect."""

import functools
import importlib.metadata
from collections.abc import Callable

from lemur_ray.corpus.cleaning.filters import FilterSet

LIBRARIES = ("py3langid", "langdetect")
_CHARACTERS = 10_000
"""Characters at the beginning of a text from which its language is detected."""


@functools.cache
def detector_name() -> str:
    """Name and version of the installed library, for keys and messages. Raises ImportError if there is none."""
    for library in LIBRARIES:
        try:
            return f"{library} {importlib.metadata.version(library)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    raise ImportError("languages are chosen for a source, but no detector is there: pip install 'lemur-ray[corpus]'")


def detected_language(text: str) -> tuple[str, float]:
    """(ISO 639-1 code, probability) of the text's language; ("", 0.0) for a text without letters. Only the
    first 10,000 characters count. Raises ImportError if no detector is installed."""
    return _detect()(text[:_CHARACTERS])


def language_rule(text: str, rules: FilterSet) -> str | None:
    """Name of the rule that drops a text: "other_language" if ``rules.languages`` do not contain its language
    (so every text if they are empty: ask only if there are some), "uncertain_language" if its probability is below
    ``rules.min_language_probability``; None if it is kept. Raises ImportError if no detector is installed."""
    language, probability = detected_language(text)
    if language not in rules.languages:
        return "other_language"
    return "uncertain_language" if probability < rules.min_language_probability else None


@functools.cache
def _detect() -> Callable[[str], tuple[str, float]]:
    if detector_name().startswith("py3langid"):
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)

        def classify(text: str) -> tuple[str, float]:
            if not any(map(str.isalpha, text)):
                return "", 0.0
            code, probability = identifier.classify(text)
            return code, float(probability)

        return classify
    from langdetect import DetectorFactory, LangDetectException, detect_langs

    DetectorFactory.seed = 0

    def detect(text: str) -> tuple[str, float]:
        try:
            best = detect_langs(text)[0]
        except LangDetectException:
            return "", 0.0
        return str(best.lang).partition("-")[0], float(best.prob)

    return detect
