"""Choice of the chat template for instruction tuning: that of the model, one from a file, or ChatML.

For ChatML, two special tokens may be appended to the vocabulary; the training run then extends the embeddings."""

from collections.abc import Callable
from functools import partial

from lemur_ray.text.chat_template import TemplateMissing
from lemur_ray.text.chatml import WITH_BOS
from lemur_ray.text.special_tokens import CHATML
from lemur_ray.text.templates.template_files import template_of, template_source, with_template
from lemur_ray.text.tokenizer import Tokenizer

_print = partial(print, flush=True)


def with_chat_format(tokenizer: Tokenizer, choice: str = "", say: Callable[[str], None] = _print) -> Tokenizer:
    """A tokenizer with the chat template for tuning among its files. choice: file of a template, or "chatml"; empty:
    the tokenizer's own (then the same tokenizer is returned), else ChatML, whose special tokens are appended to the
    vocabulary if they are missing. say: gets a line if there was no template, and one if tokens are appended. Raises
    TemplateUnusable if the template is invalid."""
    source = template_source(choice)
    if not source:
        try:
            template_of(tokenizer)
            return tokenizer
        except TemplateMissing:
            say("the model has no chat template: it is tuned on ChatML (--chat-template FILE for another one)")
    source = source or WITH_BOS
    return with_template(with_chat_tokens(tokenizer, say) if source == WITH_BOS else tokenizer, source)


def with_chat_tokens(tokenizer: Tokenizer, say: Callable[[str], None] = _print) -> Tokenizer:
    """A tokenizer with the two special tokens of ChatML: missing ones are appended to the vocabulary, and ``say`` gets
    a line. The same tokenizer if none is missing."""
    missing = [name for name, i in zip(CHATML, (tokenizer.im_start_id, tokenizer.im_end_id), strict=True) if i is None]
    if not missing:
        return tokenizer
    grown = tokenizer.with_tokens(missing)
    new = grown.vocab_size - tokenizer.vocab_size
    say(
        f"tokenizer: {' and '.join(missing)} added for ChatML, {new} new of {grown.vocab_size} tokens: the model gets "
        "rows for them, each the mean of those there"
    )
    return grown
